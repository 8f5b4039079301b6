# SPDX-License-Identifier: Apache-2.0
"""Publishing ids: a numbered message that is sent twice is enqueued once.

A publisher has a name in the virtual host and numbers its messages with increasing ids.
The highest accepted id is a fact (:mod:`headrace.model.keyvalue`) that changes in the same store
transaction as the message, so that a crash leaves both or neither. A message with that id or a
lower one is a duplicate and dropped.

The id of a refused message (queue or disk full, no route) stays usable, also when higher ids have
been accepted: refused ids are stored with the highest. After a lost connection a publisher repeats
every message whose outcome it does not know.

The id of a transient message is in memory only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import PreconditionFailed, ResourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.counters import Counters
    from headrace.model.keyvalue import Facts

PREFIX = b"publisher/"
NAME_MAX = 255  # Bytes of a publisher's name.
ID_MAX = (1 << 63) - 1
# The most publishers of one virtual host. A further one replaces the one that was idle longest, and
# is refused if none was idle for ``IDLE_MS``.
PUBLISHERS_MAX = 10_000
IDLE_MS = 7 * 86400 * 1000
REFUSED_MAX = 256  # The most ranges of refused ids of one publisher; the lowest are dropped.

PublishingId = tuple[bytes, int]  # Publisher's name and publishing id.


class PublisherState:
    """The ids of one publisher."""

    def __init__(self, value: bytes | None) -> None:
        """Parse ``value``, a result of :meth:`encode`; None for a new publisher."""
        self.highest = -1  # The highest accepted id.
        self.used_ms = 0
        # Ranges of refused ids in order, both ends inclusive.
        self.refused: list[tuple[int, int]] = []
        if value is not None:
            self.highest = int.from_bytes(value[:8], "big")
            self.used_ms = int.from_bytes(value[8:16], "big")
            for offset in range(16, len(value), 16):
                low = int.from_bytes(value[offset : offset + 8], "big")
                self.refused.append((low, int.from_bytes(value[offset + 8 : offset + 16], "big")))

    def encode(self) -> bytes:
        """Return the value of the fact: the highest accepted id and the refused ones below it."""
        value = self.highest.to_bytes(8, "big") + self.used_ms.to_bytes(8, "big")
        for low, high in self.refused:
            if low < self.highest:
                value += low.to_bytes(8, "big") + min(high, self.highest - 1).to_bytes(8, "big")
        return value

    def has_accepted(self, number: int) -> bool:
        """Return True if an id was accepted before."""
        if number > self.highest:
            return False
        return not any(low <= number <= high for low, high in self.refused)

    def accept(self, number: int) -> None:
        """Record that an id is accepted."""
        self.highest = max(self.highest, number)
        if self.refused:
            remaining = []
            for low, high in self.refused:
                if low <= number <= high:
                    halves = ((low, number - 1), (number + 1, high))
                    remaining += [half for half in halves if half[0] <= half[1]]
                else:
                    remaining.append((low, high))
            self.refused = remaining[-REFUSED_MAX:]

    def refuse(self, number: int) -> None:
        """Record that the message with this id was refused."""
        refused = self.refused
        if any(low <= number <= high for low, high in refused):
            return
        if refused and refused[-1][1] + 1 == number:
            refused[-1] = (refused[-1][0], number)
            return
        refused.append((number, number))
        refused.sort()
        del refused[:-REFUSED_MAX]


class PublishingIds:
    """The publishers of one virtual host that use publishing ids."""

    def __init__(self, facts: Facts, counters: Counters) -> None:
        self._facts = facts
        self._counters = counters
        self._states: dict[bytes, PublisherState] | None = None  # Read on first use.

    def highest(self, name: bytes) -> int:
        """Return the highest accepted id of a publisher; -1 if there is none."""
        state = self._load().get(name)
        return -1 if state is None else state.highest

    def is_duplicate(self, publishing_id: PublishingId) -> bool:
        """Return True if a message is a duplicate."""
        state = self._load().get(publishing_id[0])
        return state is not None and state.has_accepted(publishing_id[1])

    def check(self, name: bytes) -> None:
        """Make room for a new publisher.

        Raises:
            ResourceError: there are too many publishers.
        """
        states = self._load()
        if name in states or len(states) < PUBLISHERS_MAX:
            return
        idle = min(states, key=lambda publisher: states[publisher].used_ms)
        if states[idle].used_ms > self._counters.now_ms - IDLE_MS:
            raise ResourceError(
                f"a virtual host may have at most {PUBLISHERS_MAX} publishers with publishing ids"
            )
        self.remove(idle)

    def record(self, publishing_id: PublishingId, persistent: bool) -> None:
        """Record an accepted message; if ``persistent``, inside its store transaction."""
        state = self._state(publishing_id[0])
        state.accept(publishing_id[1])
        state.used_ms = self._counters.now_ms
        if persistent:
            self._facts.change(PREFIX + publishing_id[0], state.encode())

    def refuse(self, publishing_id: PublishingId) -> None:
        """Record a refused message, which its publisher may repeat.

        A duplicate of an accepted message, which has no route this time, stays a duplicate.
        """
        if self.is_duplicate(publishing_id):
            return
        states = self._load()
        if publishing_id[0] in states or len(states) < PUBLISHERS_MAX:
            self._state(publishing_id[0]).refuse(publishing_id[1])

    def remove(self, name: bytes) -> bool:
        """Remove a publisher; return False if there is none of that name."""
        if self._load().pop(name, None) is None:
            return False
        self._facts.change(PREFIX + name, None)
        return True

    def items(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield name, highest id and time of last use (ms) of each publisher, sorted by name."""
        states = self._load()
        for name in sorted(states):
            yield name, states[name].highest, states[name].used_ms

    def _state(self, name: bytes) -> PublisherState:
        states = self._load()
        state = states.get(name)
        if state is None:
            state = states[name] = PublisherState(None)
            state.used_ms = self._counters.now_ms
        return state

    def _load(self) -> dict[bytes, PublisherState]:
        if self._states is None:
            start = len(PREFIX)
            self._states = {
                key[start:]: PublisherState(value) for key, value in self._facts.items(PREFIX)
            }
        return self._states


def parse_publishing_id(name: object, number: object) -> PublishingId:
    """Return the publishing id in the headers x-publisher-name and x-publishing-id.

    Raises:
        PreconditionFailed: a header is missing or malformed.
    """
    if isinstance(name, str):
        name = name.encode()
    if not isinstance(name, bytes) or not 0 < len(name) <= NAME_MAX:
        raise PreconditionFailed(
            f"invalid message: x-publishing-id needs an x-publisher-name of 1 to {NAME_MAX} bytes"
        )
    if not isinstance(number, int) or isinstance(number, bool):
        raise PreconditionFailed("invalid message: x-publishing-id is not a whole number")
    if not 0 <= number <= ID_MAX:
        raise PreconditionFailed(f"invalid message: x-publishing-id {number} is out of range")
    return name, int(number)
