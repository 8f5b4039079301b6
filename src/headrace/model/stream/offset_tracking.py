# SPDX-License-Identifier: Apache-2.0
"""How far the readers of a stream have come, remembered by their tags.

A reader asks for it with ``x-stream-automatic-offset-tracking``. Behind what it acknowledged it
goes on the next time, unless it says where to begin. What is noted is written at the end of a turn,
one fact for each reader, so after a crash what was acknowledged just before may come again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.model.errors import ResourceError

if TYPE_CHECKING:
    from headrace.model.keyvalue import Facts
    from headrace.model.queue.dispatch import Consumer

ARGUMENT = "x-stream-automatic-offset-tracking"
GENERATED = "amq.ctag-"  # Tags that begin so are another one's the next time.
READERS_MAX = 1000  # Of one stream, that are remembered.
_PREFIX = b"stream/read/"
_OFFSET_OCTETS = 8


def is_tracked(consumer: Consumer, arguments: Mapping[str, object]) -> bool:
    """Tell whether a reader is to be remembered."""
    named = bool(consumer.tag) and not consumer.tag.startswith(GENERATED)
    return named and not consumer.no_ack and bool(arguments.get(ARGUMENT))


class Tracking:
    """The readers of one stream."""

    def __init__(self, facts: Facts, stream_id: bytes) -> None:
        self._facts = facts
        self._prefix = _PREFIX + stream_id + b"/"
        self._keys: dict[Consumer, bytes] = {}
        self._noted: dict[Consumer, int] = {}  # What is not written yet.

    def begin(self, consumer: Consumer) -> int:
        """Remember a reader from now on; return where it goes on, -1 when it is new.

        Raises:
            ResourceError: there are too many, or no room for one more fact.
        """
        tag = hashlib.blake2b(consumer.tag.encode(), digest_size=16).digest()
        key = self._prefix + tag
        found = self._facts.get(key)
        if found is None:
            if sum(1 for _ in self._facts.items(self._prefix)) >= READERS_MAX:
                raise ResourceError(f"a stream remembers {READERS_MAX} readers at most")
            self._facts.check(key, bytes(_OFFSET_OCTETS))
        self._keys[consumer] = key
        return -1 if found is None else int.from_bytes(found, "big")

    def note(self, consumer: Consumer, offset: int) -> bool:
        """A reader has acknowledged this offset; False when it is not remembered."""
        if consumer not in self._keys:
            return False
        self._noted[consumer] = max(offset + 1, self._noted.get(consumer, 0))
        return True

    def write(self) -> None:
        """Write how far readers have come; where there is no room any more nothing changes."""
        while self._noted:
            consumer, offset = self._noted.popitem()
            key = self._keys[consumer]
            if int.from_bytes(self._facts.get(key) or b"", "big") < offset:
                with contextlib.suppress(ResourceError):
                    self._facts.put(key, offset.to_bytes(_OFFSET_OCTETS, "big"))

    def end(self, consumer: Consumer) -> None:
        """A reader is gone."""
        self.write()
        self._keys.pop(consumer, None)


def forget_readers(facts: Facts, stream_id: bytes) -> None:
    """A stream is deleted: forget who read it."""
    for key, _ in facts.items(_PREFIX + stream_id + b"/"):
        facts.put(key, None)
