# SPDX-License-Identifier: Apache-2.0
"""Columns, types, and ranges of offsets."""
