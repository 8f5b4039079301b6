# SPDX-License-Identifier: Apache-2.0
"""The body of a file message: a staged part, a complete body, and reading it.

A restart needs only the names of the files:

    <owner and identifier, hashed>-<size>-<durable>.part    a staged part
    <number>-<size>.body                                    a complete body
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.store.disk import Disk


class BodyHolder(Protocol):
    """A channel or session that stages a body."""

    def on_staging_failed(self, part: StagedPart, error: OSError) -> None:
        """Handle a failed write of the body."""


class StagedPart:
    """A body that is being staged, or whose staging can continue after a disconnect."""

    def __init__(self, key: str, size: int, now_ms: int) -> None:
        self.key = key
        self.size = size  # Bytes of the whole body.
        self.received = 0  # Bytes received.
        self.submitted_size = 0  # Bytes passed to the writer's thread.
        self.durable_size = 0  # Durable bytes, as in the file's name.
        self.chunks: list[bytes] = []
        self.handle = -1
        self.header = b""  # Payload of the content header, with the size of the whole body.
        self.version: object = None  # The AMQP version of the header.
        self.holder: BodyHolder | None = None  # The sender's channel; None after a disconnect.
        self.touched_ms = now_ms
        self.error: OSError | None = None
        self.is_ended = False  # Discarded, or sealed.
        self.waiters: list[Callable[[], None]] = []  # Publishes that wait for its end.

    @property
    def is_whole(self) -> bool:
        """True if the whole body was received."""
        return self.received == self.size and self.error is None

    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.key}-{self.size}-{self.durable_size}.part"


class Body:
    """A body that was received completely and is durable; messages refer to it by number."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.count = 0  # Messages that refer to it.
        self.settled_position = (
            -1
        )  # Log position that must be durable before it is removed; -1: not set.

    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.number:016x}-{self.size}.body"


class BodyReader:
    """An open body, which can be read even if its file is removed."""

    def __init__(self, disk: Disk, path: str, size: int) -> None:
        self.disk = disk
        self.size = size
        self.handle = disk.open(path)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the body.

        Raises:
            OSError: the file cannot be read.
        """
        data = self.disk.read(self.handle, size, offset)
        if len(data) < size:
            raise OSError(f"a body ends at byte {offset + len(data)} of {self.size}")
        return data

    def close(self) -> None:
        """Close the file."""
        if self.handle >= 0:
            self.disk.close(self.handle)
            self.handle = -1


def parse_name(name: str, now_ms: int) -> StagedPart | Body | None:
    """Return the body or part of a file from an earlier process; None for other files."""
    stem, _, kind = name.rpartition(".")
    fields = stem.split("-")
    try:
        if kind == "body" and len(fields) == 2:
            return Body(int(fields[0], 16), int(fields[1]))
        if kind == "part" and len(fields) == 3:
            part = StagedPart(fields[0], int(fields[1]), now_ms)
            part.received = part.submitted_size = part.durable_size = int(fields[2])
            return part
    except ValueError:
        pass
    return None
