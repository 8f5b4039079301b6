# SPDX-License-Identifier: Apache-2.0
"""What the wire room raises when bytes are not what they claim to be."""

from __future__ import annotations


class MalformedError(ValueError):
    """Bytes that the standard does not allow."""
