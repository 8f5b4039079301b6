# SPDX-License-Identifier: Apache-2.0
"""Sidecars: files with the header and the record index of an offloaded segment.

The file ``0000000012.offloaded`` replaces ``0000000012.segment``::

    0            8         12       16     24       28                    92      96     104
    +------------+---------+--------+------+--------+---------------------+-------+-------+
    | "HEADTIER" | version | number | size | groups | header of a segment | zeros | check |
    +------------+---------+--------+------+--------+---------------------+-------+-------+

Each record group (:mod:`headrace.store.offload.record_groups`) follows in 28 bytes: the first
offset (8), its file offset (4), its time (8), and the offset (4) and size (4) of the group's
compressed entries in this file. Then come a checksum of these (8) and the entries, which zlib
checks. A start reads only the first part.
"""

from __future__ import annotations

import bisect
import os
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.offload.record_groups import GroupScan, find_in_group
from headrace.store.replacement import write_whole
from headrace.store.segment.record import residue
from headrace.store.segment.segment import HEADER, Header, read_header

if TYPE_CHECKING:
    from headrace.store.disk import Disk

SUFFIX = ".offloaded"
MADE = ".made"  # Suffix of a sidecar whose segment has not moved yet.
MAGIC = b"HEADTIER"
VERSION = 1
HEAD_FORMAT = struct.Struct(">8sIIQI64s4x")  # The first part without its checksum.
GROUP_FORMAT = struct.Struct(">QIQII")
CHECK_BYTES = 8
WINDOW = 1 << 20  # Bytes of a segment read at a time.
OFFSET, FILE_OFFSET, TIME = 0, 1, 2  # Columns of a group.


class SidecarError(Exception):
    """A sidecar that is damaged or of a newer version; the text is the reason."""


class SidecarHead(NamedTuple):
    """The first part of a sidecar."""

    header: Header  # The header of the segment.
    size: int  # Bytes of the segment.
    groups: int


def sidecar_path(segment: str) -> str:
    """Return the path of the sidecar of a segment's file."""
    return segment.removesuffix(".segment") + SUFFIX


def make_sidecar(disk: Disk, source: str, path: str, size: int, seed: int) -> None:
    """Read a sealed segment, and write its sidecar durably to ``path`` with the suffix ``.made``.

    Raises:
        OSError: the segment cannot be read, or the sidecar cannot be written.
        SidecarError: the segment has no header.
    """
    handle = disk.open(source)
    try:
        head = disk.read(handle, HEADER, 0)
        header = read_header(head)
        if header is None:
            raise SidecarError(f"{source} has no intact header")
        scan = scan_records(disk, handle, size, seed)
    finally:
        disk.close(handle)
    first = HEAD_FORMAT.pack(MAGIC, VERSION, header.number, size, len(scan.groups), head)
    compressed = [zlib.compress(entries, 1) for _, _, _, entries in scan.groups]
    offset_in_sidecar = len(first) + CHECK_BYTES + GROUP_FORMAT.size * len(compressed) + CHECK_BYTES
    groups = bytearray()
    for (offset, file_offset, arrived_ms, _), entries in zip(scan.groups, compressed, strict=True):
        groups += GROUP_FORMAT.pack(
            offset, file_offset, arrived_ms, offset_in_sidecar, len(entries)
        )
        offset_in_sidecar += len(entries)
    parts: list[bytes | bytearray] = [first, checksum(first), groups, checksum(groups), *compressed]
    write_whole(disk, path + MADE, b"".join(parts))


def scan_records(disk: Disk, handle: int, size: int, seed: int) -> GroupScan:
    """Read all records of a segment, in steps that are short enough for other threads."""
    scan = GroupScan(seed)
    window_offset = HEADER
    window_size = WINDOW
    while window_offset < size:
        window = disk.read(handle, min(window_size, size - window_offset), window_offset)
        last = window_offset + len(window) >= size or not window
        position = 0
        while (following := scan.read_group(window, position, window_offset, last)) > position:
            position = following
        if last:
            break
        window_size = WINDOW if position else 2 * window_size  # A record that is larger.
        window_offset += position
    scan.end_group()
    return scan


def checksum(data: bytes | bytearray) -> bytes:
    """Return the checksum of a part, 8 bytes."""
    return residue(0, bytes(data), 0, len(data)).to_bytes(8, "big")


