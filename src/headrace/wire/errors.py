# SPDX-License-Identifier: Apache-2.0
"""Errors of the wire room."""

from __future__ import annotations


class MalformedError(ValueError):
    """The bytes violate the standard."""
