# SPDX-License-Identifier: Apache-2.0
"""Entries of a ledger: changes of the files of a virtual host.

An entry begins with a head, in network order::

    0        4        8       16       24      32
    +--------+--------+--------+-------+-------+----------------- - -
    | "HRL1" | check  | number | before | chain | changes, bytes
    +--------+--------+--------+-------+-------+----------------- - -

``chain`` is the hash of the head from 8 on, with ``check``, and so of all entries before it:
``before`` is the chain of the last entry, 0 for the first one. A node that has applied an entry
whose chain the ledger does not show has another history than the ledger. ``check`` is a CRC-32 of
everything from 32 on.

A change has the kind (1), the length of the path (2), the path, the offset in the file (8) and the
size (8); the bytes of all changes follow the last one, in their order. Paths are
relative to the directory of the virtual host.
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
    """The ledger's data under a number is not an entry of this number."""


class Entry(NamedTuple):
    """An entry of a ledger: the changes of one group of the journal."""

    number: int
    before: bytes
    chain: bytes
    changes: list[Change]


def encode(number: int, before: bytes, changes: Sequence[Change]) -> tuple[list[BytesLike], bytes]:
    """Return the buffers of an entry, those of its writes uncopied, and its chain."""
    table = bytearray()
    buffers: list[BytesLike] = []
    for change in changes:
        path = change.path.encode()
        size = sum(map(len, change.buffers))
        table += struct.pack(">BH", change.kind, len(path)) + path
        table += struct.pack(">QQ", change.offset, size)
        buffers += change.buffers
    table.append(END)
    check = zlib.crc32(table)
    for buffer in buffers:
        check = zlib.crc32(buffer, check)
    summed = struct.pack(">IQ", check, number) + before
    chain = chain_hash(summed)
    head = MAGIC + summed + chain + bytes(table)
    return [head, *buffers], chain


def chain_hash(summed: bytes) -> bytes:
    """Return the hash of a head without its chain."""
    return hashlib.blake2b(summed, digest_size=CHAIN).digest()


def decode(number: int, data: bytes) -> Entry:
    """Read an entry.

    Raises:
        DamagedEntryError: the entry is damaged, or has another number.
    """
    view = memoryview(data)
    if len(data) <= HEAD or view[:4] != MAGIC:
        raise DamagedEntryError(f"entry {number} of the ledger is not a valid entry")
    summed, chain = data[4:24], data[24:HEAD]
    check, own_number = struct.unpack_from(">IQ", summed)
    if own_number != number or chain_hash(summed) != chain or zlib.crc32(view[HEAD:]) != check:
        raise DamagedEntryError(f"entry {number} of the ledger is damaged, or entry {own_number}")
    return Entry(number, summed[12:], chain, list(decode_changes(view)))


def decode_changes(view: memoryview) -> Iterator[Change]:
    """Yield the changes of an entry that is whole."""
    table = []
    offset = HEAD
    while view[offset] != END:
        kind, length = struct.unpack_from(">BH", view, offset)
        path = str(view[offset + 3 : offset + 3 + length], "utf-8")
        offset += 3 + length
        table.append((kind, path, *struct.unpack_from(">QQ", view, offset)))
        offset += 16
    offset += 1
    for kind, path, file_offset, size in table:
        yield Change(
            kind, path, file_offset, [view[offset : offset + size]] if kind == WRITE else []
        )
        offset += size
