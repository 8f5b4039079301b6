# SPDX-License-Identifier: Apache-2.0
"""Publishers that number their messages, so that what is sent twice is taken once.

A publisher has a name, of the virtual host, and gives each message an id that is higher than the
one before. The highest id that was taken is a fact (:mod:`headrace.model.keyvalue`), which changes
in the same transaction of the store as the message: whatever is cut off, both are there or neither.
What has that id or a lower one was taken before, and is dropped.

A message that was refused (a queue or the disk is full, nobody can have it) may come again under
its id, also when higher ones were taken meanwhile: such ids are kept beside the highest one. So a
publisher that lost its connection sends everything again whose outcome it does not know.

A message that no crash survives changes no fact: its id is remembered as long as the process lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import PreconditionFailed, ResourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.counters import Counters
    from headrace.model.keyvalue import Facts

PREFIX = b"publisher/"
NAME_MAX = 255  # Octets of a publisher's name.
ID_MAX = (1 << 63) - 1
PUBLISHERS_MAX = 10_000  # Of one virtual host. Beyond it the longest idle one is forgotten,
IDLE_MS = 7 * 86400 * 1000  # if it was idle so long; else the new one is refused.
REFUSED_MAX = 256  # Ranges of refused ids that are kept of a publisher; the lowest are forgotten.

Number = tuple[bytes, int]  # The name of a publisher, and an id.


class PublisherState:
    """What is known of one publisher."""

    def __init__(self, value: bytes | None) -> None:
        """``value`` is what :meth:`encode` gave."""
        self.last = -1  # The highest id that was taken.
        self.used_ms = 0
        self.refused: list[tuple[int, int]] = []  # Ranges of ids, in order, both ends inclusive.
        if value is not None:
            self.last = int.from_bytes(value[:8], "big")
            self.used_ms = int.from_bytes(value[8:16], "big")
            for at in range(16, len(value), 16):
                low = int.from_bytes(value[at : at + 8], "big")
                self.refused.append((low, int.from_bytes(value[at + 8 : at + 16], "big")))

    def encode(self) -> bytes:
        """Return it as the value of a fact: of the refused ids, those below the highest taken."""
        value = self.last.to_bytes(8, "big") + self.used_ms.to_bytes(8, "big")
        for low, high in self.refused:
            if low < self.last:
                value += low.to_bytes(8, "big") + min(high, self.last - 1).to_bytes(8, "big")
        return value

    def knows(self, number_id: int) -> bool:
        """Tell whether an id was taken before."""
        if number_id > self.last:
            return False
        return not any(low <= number_id <= high for low, high in self.refused)

    def take(self, number_id: int) -> None:
        """An id is taken now."""
        self.last = max(self.last, number_id)
        if self.refused:
            kept = []
            for low, high in self.refused:
                if low <= number_id <= high:
                    kept += [
                        r for r in ((low, number_id - 1), (number_id + 1, high)) if r[0] <= r[1]
                    ]
                else:
                    kept.append((low, high))
            self.refused = kept[-REFUSED_MAX:]

    def refuse(self, number_id: int) -> None:
        """A message with this id was refused."""
        refused = self.refused
        if any(low <= number_id <= high for low, high in refused):
            return
        if refused and refused[-1][1] + 1 == number_id:
            refused[-1] = (refused[-1][0], number_id)
            return
        refused.append((number_id, number_id))
        refused.sort()
        del refused[:-REFUSED_MAX]


class PublishingIds:
    """The publishers of one virtual host that number their messages."""

    def __init__(self, facts: Facts, counters: Counters) -> None:
        self._facts = facts
        self._counters = counters
        self._states: dict[bytes, PublisherState] | None = None  # Read when first needed.

    def last(self, name: bytes) -> int:
        """Return the highest id that was taken from a publisher; -1 when none was."""
        state = self._all().get(name)
        return -1 if state is None else state.last

    def knows(self, number: Number) -> bool:
        """Tell whether a message was taken before."""
        state = self._all().get(number[0])
        return state is not None and state.knows(number[1])

    def check(self, name: bytes) -> None:
        """Make sure that there is room for a publisher.

        Raises:
            ResourceError: there are too many of them.
        """
        states = self._all()
        if name in states or len(states) < PUBLISHERS_MAX:
            return
        idle = min(states, key=lambda each: states[each].used_ms)
        if states[idle].used_ms > self._counters.now_ms - IDLE_MS:
            raise ResourceError(
                f"a virtual host knows {PUBLISHERS_MAX} publishers with publishing ids at most"
            )
        self.forget(idle)

    def note(self, number: Number, lasting: bool) -> None:
        """A message was taken; inside the store's transaction with it when it is ``lasting``."""
        state = self._state(number[0])
        state.take(number[1])
        state.used_ms = self._counters.now_ms
        if lasting:
            self._facts.change(PREFIX + number[0], state.encode())

    def refuse(self, number: Number) -> None:
        """A message was not taken, and its publisher is told so: it may come again."""
        states = self._all()
        if number[0] in states or len(states) < PUBLISHERS_MAX:
            self._state(number[0]).refuse(number[1])

    def forget(self, name: bytes) -> bool:
        """Forget a publisher; False when there is none of that name."""
        if self._all().pop(name, None) is None:
            return False
        self._facts.change(PREFIX + name, None)
        return True

    def items(self) -> Iterator[tuple[bytes, int, int]]:
        """Give name, highest id and time of last use (ms) of each, in order of their names."""
        states = self._all()
        for name in sorted(states):
            yield name, states[name].last, states[name].used_ms

    def _state(self, name: bytes) -> PublisherState:
        states = self._all()
        state = states.get(name)
        if state is None:
            state = states[name] = PublisherState(None)
            state.used_ms = self._counters.now_ms
        return state

    def _all(self) -> dict[bytes, PublisherState]:
        if self._states is None:
            at = len(PREFIX)
            self._states = {
                key[at:]: PublisherState(value) for key, value in self._facts.items(PREFIX)
            }
        return self._states


def number_of(name: object, number_id: object) -> Number:
    """Return the number that the headers x-publisher-name and x-publishing-id give.

    Raises:
        PreconditionFailed: they make no sense.
    """
    if isinstance(name, str):
        name = name.encode()
    if not isinstance(name, bytes) or not 0 < len(name) <= NAME_MAX:
        raise PreconditionFailed(
            f"invalid message: x-publishing-id needs an x-publisher-name of 1 to {NAME_MAX} octets"
        )
    if not isinstance(number_id, int) or isinstance(number_id, bool):
        raise PreconditionFailed("invalid message: x-publishing-id is not a whole number")
    if not 0 <= number_id <= ID_MAX:
        raise PreconditionFailed(f"invalid message: x-publishing-id {number_id} is out of range")
    return name, int(number_id)
