# SPDX-License-Identifier: Apache-2.0
"""Automatic offset tracking: the positions of stream readers, by consumer tag.

A reader requests tracking with ``x-stream-automatic-offset-tracking``. Its next subscription starts
after the last acknowledged record, unless it sets an offset. Positions are stored at the end of a
turn, one fact for each reader. After a crash the last acknowledged records may be delivered again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.model.errors import ResourceError

if TYPE_CHECKING:
    from headrace.model.keyvalue import Facts
    from headrace.model.queue.destination import Consumer

ARGUMENT = "x-stream-automatic-offset-tracking"
GENERATED = "amq.ctag-"  # Prefix of generated tags, which are never the same again.
READERS_MAX = 1000  # Tags of one stream: the stored ones, and those of present readers.
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
        self._readers: Counter[bytes] = Counter()  # The number of present readers of each tag.
        self._pending: dict[Consumer, int] = {}  # Offsets that are not stored yet.

    def find_start(self, consumer: Consumer) -> int:
        """Return the offset at which a reader starts, -1 for a new tag.

        Raises:
            ResourceError: there are too many tags, or facts.
        """
        key = self._key(consumer)
        stored = self._facts.get(key)
        if stored is not None:
            return int.from_bytes(stored, "big")
        if key not in self._readers:
            # Each present reader may store its tag with its first ack.
            tags = {stored_key for stored_key, _ in self._facts.items(self._prefix)}
            if len(tags | self._readers.keys()) >= READERS_MAX:
                raise ResourceError(f"a stream may store the offsets of at most {READERS_MAX} tags")
        self._facts.check(key, bytes(_OFFSET_SIZE))
        return -1

    def begin(self, consumer: Consumer) -> None:
        """Track a reader that :meth:`find_start` accepted, until :meth:`end`."""
        key = self._key(consumer)
        self._keys[consumer] = key
        self._readers[key] += 1

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
        key = self._keys.pop(consumer, None)
        if key is not None:
            self._readers[key] -= 1
            if not self._readers[key]:
                del self._readers[key]

    def _key(self, consumer: Consumer) -> bytes:
        """Return the key of a reader's fact."""
        return self._prefix + hashlib.blake2b(consumer.tag.encode(), digest_size=16).digest()


def forget_readers(facts: Facts, stream_id: bytes) -> None:
    """Remove the facts of a deleted stream."""
    for key, _ in facts.items(_PREFIX + stream_id + b"/"):
        facts.put(key, None)
