# SPDX-License-Identifier: Apache-2.0
"""Rows written as messages."""
