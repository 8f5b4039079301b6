# SPDX-License-Identifier: Apache-2.0
"""Entries of a ledger: changes of the files of a virtual host.

An entry begins with a head, in network order::

    0        4        8       16       24      32
    +--------+--------+--------+-------+-------+----------------- - -
    | "HRL1" | check  | number | before | chain | changes, octets
    +--------+--------+--------+-------+-------+----------------- - -

``chain`` is the hash of the head from 8 on, with ``check``, and so of all entries before it:
``before`` is the chain of the last entry, 0 for the first one. A node that has applied an entry
whose chain the ledger does not show has another history than the ledger. ``check`` is a CRC-32 of
everything from 32 on.

A change has the kind (1), the length of the path (2), the path, the place in the file (8) and the
number of octets (8); the octets of all changes follow the last one, in their order. Paths are
relative to the directory of the virtual host.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.store.disk import WRITE, Change
from headrace.store.ledger.port import Octets

MAGIC = b"HRL1"
HEAD = 32  # Bytes.
CHAIN = 8  # Bytes.
END = 0

NO_CHAIN = bytes(CHAIN)  # Before the first entry.


class DamagedEntryError(Exception):
    """The ledger's data under a number is not an entry of this number."""


class Entry(NamedTuple):
    """An entry, decoded."""

    number: int
    before: bytes
    chain: bytes
    changes: list[Change]


def encode(number: int, before: bytes, changes: Sequence[Change]) -> tuple[list[Octets], bytes]:
    """Return the pieces of an entry, those of its writes uncopied, and its chain."""
    table = bytearray()
    pieces: list[Octets] = []
    for change in changes:
        path = change.path.encode()
        size = sum(map(len, change.pieces))
        table += struct.pack(">BH", change.kind, len(path)) + path
        table += struct.pack(">QQ", change.at, size)
        pieces += change.pieces
    table.append(END)
    check = zlib.crc32(table)
    for piece in pieces:
        check = zlib.crc32(piece, check)
    summed = struct.pack(">IQ", check, number) + before
    chain = chain_of(summed)
    head = MAGIC + summed + chain + bytes(table)
    return [head, *pieces], chain


def chain_of(summed: bytes) -> bytes:
    """Return the hash of a head without its chain."""
    return hashlib.blake2b(summed, digest_size=CHAIN).digest()


def decode(number: int, octets: bytes) -> Entry:
    """Read an entry.

    Raises:
        DamagedEntryError: it is damaged, or has another number.
    """
    view = memoryview(octets)
    if len(octets) <= HEAD or view[:4] != MAGIC:
        raise DamagedEntryError(f"entry {number} of the ledger is not a valid entry")
    summed, chain = octets[4:24], octets[24:HEAD]
    check, own_number = struct.unpack_from(">IQ", summed)
    if own_number != number or chain_of(summed) != chain or zlib.crc32(view[HEAD:]) != check:
        raise DamagedEntryError(f"entry {number} of the ledger is damaged, or entry {own_number}")
    return Entry(number, summed[12:], chain, list(changes_of(view)))


def changes_of(view: memoryview) -> Iterator[Change]:
    """Yield the changes of an entry that is whole."""
    table = []
    at = HEAD
    while view[at] != END:
        kind, length = struct.unpack_from(">BH", view, at)
        path = str(view[at + 3 : at + 3 + length], "utf-8")
        at += 3 + length
        table.append((kind, path, *struct.unpack_from(">QQ", view, at)))
        at += 16
    at += 1
    for kind, path, place, size in table:
        yield Change(kind, path, place, [view[at : at + size]] if kind == WRITE else [])
        at += size
