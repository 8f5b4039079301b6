# SPDX-License-Identifier: Apache-2.0
"""Split bytes into chunks, as a socket may deliver them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def split(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Return `data` in chunks of these sizes; the last chunk has the remaining bytes."""
    chunks, offset = [], 0
    for size in sizes:
        if offset < len(data):
            chunks.append(data[offset : offset + size])
            offset += size
    return [*chunks, data[offset:]]
