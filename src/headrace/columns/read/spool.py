# SPDX-License-Identifier: Apache-2.0
"""A spool: messages of a queue, numbered, in a durable directory from which batches are replayed.

::

    DIRECTORY/spool.json       the identity: "v" (1), "id", "broker", "queue", "group"
    DIRECTORY/settled          the first number that is not settled, as text
    DIRECTORY/lock             locked by the driver that appends
    DIRECTORY/<number>.spool   records from that number on, in order

A record is a head of 32 bytes, then header, body, exchange and routing key. The head, with sizes in
bytes, is the length of the record (4), the CRC-32 of all bytes after it (4), the number (8), the
sizes of header (4), body (4), exchange (1) and routing key (1), flags (1; bit 0 is `redelivered`),
and five zeros. All numbers are in network order. After a crash a torn record at the end of the last
file is cut off. Damage anywhere else is an error.
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

SEGMENT_BYTES: Final = 16 << 20  # A larger file is followed by a new one.
BATCH_RECORDS: Final = 1000  # Records of one batch of `read_records`.
_HEAD: Final = Struct(">IIQIIBBB5x")
_CRC_START: Final = 8  # The CRC covers the bytes of a record from this one on.
_SUFFIX: Final = ".spool"

# The number, content header, body, exchange, routing key, and redelivered flag of a message.
SpoolRecord = tuple[int, bytes, bytes, bytes, bytes, bool]


class SpoolError(RuntimeError):
    """A spool is missing or damaged, or belongs to another query."""


class SpoolEntry(NamedTuple):
    """An unsettled record of a spool: its number, its size in bytes, and its digest."""

    number: int
    size: int
    digest: bytes  # The hash that identifies a redelivery; see the function `digest`.


class Spool:
    """The spool of one queue and one group, opened by the driver for appending."""

    def __init__(self, directory: str, identity: dict[str, str]) -> None:
        """Open the spool, or create it; `identity` has the keys broker, queue and group.

        Raises:
            SpoolError: the spool is damaged, locked by another process, or has another identity.
        """
        self.path = Path(directory)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SpoolError(f"spool {directory!r} is in use by another query") from None
        self.id = self._check_identity(identity)
        self.settled = read_settled(self.path)
        self.next = self.settled
        self.entries: list[SpoolEntry] = []  # The unsettled records.
        self._file = -1
        self._size = 0
        self._recover()

    @property
    def size(self) -> int:
        """The size of the unsettled records in bytes."""
        return sum(entry.size for entry in self.entries)

    def append(
        self, header: bytes, body: bytes, exchange: bytes, routing_key: bytes, *, redelivered: bool
    ) -> int:
        """Append a message and return its number; the message is durable after :meth:`sync`."""
        number = self.next
        if self._file < 0 or self._size >= SEGMENT_BYTES:
            self._begin_file(number)
        length = _HEAD.size + len(header) + len(body) + len(exchange) + len(routing_key)
        flags = 1 if redelivered else 0
        payload = b"".join((header, body, exchange, routing_key))
        head = _HEAD.pack(
            length, 0, number, len(header), len(body), len(exchange), len(routing_key), flags
        )
        check = zlib.crc32(payload, zlib.crc32(head[_CRC_START:]))
        data = head[:4] + check.to_bytes(4, "big") + head[_CRC_START:] + payload
        position = 0
        while position < len(data):
            position += os.write(self._file, data[position:])
        self._size += length
        self.entries.append(SpoolEntry(number, length, digest(header, body, exchange, routing_key)))
        self.next = number + 1
        return number

    def sync(self) -> None:
        """Make all appended messages durable."""
        if self._file >= 0:
            os.fsync(self._file)

    def settle(self, end: int) -> None:
        """Settle all numbers below `end` durably, and delete files without unsettled records."""
        if end <= self.settled:
            return
        end = min(end, self.next)
        atomic_files.write_whole(self.path / "settled", str(end).encode())
        self.settled = end
        self.entries = [entry for entry in self.entries if entry.number >= end]
        files = list_files(self.path)
        for (_, path), (next_number, _) in pairwise(files):
            if next_number <= end:
                path.unlink()

    def close(self) -> None:
        """Close the files and release the lock, so that another process can open the spool."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        os.close(self._lock)

    def _check_identity(self, identity: dict[str, str]) -> int:
        """Return the id of the spool, which is created if it is missing."""
        path = self.path / "spool.json"
        if not path.exists():
            if list_files(self.path):
                raise SpoolError(f"{self.path} holds a spool without its spool.json")
            metadata = {"v": 1, "id": secrets.randbits(53), **identity}
            atomic_files.write_whole(path, json.dumps(metadata).encode())
        stored = json.loads(path.read_text())
        for name, value in identity.items():
            if stored.get(name) != value:
                raise SpoolError(
                    f"{self.path} is the spool of {name} {stored.get(name)!r}, not of {value!r}"
                )
        return int(stored["id"])

    def _recover(self) -> None:
        """Read the records of all files, and cut off a torn record at the end of the last file."""
        files = list_files(self.path)
        for first, path in files:
            end = 0
            for record, size in scan_file(path):
                number, header, body, exchange, routing_key, _ = record
                end += size
                self.next = number + 1
                if number >= self.settled:
                    record_digest = digest(header, body, exchange, routing_key)
                    self.entries.append(SpoolEntry(number, size, record_digest))
            if end < path.stat().st_size:
                if path != files[-1][1]:
                    raise SpoolError(f"{path} is damaged at byte {end}")
                os.truncate(path, end)
            self.next = max(self.next, first)
        numbers = list(range(self.settled, self.next))
        if [entry.number for entry in self.entries] != numbers:
            raise SpoolError(f"{self.path} has lost records from {self.settled} on")

    def _begin_file(self, number: int) -> None:
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
        path = self.path / f"{number:020d}{_SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._size = 0
        atomic_files.sync_folder(self.path)


