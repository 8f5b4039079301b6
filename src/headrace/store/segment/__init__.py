# SPDX-License-Identifier: Apache-2.0
"""Segments: files of records, and how they are written, verified and replaced."""
