# SPDX-License-Identifier: Apache-2.0
"""Octets as they may come: in any split."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def split(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """`data` in chunks of these sizes, the rest as the last one."""
    chunks, at = [], 0
    for size in sizes:
        if at < len(data):
            chunks.append(data[at : at + size])
            at += size
    return [*chunks, data[at:]]
