# SPDX-License-Identifier: Apache-2.0
"""Messages in a queue that are not ready before a time.

The messages are in a heap by time, then by position: adding or removing one of n messages takes
O(log n). The queue counts their memory and pages them out. A waiting message is neither ready nor
unacked, and no limit counts it.
"""

from __future__ import annotations

import math
from datetime import datetime
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from headrace.model.arguments.values import read_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.message import Message

READY_MS_MAX = 1 << 52  # In the year 144,683; a later time is replaced by this one.


def parse_time_ms(value: object) -> int:
    """Return the time in a header in milliseconds since 1970; 0 if the value is not a time.

    It may be a number, its text, or a timestamp, since numbers of 0-8 and 0-9 have 32 bits.
    """
    value = read_number(value)
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return int(value)


class TimedMessages:
    """Messages by the time at which they become ready, in milliseconds of the wall clock."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Message]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ms(self) -> int:
        """The time at which the first message becomes ready; 0 if there is none."""
        return self._heap[0][0] if self._heap else 0

    def add(self, ready_ms: int, message: Message) -> None:
        """Add a message that becomes ready at ``ready_ms``."""
        heappush(self._heap, (min(ready_ms, READY_MS_MAX), message.seq, message))

    def in_order(self) -> Iterator[tuple[int, Message]]:
        """Yield the waiting messages with their times, in order of time.

        Messages that are added or removed during the iteration do not change it.
        """
        heap = self._heap.copy()
        while heap:
            ready_ms, _, message = heappop(heap)
            yield ready_ms, message

    def pop_due(self, now_ms: int, count_max: int) -> list[Message]:
        """Remove and return at most ``count_max`` due messages, in order of time."""
        heap = self._heap
        due: list[Message] = []
        while heap and heap[0][0] <= now_ms and len(due) < count_max:
            due.append(heappop(heap)[2])
        return due

    def pop_all(self) -> list[Message]:
        """Remove and return all messages, in order of position."""
        heap = self._heap
        self._heap = []
        return [message for _, _, message in sorted(heap, key=lambda entry: entry[1])]
