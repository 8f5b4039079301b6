# SPDX-License-Identifier: Apache-2.0
"""Sidecars: what stays on disk of an offloaded segment, its header and places of records.

The file ``0000000012.offloaded`` stands in place of ``0000000012.segment``::

    0            8         12       16     24       28                    92      96     104
    +------------+---------+--------+------+--------+---------------------+-------+-------+
    | "HEADTIER" | version | number | size | groups | header of a segment | zeros | check |
    +------------+---------+--------+------+--------+---------------------+-------+-------+

Then each group of records (:mod:`headrace.store.offload.places`) in 28 bytes: first offset (8), its
place (4), its time (8), where in this file its compressed rest is (4) and its bytes there (4). A
check of them (8) follows, then the rests, which have checks of their own. A start reads the first
part only.
"""

from __future__ import annotations

import bisect
import os
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.offload.places import PlaceScan, find_in_group
from headrace.store.replacement import write_whole
from headrace.store.segment.record import residue
from headrace.store.segment.segment import HEADER, Header, read_header

if TYPE_CHECKING:
    from headrace.store.disk import Disk

SUFFIX = ".offloaded"
MADE = ".made"  # Of a sidecar whose segment is still here.
MAGIC = b"HEADTIER"
VERSION = 1
FIRST = struct.Struct(">8sIIQI64s4x")  # Without its check.
GROUP = struct.Struct(">QIQII")
CHECK = 8
WINDOW = 1 << 20  # Bytes of a segment read at a time.
OFFSET, PLACE, TIME = 0, 1, 2  # Columns of a group.


class SidecarError(Exception):
    """The file is damaged, or of a newer version; the text is the reason."""


class Facts(NamedTuple):
    """The first part of a sidecar."""

    header: Header  # Of the segment.
    size: int  # Bytes of the segment.
    groups: int


def sidecar_path(segment: str) -> str:
    """Return the path of the sidecar of a segment's file."""
    return segment.removesuffix(".segment") + SUFFIX


def make_sidecar(disk: Disk, source: str, path: str, size: int, seed: int) -> None:
    """Read a sealed segment, and write its sidecar durably, under its name with ``.made``.

    Raises:
        OSError: the segment cannot be read, or the sidecar not be written.
        SidecarError: the segment has no header.
    """
    handle = disk.open(source)
    try:
        head = disk.read(handle, HEADER, 0)
        header = read_header(head)
        if header is None:
            raise SidecarError(f"{source} has no intact header")
        scan = scan_places(disk, handle, size, seed)
    finally:
        disk.close(handle)
    first = FIRST.pack(MAGIC, VERSION, header.number, size, len(scan.groups), head)
    rests = [zlib.compress(rest, 1) for _, _, _, rest in scan.groups]
    at = len(first) + CHECK + GROUP.size * len(rests) + CHECK
    groups = bytearray()
    for (offset, place, arrived_ms, _), rest in zip(scan.groups, rests, strict=True):
        groups += GROUP.pack(offset, place, arrived_ms, at, len(rest))
        at += len(rest)
    write_whole(disk, path + MADE, b"".join([first, check(first), groups, check(groups), *rests]))


def scan_places(disk: Disk, handle: int, size: int, seed: int) -> PlaceScan:
    """Read all records of a segment, in short steps, for the sake of other threads."""
    scan = PlaceScan(seed)
    begins = HEADER
    window_size = WINDOW
    while begins < size:
        window = disk.read(handle, min(window_size, size - begins), begins)
        last = begins + len(window) >= size or not window
        at = 0
        while (following := scan.read_group(window, at, begins, last)) > at:
            at = following
        if last:
            break
        window_size = WINDOW if at else 2 * window_size  # A record that is larger.
        begins += at
    scan.end_group()
    return scan


def check(octets: bytes | bytearray) -> bytes:
    """Return the check of a part."""
    return residue(0, bytes(octets), 0, len(octets)).to_bytes(8, "big")


