# SPDX-License-Identifier: Apache-2.0
"""Automatic offset tracking: the positions of stream readers, by consumer tag.

A reader requests tracking with ``x-stream-automatic-offset-tracking``. Its next subscription starts
after the last acknowledged record, unless it sets an offset. Positions are stored at the end of a
turn, one fact for each reader. After a crash the last acknowledged records may be delivered again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.model.errors import ResourceError

if TYPE_CHECKING:
    from headrace.model.keyvalue import Facts
    from headrace.model.queue.destination import Consumer

ARGUMENT = "x-stream-automatic-offset-tracking"
GENERATED = "amq.ctag-"  # Prefix of generated tags, which are never the same again.
READERS_MAX = 1000  # Tracked readers of one stream.
_PREFIX = b"stream/read/"
_OFFSET_SIZE = 8


def is_tracked(consumer: Consumer, arguments: Mapping[str, object]) -> bool:
    """Return True if a reader requests tracking."""
    named = bool(consumer.tag) and not consumer.tag.startswith(GENERATED)
    return named and not consumer.no_ack and bool(arguments.get(ARGUMENT))


class OffsetTracking:
    """The tracked readers of one stream."""

    def __init__(self, facts: Facts, stream_id: bytes) -> None:
        self._facts = facts
        self._prefix = _PREFIX + stream_id + b"/"
        self._keys: dict[Consumer, bytes] = {}
        self._pending: dict[Consumer, int] = {}  # Offsets that are not stored yet.

    def begin(self, consumer: Consumer) -> int:
        """Track a reader; return the offset to start at, -1 for a new one.

        Raises:
            ResourceError: there are too many readers, or facts.
        """
        tag = hashlib.blake2b(consumer.tag.encode(), digest_size=16).digest()
        key = self._prefix + tag
        stored = self._facts.get(key)
        if stored is None:
            if sum(1 for _ in self._facts.items(self._prefix)) >= READERS_MAX:
                raise ResourceError(f"a stream remembers {READERS_MAX} readers at most")
            self._facts.check(key, bytes(_OFFSET_SIZE))
        self._keys[consumer] = key
        return -1 if stored is None else int.from_bytes(stored, "big")

    def record(self, consumer: Consumer, offset: int) -> bool:
        """Record an acknowledged offset; return False if the reader is not tracked."""
        if consumer not in self._keys:
            return False
        self._pending[consumer] = max(offset + 1, self._pending.get(consumer, 0))
        return True

    def write(self) -> None:
        """Store the pending offsets; without room for facts nothing changes."""
        while self._pending:
            consumer, offset = self._pending.popitem()
            key = self._keys[consumer]
            if int.from_bytes(self._facts.get(key) or b"", "big") < offset:
                with contextlib.suppress(ResourceError):
                    self._facts.put(key, offset.to_bytes(_OFFSET_SIZE, "big"))

    def end(self, consumer: Consumer) -> None:
        """Store the offset of a reader that ends."""
        self.write()
        self._keys.pop(consumer, None)


def forget_readers(facts: Facts, stream_id: bytes) -> None:
    """Remove the facts of a deleted stream."""
    for key, _ in facts.items(_PREFIX + stream_id + b"/"):
        facts.put(key, None)
