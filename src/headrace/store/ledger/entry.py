# SPDX-License-Identifier: Apache-2.0
"""Entries of a ledger: changes of the files of a virtual host.

An entry begins with a head, in network order::

    0        4        8       16       24      32
    +--------+--------+--------+-------+-------+----------------- - -
    | "HRL1" | check  | number | prev.  | chain | changes, bytes
    +--------+--------+--------+-------+-------+----------------- - -

``chain`` is a hash of ``check``, ``number`` and ``prev.``, the chain of the previous entry (0 for
the first). So it covers all earlier entries: a node that has applied an entry with another chain
than the ledger's has another history. ``check`` is a CRC-32 of all bytes from 32 on.

A change has the operation (1), the length of the path (2), the path, the offset in the file (8) and
the size (8). The bytes of all changes follow the last change, in order. Paths are relative to the
directory of the virtual host.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.store.disk import WRITE, Change
from headrace.store.ledger.port import BytesLike

MAGIC = b"HRL1"
HEAD = 32  # Bytes.
CHAIN = 8  # Bytes.
END = 0

NO_CHAIN = bytes(CHAIN)  # Before the first entry.


class DamagedEntryError(Exception):
    """The data that the ledger has under a number is not the entry of that number."""


class Entry(NamedTuple):
    """An entry of a ledger: the changes of one group of the journal."""

    number: int
    previous_chain: bytes
    chain: bytes
    changes: list[Change]


def encode(
    number: int, previous_chain: bytes, changes: Sequence[Change]
) -> tuple[list[BytesLike], bytes]:
    """Return the buffers of an entry, and its chain; the buffers of writes are not copied."""
    table = bytearray()
    buffers: list[BytesLike] = []
    for change in changes:
        path = change.path.encode()
        size = sum(map(len, change.buffers))
        table += struct.pack(">BH", change.operation, len(path)) + path
        table += struct.pack(">QQ", change.offset, size)
        buffers += change.buffers
    table.append(END)
    check = zlib.crc32(table)
    for buffer in buffers:
        check = zlib.crc32(buffer, check)
    checked = struct.pack(">IQ", check, number) + previous_chain
    chain = hash_chain(checked)
    head = MAGIC + checked + chain + bytes(table)
    return [head, *buffers], chain


def hash_chain(checked: bytes) -> bytes:
    """Return the chain of an entry from the preceding fields of its head."""
    return hashlib.blake2b(checked, digest_size=CHAIN).digest()


def decode(number: int, data: bytes) -> Entry:
    """Decode and verify an entry.

    Raises:
        DamagedEntryError: the entry is damaged, or has another number.
    """
    view = memoryview(data)
    if len(data) <= HEAD or view[:4] != MAGIC:
        raise DamagedEntryError(f"entry {number} of the ledger is not a valid entry")
    checked, chain = data[4:24], data[24:HEAD]
    check, own_number = struct.unpack_from(">IQ", checked)
    if own_number != number or hash_chain(checked) != chain or zlib.crc32(view[HEAD:]) != check:
        raise DamagedEntryError(f"entry {number} of the ledger is damaged, or entry {own_number}")
    return Entry(number, checked[12:], chain, list(decode_changes(view)))


def decode_changes(view: memoryview) -> Iterator[Change]:
    """Yield the changes of a verified entry."""
    table = []
    offset = HEAD
    while view[offset] != END:
        operation, length = struct.unpack_from(">BH", view, offset)
        path = str(view[offset + 3 : offset + 3 + length], "utf-8")
        offset += 3 + length
        table.append((operation, path, *struct.unpack_from(">QQ", view, offset)))
        offset += 16
    offset += 1
    for operation, path, file_offset, size in table:
        yield Change(
            operation,
            path,
            file_offset,
            [view[offset : offset + size]] if operation == WRITE else [],
        )
        offset += size
