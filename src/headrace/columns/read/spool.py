# SPDX-License-Identifier: Apache-2.0
"""A spool: numbered messages in a durable directory, so that any queue can be replayed.

::

    DIRECTORY/spool.json       its identity: "v" (1), "id", "broker", "queue", "group"
    DIRECTORY/settled          the number below which all records are settled, as text
    DIRECTORY/lock             locked by the driver that appends
    DIRECTORY/<number>.spool   records from that number on, in order

A record is a head of 32 bytes, then header, body, exchange and routing key. The head: length of the
record (4), CRC-32 of the bytes after these 8 (4), number (8), sizes of header (4) and body (4), of
exchange (1) and routing key (1), flags (1: redelivered), five zeros. All numbers are in network
order. A torn record at the end is cut off after a crash; damage in the middle is an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from headrace.client.stream.blocks import Block
from headrace.columns.runtime import atomic_files

SEGMENT_OCTETS: Final = 16 << 20
READ_RECORDS: Final = 1000  # Records of one batch.
_HEAD: Final = Struct(">IIQIIBBB5x")
_CHECKED: Final = 8  # The CRC covers the bytes from here on.
_SUFFIX: Final = ".spool"

# Number, content header, body, exchange, routing key, whether it was redelivered.
Record = tuple[int, bytes, bytes, bytes, bytes, bool]


class SpoolError(RuntimeError):
    """A spool is missing, damaged, or another query's."""


class Entry(NamedTuple):
    """The place of a record in the spool."""

    number: int
    octets: int
    digest: bytes  # The hash of header, body and address, which identifies a redelivery.