class Sidecar:
    """A sidecar on disk; each call opens and closes the file."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path

    def facts(self) -> Facts:
        """Read the first part.

        Raises:
            SidecarError: it is damaged.
            OSError: it cannot be read.
        """
        octets = self.read(FIRST.size + CHECK, 0)
        first = octets[: FIRST.size]
        if len(octets) < FIRST.size + CHECK or check(first) != octets[FIRST.size :]:
            raise SidecarError(f"{self.path} is damaged")
        magic, version, number, size, groups, head = FIRST.unpack(first)
        header = read_header(head)
        if magic != MAGIC or header is None or header.number != number:
            raise SidecarError(f"{self.path} is damaged")
        if version > VERSION:
            raise SidecarError(f"{self.path} was written by a newer version of Headrace")
        return Facts(header, size, groups)

    def index(self, groups: int) -> list[tuple[int, int, int, int, int]]:
        """Read the groups: first offset, place, time; place and bytes of the rest.

        Raises:
            SidecarError, OSError: see :meth:`facts`.
        """
        octets = self.read(GROUP.size * groups + CHECK, FIRST.size + CHECK)
        entries = octets[: GROUP.size * groups]
        if len(octets) < len(entries) + CHECK or check(entries) != octets[len(entries) :]:
            raise SidecarError(f"{self.path} is damaged")
        return list(GROUP.iter_unpack(entries))

    def rest(self, at: int, size: int) -> bytes:
        """Read the records of a group.

        Raises:
            SidecarError, OSError: see :meth:`facts`.
        """
        try:
            return zlib.decompress(self.read(size, at))
        except zlib.error as error:
            raise SidecarError(f"{self.path} is damaged: {error}") from None

    def read(self, size: int, at: int) -> bytes:
        """Read bytes of the file."""
        handle = self.disk.open(self.path)
        try:
            return self.disk.read(handle, size, at)
        finally:
            self.disk.close(handle)


class Places:
    """The records of one segment that moved, found by offset, place or time."""

    def __init__(self, sidecar: Sidecar, groups: int) -> None:
        self.sidecar = sidecar
        self.groups = sidecar.index(groups)
        #: As a segment's own index has it: first offset, place, time.
        self.index = [entry[:3] for entry in self.groups]

    def find(self, column: int, least: int) -> tuple[int, int]:
        """Return offset and place of the first record with at least this offset, place or time.

        Both are -1 if there is none.
        """
        nearest = bisect.bisect_left if column == TIME else bisect.bisect_right
        k = nearest(self.groups, least, key=lambda entry: entry[column]) - 1
        for offset, place, arrived_ms, at, size in self.groups[max(k, 0) :]:
            entries = self.sidecar.rest(at, size)
            first = (offset, place, arrived_ms)[column]
            found = find_in_group(entries, column, least - first, False)
            if found[0] >= 0:
                return offset + found[0], place + found[1]
        return -1, -1

    def at(self, place: int) -> tuple[int, int]:
        """Return offset and place of the last record that begins at or before a place.

        That is the first record if all begin behind it, and -1 and -1 if there is none.
        """
        if not self.groups:
            return -1, -1
        k = max(bisect.bisect_right(self.groups, place, key=lambda entry: entry[PLACE]) - 1, 0)
        offset, first, _, at, size = self.groups[k]
        found = find_in_group(self.sidecar.rest(at, size), PLACE, place + 1 - first, True)
        return offset + found[0], first + found[1]

    def end(self) -> int:
        """Return the offset behind the last record; -1 if there is none."""
        offset, _ = self.at(1 << 40)
        return offset + 1 if offset >= 0 else -1


def complete(disk: Disk, path: str) -> None:
    """Give a sidecar that was made its name, durably."""
    disk.rename(path + MADE, path)
    disk.sync_directory(os.path.dirname(path))