class Sidecar:
    """A sidecar on disk; each call opens and closes the file."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path

    def read_head(self) -> SidecarHead:
        """Read the first part.

        Raises:
            SidecarError: the part is damaged.
            OSError: the part cannot be read.
        """
        data = self.read(HEAD_FORMAT.size + CHECK_BYTES, 0)
        first = data[: HEAD_FORMAT.size]
        if (
            len(data) < HEAD_FORMAT.size + CHECK_BYTES
            or checksum(first) != data[HEAD_FORMAT.size :]
        ):
            raise SidecarError(f"{self.path} is damaged")
        magic, version, number, size, groups, head = HEAD_FORMAT.unpack(first)
        header = read_header(head)
        if magic != MAGIC or header is None or header.number != number:
            raise SidecarError(f"{self.path} is damaged")
        if version > VERSION:
            raise SidecarError(f"{self.path} was written by a newer version of Headrace")
        return SidecarHead(header, size, groups)

    def index(self, groups: int) -> list[tuple[int, int, int, int, int]]:
        """Read the groups: first offset, file offset and time; offset and size of the entries.

        Raises:
            SidecarError, OSError: see :meth:`read_head`.
        """
        data = self.read(GROUP_FORMAT.size * groups + CHECK_BYTES, HEAD_FORMAT.size + CHECK_BYTES)
        entries = data[: GROUP_FORMAT.size * groups]
        if len(data) < len(entries) + CHECK_BYTES or checksum(entries) != data[len(entries) :]:
            raise SidecarError(f"{self.path} is damaged")
        return list(GROUP_FORMAT.iter_unpack(entries))

    def read_group(self, offset: int, size: int) -> bytes:
        """Read the records of a group.

        Raises:
            SidecarError, OSError: see :meth:`read_head`.
        """
        try:
            return zlib.decompress(self.read(size, offset))
        except zlib.error as error:
            raise SidecarError(f"{self.path} is damaged: {error}") from None

    def read(self, size: int, offset: int) -> bytes:
        """Read bytes of the file."""
        handle = self.disk.open(self.path)
        try:
            return self.disk.read(handle, size, offset)
        finally:
            self.disk.close(handle)


class RecordIndex:
    """The records of one offloaded segment, found by offset, file offset or time."""

    def __init__(self, sidecar: Sidecar, groups: int) -> None:
        self.sidecar = sidecar
        self.groups = sidecar.index(groups)
        #: Entries as in the index of a local segment: first offset, file offset, time.
        self.index = [entry[:3] for entry in self.groups]

    def find(self, column: int, minimum: int) -> tuple[int, int]:
        """Return offset and file offset of the first record whose column is at least ``minimum``.

        Both are -1 if there is none.
        """
        nearest = bisect.bisect_left if column == TIME else bisect.bisect_right
        k = nearest(self.groups, minimum, key=lambda entry: entry[column]) - 1
        for offset, file_offset, arrived_ms, sidecar_offset, size in self.groups[max(k, 0) :]:
            entries = self.sidecar.read_group(sidecar_offset, size)
            first = (offset, file_offset, arrived_ms)[column]
            record = find_in_group(entries, column, minimum - first, False)
            if record[0] >= 0:
                return offset + record[0], file_offset + record[1]
        return -1, -1

    def record_at(self, file_offset: int) -> tuple[int, int]:
        """Return offset and file offset of the last record that begins at or before a file offset.

        If all records begin later, return the first one; -1 and -1 if there is no record.
        """
        if not self.groups:
            return -1, -1
        k = bisect.bisect_right(self.groups, file_offset, key=lambda entry: entry[FILE_OFFSET]) - 1
        offset, first, _, sidecar_offset, size = self.groups[max(k, 0)]
        entries = self.sidecar.read_group(sidecar_offset, size)
        record = find_in_group(entries, FILE_OFFSET, file_offset + 1 - first, True)
        return offset + record[0], first + record[1]

    def end_offset(self) -> int:
        """Return the offset after the last record; -1 if there is no record."""
        offset, _ = self.record_at(1 << 40)
        return offset + 1 if offset >= 0 else -1


def rename_sidecar(disk: Disk, path: str) -> None:
    """Remove the suffix ``.made`` of a sidecar's name durably."""
    disk.rename(path + MADE, path)
    disk.sync_directory(os.path.dirname(path))