class Spool:
    """The spool of one reader of one queue, as its driver appends to it."""

    def __init__(self, directory: str, what: dict[str, str]) -> None:
        """Open it, or make it; `what` (broker, queue, group) must be the same as when it was made.

        SpoolError when it is damaged, locked by another process, or of another queue.
        """
        self.path = Path(directory)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SpoolError(f"spool {directory!r} is in use by another query") from None
        self.id = self._identify(what)
        self.settled = settled_of(self.path)
        self.next = self.settled
        self.entries: list[Entry] = []  # The unsettled records.
        self._file = -1
        self._size = 0
        self._recover()

    @property
    def octets(self) -> int:
        """Octets of what is not settled."""
        return sum(entry.octets for entry in self.entries)

    def append(
        self, header: bytes, body: bytes, exchange: bytes, routing_key: bytes, *, redelivered: bool
    ) -> int:
        """Append a message, return its number; it counts after :meth:`sync`."""
        number = self.next
        if self._file < 0 or self._size >= SEGMENT_OCTETS:
            self._begin(number)
        length = _HEAD.size + len(header) + len(body) + len(exchange) + len(routing_key)
        flags = 1 if redelivered else 0
        rest = b"".join((header, body, exchange, routing_key))
        head = _HEAD.pack(
            length, 0, number, len(header), len(body), len(exchange), len(routing_key), flags
        )
        check = zlib.crc32(rest, zlib.crc32(head[_CHECKED:]))
        data = head[:4] + check.to_bytes(4, "big") + head[_CHECKED:] + rest
        at = 0
        while at < len(data):
            at += os.write(self._file, data[at:])
        self._size += length
        self.entries.append(Entry(number, length, digest(header, body, exchange, routing_key)))
        self.next = number + 1
        return number

    def sync(self) -> None:
        """Make what was appended durable."""
        if self._file >= 0:
            os.fsync(self._file)

    def settle(self, upto: int) -> None:
        """Be done with all numbers below `upto`, durably; files of nothing else go."""
        if upto <= self.settled:
            return
        upto = min(upto, self.next)
        atomic_files.write_whole(self.path / "settled", str(upto).encode())
        self.settled = upto
        self.entries = [entry for entry in self.entries if entry.number >= upto]
        files = segments(self.path)
        for (_, path), (following, _) in pairwise(files):
            if following <= upto:
                path.unlink()

    def close(self) -> None:
        """Release the spool for another process."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        os.close(self._lock)

    def _identify(self, what: dict[str, str]) -> int:
        path = self.path / "spool.json"
        if not path.exists():
            if segments(self.path):
                raise SpoolError(f"{self.path} holds a spool without its spool.json")
            made = {"v": 1, "id": secrets.randbits(53), **what}
            atomic_files.write_whole(path, json.dumps(made).encode())
        stored = json.loads(path.read_text())
        for name, value in what.items():
            if stored.get(name) != value:
                raise SpoolError(
                    f"{self.path} is the spool of {name} {stored.get(name)!r}, not of {value!r}"
                )
        return int(stored["id"])

    def _recover(self) -> None:
        files = segments(self.path)
        for first, path in files:
            end = 0
            for record, octets in scan(path):
                number, header, body, exchange, routing_key, _ = record
                end += octets
                self.next = number + 1
                if number >= self.settled:
                    record_digest = digest(header, body, exchange, routing_key)
                    self.entries.append(Entry(number, octets, record_digest))
            if end < path.stat().st_size:
                if path != files[-1][1]:
                    raise SpoolError(f"{path} is damaged at octet {end}")
                os.truncate(path, end)
            self.next = max(self.next, first)
        numbers = list(range(self.settled, self.next))
        if [entry.number for entry in self.entries] != numbers:
            raise SpoolError(f"{self.path} has lost records from {self.settled} on")

    def _begin(self, number: int) -> None:
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
        path = self.path / f"{number:020d}{_SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._size = 0
        atomic_files.sync_folder(self.path)


def read(directory: str, first: int, last: int) -> Iterator[list[Record]]:
    """The records of [first, last), in batches; in whatever process can see the directory.

    SpoolError when some of them are not there.
    """
    path = Path(directory)
    files = segments(path)
    batch: list[Record] = []
    at = first
    for k, (_, segment) in enumerate(files):
        if k + 1 < len(files) and files[k + 1][0] <= first:
            continue
        for record, _ in scan(segment):
            if at <= record[0] < last:
                if record[0] != at:
                    break
                batch.append(record)
                at += 1
                if len(batch) == READ_RECORDS:
                    yield batch
                    batch = []
        if at >= last:
            break
    if batch:
        yield batch
    if at < last:
        raise SpoolError(
            f"spool {directory!r} has no record {at}: the option 'spoolDirectory' must name a "
            "directory that the driver and all executors share, and its content belongs to the "
            "checkpoint"
        )


def blocks(directory: str, first: int, last: int) -> Iterator[Block]:
    """As :func:`read`, as the client gives records of streams."""
    block = Block()
    for batch in read(directory, first, last):
        for record in batch:
            block.add(*record)
            if block.is_full():
                yield block
                block = Block()
    if block.count:
        yield block


def scan(path: Path) -> Iterator[tuple[Record, int]]:
    """Yield the intact records at the start of a file, each with its bytes."""
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, check, number, header, body, where, key, flags = _HEAD.unpack(head)
            if length != _HEAD.size + header + body + where + key:
                return
            rest = file.read(length - _HEAD.size)
            if len(rest) < length - _HEAD.size:
                return
            if zlib.crc32(rest, zlib.crc32(head[_CHECKED:])) != check:
                return
            at = header + body
            exchange, routing_key = rest[at : at + where], rest[at + where :]
            record = number, rest[:header], rest[header:at], exchange, routing_key, flags == 1
            yield record, length


def segments(path: Path) -> list[tuple[int, Path]]:
    """Return the files of a spool in order, each with its first number."""
    files = []
    for each in path.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(ValueError):
            files.append((int(each.name.removesuffix(_SUFFIX)), each))
    return sorted(files)


def settled_of(path: Path) -> int:
    """Return the number below which all records are settled."""
    try:
        return int((path / "settled").read_text())
    except FileNotFoundError:
        return 0


def digest(header: bytes, body: bytes, exchange: bytes, routing_key: bytes) -> bytes:
    """Return the identity by which a redelivered message is known."""
    made = hashlib.blake2b(header, digest_size=16)
    for part in (body, exchange, b"\0", routing_key):
        made.update(part)
    return made.digest()
