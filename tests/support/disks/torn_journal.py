# SPDX-License-Identifier: Apache-2.0
"""Journals that end at any place: at the end of a record, or inside one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.disks.crash_disk import MortalDisk

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_segment(path: str) -> bool:
    return path.startswith("/journal/") and path.endswith(".segment")


def journal_of(disk: MortalDisk) -> dict[str, bytes]:
    """The octets of each segment that has any, oldest first."""
    names = sorted(name for name in disk.names_now if is_segment(name))
    return {name: bytes(disk.names_now[name].cache) for name in names}


def cuts(before: dict[str, bytes], after: dict[str, bytes]) -> Iterator[tuple[str, int]]:
    """Give each end of a record, and a place inside each, of what was written after."""
    for name, octets in after.items():
        at = 64
        while at < len(octets) and (length := int.from_bytes(octets[at : at + 4], "big")):
            size = (length + 7) & ~7
            if before.get(name, b"")[at : at + size] != octets[at : at + size]:
                yield name, at
                yield name, at + 8
            at += size
        yield name, at


def torn(disk: MortalDisk, name: str, at: int) -> MortalDisk:
    """Return a disk on which the journal ends at a place; what was allocated stays."""
    copy = MortalDisk(0)
    for path, file in disk.names_now.items():
        if is_segment(path) and path > name:
            continue
        octets = bytes(file.cache)
        if path == name:
            octets = octets[:at] + bytes(len(octets) - at)
        handle = copy.open(path, create=True)
        copy.write_some(handle, [memoryview(octets)], 0)
        copy.sync(handle)
        copy.close(handle)
    return copy
