# SPDX-License-Identifier: Apache-2.0
"""Readers of streams."""