def read_records(directory: str, first: int, last: int) -> Iterator[list[SpoolRecord]]:
    """Yield the records [first, last) in batches; this needs no lock.

    Raises:
        SpoolError: a record is missing.
    """
    path = Path(directory)
    files = list_files(path)
    batch: list[SpoolRecord] = []
    position = first
    for index, (_, segment) in enumerate(files):
        if index + 1 < len(files) and files[index + 1][0] <= first:
            continue
        for record, _ in scan_file(segment):
            if position <= record[0] < last:
                if record[0] != position:
                    break
                batch.append(record)
                position += 1
                if len(batch) == BATCH_RECORDS:
                    yield batch
                    batch = []
        if position >= last:
            break
    if batch:
        yield batch
    if position < last:
        raise SpoolError(
            f"spool {directory!r} has no record {position}: the option 'spoolDirectory' must name "
            "a directory that the driver and all executors share, and its content belongs to the "
            "checkpoint"
        )


def read_blocks(directory: str, first: int, last: int) -> Iterator[Block]:
    """Yield the records [first, last) as blocks, like records of streams; see `read_records`."""
    block = Block()
    for batch in read_records(directory, first, last):
        for record in batch:
            block.add(*record)
            if block.is_full():
                yield block
                block = Block()
    if block.count:
        yield block


def scan_file(path: Path) -> Iterator[tuple[SpoolRecord, int]]:
    """Yield the intact records at the start of a file, each with its size in bytes."""
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            (
                length,
                check,
                number,
                header_size,
                body_size,
                exchange_size,
                routing_key_size,
                flags,
            ) = _HEAD.unpack(head)
            if length != _HEAD.size + header_size + body_size + exchange_size + routing_key_size:
                return
            payload = file.read(length - _HEAD.size)
            if len(payload) < length - _HEAD.size:
                return
            if zlib.crc32(payload, zlib.crc32(head[_CRC_START:])) != check:
                return
            body_end = header_size + body_size
            record = (
                number,
                payload[:header_size],
                payload[header_size:body_end],
                payload[body_end : body_end + exchange_size],
                payload[body_end + exchange_size :],
                flags == 1,
            )
            yield record, length


def list_files(directory: Path) -> list[tuple[int, Path]]:
    """Return the files of a spool in order, each with its first number."""
    files = []
    for path in directory.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(ValueError):
            files.append((int(path.name.removesuffix(_SUFFIX)), path))
    return sorted(files)


def read_settled(path: Path) -> int:
    """Return the first number that is not settled; 0 for a new spool."""
    try:
        return int((path / "settled").read_text())
    except FileNotFoundError:
        return 0


def digest(header: bytes, body: bytes, exchange: bytes, routing_key: bytes) -> bytes:
    """Return the hash that a message and its redelivery have in common."""
    message_hash = hashlib.blake2b(header, digest_size=16)
    for part in (body, exchange, b"\0", routing_key):
        message_hash.update(part)
    return message_hash.digest()
