# SPDX-License-Identifier: Apache-2.0
"""Columns of a read, types of decoded values, and offsets of streams."""
