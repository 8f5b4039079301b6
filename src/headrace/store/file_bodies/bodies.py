# SPDX-License-Identifier: Apache-2.0
"""A body of a file message: while it comes, when it is whole, and while it is read.

The names of its files tell all that has to be known after a restart:

    <owner and identifier, hashed>-<size>-<durable>.part    a part of a body
    <number>-<size>.body                                    a whole one that messages refer to
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.store.disk import Disk


class Holder(Protocol):
    """A channel or session that stages a body."""

    def staging_failed(self, part: Part, error: OSError) -> None:
        """Called when the disk fails to take the body."""


class Part:
    """A body that is being staged, or was and can be continued."""

    def __init__(self, key: str, size: int, now_ms: int) -> None:
        self.key = key
        self.size = size  # Octets of the whole body.
        self.got = 0  # Octets that came.
        self.handed = 0  # Octets handed to the thread.
        self.kept = 0  # Octets known to be durable; what the name says.
        self.pieces: list[bytes] = []
        self.handle = -1
        self.header = b""  # Payload of the content header, with the size of the whole body.
        self.version: object = None  # Of AMQP, in which the header is written.
        self.holder: Holder | None = None  # Who stages it now.
        self.touched_ms = now_ms
        self.error: OSError | None = None
        self.gone = False  # Discarded, or a body now.
        self.waiters: list[Callable[[], None]] = []  # Publishes that came before its end.

    @property
    def whole(self) -> bool:
        """Tell whether all of it is there."""
        return self.got == self.size and self.error is None

    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.key}-{self.size}-{self.kept}.part"


class Body:
    """A whole body."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.count = 0  # Messages that refer to it.
        self.settled_at = -1  # How far the store must be durable before it may go; -1: ask it.

    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.number:016x}-{self.size}.body"


class Reader:
    """An open body, which outlives the removal of its file."""

    def __init__(self, disk: Disk, path: str, size: int) -> None:
        self.disk = disk
        self.size = size
        self.handle = disk.open(path)

    def read(self, at: int, size: int) -> bytes:
        """Return octets of the body.

        Raises:
            OSError: they are not there.
        """
        data = self.disk.read(self.handle, size, at)
        if len(data) < size:
            raise OSError(f"a body ends at octet {at + len(data)} of {self.size}")
        return data

    def close(self) -> None:
        """Let go of the file."""
        if self.handle >= 0:
            self.disk.close(self.handle)
            self.handle = -1


def named(name: str, now_ms: int) -> Part | Body | None:
    """Return what a file of an earlier process holds; None when it is none of ours."""
    stem, _, kind = name.rpartition(".")
    fields = stem.split("-")
    try:
        if kind == "body" and len(fields) == 2:
            return Body(int(fields[0], 16), int(fields[1]))
        if kind == "part" and len(fields) == 3:
            part = Part(fields[0], int(fields[1]), now_ms)
            part.got = part.handed = part.kept = int(fields[2])
            return part
    except ValueError:
        pass
    return None
