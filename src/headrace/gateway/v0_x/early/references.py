# SPDX-License-Identifier: Apache-2.0
"""References of the 0-9 message class, for bodies in several methods, and their checkpoints.

A reference belongs to the channel that opened it, and ends with it. A checkpoint outlives both:
after a lost connection the same user resumes from it, on any channel of the same virtual host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.model.counters import Counters
    from headrace.protocol.codec_0_x import MessageTransfer

REFERENCES_MAX = 256  # The maximum open references of one channel.
CHECKPOINTS_MAX = 1024  # The maximum checkpoints of one broker.
CHECKPOINT_BYTES_MAX = 64 << 20  # The bytes of all checkpoints; further bytes are not kept.
CHECKPOINT_KEEP_MS = 600_000  # The time for which a checkpoint is kept.
PART_MIN = 65536  # Bytes; smaller chunks are joined.
NAME_MAX = 4096  # Bytes of the name of a reference.

Key = tuple[str, str, str]  # Virtual host, user, identifier.


class Reference:
    """An unfinished body, and the transfers that wait for it."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.size = 0  # Bytes.
        self._parts: list[bytes] = []
        self._small = bytearray()  # Small chunks, until they are as large as a part.
        self.transfers: list[MessageTransfer] = []
        self.checkpoint: Key | None = None  # Removed when the reference is closed.

    def append(self, data: bytes) -> None:
        """Append to the body."""
        self.size += len(data)
        self._small += data
        if len(self._small) >= PART_MIN:
            self._parts.append(bytes(self._small))
            self._small.clear()

    def body(self) -> list[bytes]:
        """Return the body in parts."""
        return [*self._parts, bytes(self._small)] if self._small else list(self._parts)


class References:
    """The references that are open on one channel."""

    def __init__(self, counters: Counters, bytes_max: int) -> None:
        """``bytes_max`` is the maximum size of all bodies together."""
        self._open: dict[bytes, Reference] = {}
        self._counters = counters
        self._bytes_max = bytes_max
        self._bytes = 0

    # Keeps 0-9/message.open.reference#01, 0-9/message.resume.reference#01.
    def open(self, name: bytes) -> Reference:
        """Open a reference (0-9/message.open.reference#01).

        Raises:
            AmqpError: the reference is open already, or the channel has too many.
        """
        if name in self._open:
            raise AmqpError(ReplyCode.NOT_ALLOWED, f"reference {printable(name)} is open already")
        if len(self._open) >= REFERENCES_MAX or len(name) > NAME_MAX:
            raise AmqpError(ReplyCode.RESOURCE_ERROR, f"more than {REFERENCES_MAX} references")
        reference = self._open[name] = Reference(name)
        return reference

    # Keeps 0-9/message.append.reference#01, 0-9/message.close.reference#01,
    # 0-9/message.checkpoint.reference#01.
    def find(self, name: bytes) -> Reference:
        """Return an open reference (0-9/message.append.reference#01).

        Raises:
            AmqpError: the reference is not open.
        """
        reference = self._open.get(name)
        if reference is None:
            raise AmqpError(ReplyCode.NOT_ALLOWED, f"reference {printable(name)} is not open")
        return reference

    def append(self, reference: Reference, data: bytes) -> None:
        """Append to the body of a reference.

        Raises:
            AmqpError: the bodies of the channel's references exceed the maximum size.
        """
        if self._bytes + len(data) > self._bytes_max:
            raise AmqpError(
                ReplyCode.CONTENT_TOO_LARGE,
                f"referenced bodies exceed the {self._bytes_max} bytes that are allowed",
            )
        self._bytes += len(data)
        self._counters.memory_used += len(data)
        reference.append(data)

    def close(self, name: bytes) -> Reference:
        """Close a reference and return it (0-9/message.close.reference#01).

        Raises:
            AmqpError: the reference is not open.
        """
        reference = self.find(name)
        del self._open[name]
        self._bytes -= reference.size
        self._counters.memory_used -= reference.size
        return reference

    def end(self) -> None:
        """Close all references: the channel has ended."""
        for name in list(self._open):
            self.close(name)


class Checkpoints:
    """The checkpoints of references: incomplete bodies."""

    def __init__(self) -> None:
        self._checkpoints: dict[
            Key, tuple[int, list[bytes], int]
        ] = {}  # Deadline in ms, parts, bytes.
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self._checkpoints)

    def add(self, key: Key, reference: Reference, now_ms: int) -> None:
        """Store the present body of a reference, as far as there is room, under a key."""
        self.remove(key)
        self.expire(now_ms)
        if len(self._checkpoints) >= CHECKPOINTS_MAX:
            return
        parts: list[bytes] = []
        size = 0
        room = CHECKPOINT_BYTES_MAX - self.total_bytes
        for part in reference.body():
            chunk = part[: room - size]
            parts.append(chunk)
            size += len(chunk)
            if size == room:
                break
        self._checkpoints[key] = (now_ms + CHECKPOINT_KEEP_MS, parts, size)
        self.total_bytes += size

    def resume(self, key: Key, now_ms: int) -> list[bytes]:
        """Return the parts of a checkpoint; empty if it is unknown or has expired."""
        self.expire(now_ms)
        checkpoint = self._checkpoints.get(key)
        return [] if checkpoint is None else checkpoint[1]

    def remove(self, key: Key) -> None:
        """Remove a checkpoint."""
        checkpoint = self._checkpoints.pop(key, None)
        if checkpoint is not None:
            self.total_bytes -= checkpoint[2]

    def expire(self, now_ms: int) -> int:
        """Drop expired checkpoints; return when the next one expires, 0 for never."""
        for key in [key for key, (until, _, _) in self._checkpoints.items() if until <= now_ms]:
            self.remove(key)
        return min((until for until, _, _ in self._checkpoints.values()), default=0)


def printable(name: bytes) -> str:
    """Return the name of a reference for an error text."""
    return repr(name[:64].decode("utf-8", "backslashreplace"))
