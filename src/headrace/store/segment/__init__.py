# SPDX-License-Identifier: Apache-2.0
"""Segments: files of records, how they are written, checked and replaced."""
