# SPDX-License-Identifier: Apache-2.0
"""A ready list whose high priorities do not starve the low ones: fair share, as in qpidd.

``qpid.fairshare`` is the number of messages in a row that are delivered from one level while a
lower level has messages. ``qpid.fairshare-N`` is that number for level N; 0 means no limit. When a
level has had its share, or is empty, the next lower level follows, and the highest after the
lowest.

A cursor goes through the levels by the same rule. It starts with the level that the queue serves
when the cursor is made.
"""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.queue.ready_list import STALE_MIN, Cursor
    from headrace.model.queue_kinds.ordered import OrderedList

from headrace.model.arguments.values import number

if TYPE_CHECKING:
    from collections.abc import Mapping


class FairShareCursor(Cursor):
    """The position of a cursor in a queue with fair shares."""

    def __init__(
        self, is_browser: bool, heaps: list[list[tuple[int, Message]]], current: int, served: int
    ) -> None:
        Cursor.__init__(self, is_browser, len(heaps))
        self.heaps = heaps  # The messages that the cursor has not seen, by level: (seq, message).
        self.current = current  # The level that is served now.
        self.served = served  # Messages of that level that were served in a row.


class FairShareList(OrderedList):
    """Ready messages whose priority levels alternate."""

    def __init__(self, arguments: "Mapping[str, object]") -> None:
        OrderedList.__init__(self)
        self.level_count = max(2, number(arguments["qpid.priorities"]))
        self.shares: list[int] = []  # The share of each level; 0 means no limit.
        self.heaps: list[list[tuple[int, Message]]] = []  # A heap of (seq, message) by level.
        share = arguments.get("qpid.fairshare", arguments.get("x-qpid-fairshare", 0))
        for level in range(self.level_count):
            self.shares.append(number(arguments.get(f"qpid.fairshare-{level}", share)))
            self.heaps.append([])
        self.current = self.level_count - 1  # The level that is served now.
        self.served = 0  # Messages of that level that were served in a row.

    def push_heap(self, message: Message) -> None:
        heappush(self.heaps[self.level(message.priority)], (message.seq, message))

    def pop_heap(self) -> Message | None:
        tries = self.level_count + 1  # The current level may be the only one with messages.
        while tries:
            share = self.shares[self.current]
            if not share or self.served < share:
                heap = self.heaps[self.current]
                while heap:
                    message: Message = heappop(heap)[1]
                    if self.is_ready(message):
                        self.served += 1
                        return message
            self.served = 0
            self.current = (self.current or self.level_count) - 1
            tries -= 1
        return None

    # --- Cursors ----------------------------------------------------------------------------

    def push(self, message: Message) -> None:
        OrderedList.push(self, message)
        if self.cursors is not None:
            level = self.level(message.priority)
            for cursor in self.cursors:
                assert isinstance(cursor, FairShareCursor)
                share_cursor = cursor
                self.add_unseen(share_cursor, level, message)

    def notify_cursors(self, entry: tuple[int, int, Message]) -> None:
        level = -entry[0]
        for cursor in self.cursors or ():
            assert isinstance(cursor, FairShareCursor)
            share_cursor = cursor
            if not share_cursor.is_browser or entry[1] > share_cursor.seen[level]:
                self.add_unseen(share_cursor, level, entry[2])

    def add_unseen(self, cursor: FairShareCursor, level: int, message: Message) -> None:
        """Add a message that arrived, or was requeued, to those that a cursor has not seen."""
        heap = cursor.heaps[level]
        if len(heap) > 2 * self.count + STALE_MIN:
            heap = list({entry[0]: entry for entry in heap if self.is_ready(entry[1])}.values())
            heapify(heap)
            cursor.heaps[level] = heap
        heappush(heap, (message.seq, message))

    def new_cursor(self, is_browser: bool) -> Cursor:
        heaps = [list(heap) for heap in self.heaps]
        return FairShareCursor(is_browser, heaps, self.current, self.served)

    def peek_unseen(self, cursor: Cursor) -> Message | None:
        assert isinstance(cursor, FairShareCursor)
        share_cursor = cursor
        current = share_cursor.current
        served = share_cursor.served
        tries = self.level_count + 1
        while tries:
            share = self.shares[current]
            if not share or served < share:
                message = self.first_unseen(share_cursor, current)
                if message is not None:
                    return message
            served = 0
            current = (current or self.level_count) - 1
            tries -= 1
        return None

    def first_unseen(self, cursor: FairShareCursor, level: int) -> Message | None:
        """Return the first message of a level that a cursor has not seen."""
        heap = cursor.heaps[level]
        seen = cursor.seen[level] if cursor.is_browser else 0
        while heap:
            message: Message = heap[0][1]
            if message.seq > seen and self.is_ready(message):
                return message
            heappop(heap)
        return None

    def pass_over(self, cursor: Cursor, message: Message) -> None:
        assert isinstance(cursor, FairShareCursor)
        share_cursor = cursor
        level = self.level(message.priority)
        heap = share_cursor.heaps[level]
        while heap and heap[0][1] is message:  # A requeued message may be listed twice.
            heappop(heap)
        if message.seq > share_cursor.seen[level]:
            share_cursor.seen[level] = message.seq
        share = self.shares[level]
        if level != share_cursor.current or (share and share_cursor.served >= share):
            share_cursor.current = level
            share_cursor.served = 0
        share_cursor.served += 1

    # --- The heaps --------------------------------------------------------------------------

    def sweep(self) -> None:
        OrderedList.sweep(self)
        for level in range(self.level_count):
            heap = [entry for entry in self.heaps[level] if self.is_ready(entry[1])]
            heapify(heap)
            self.heaps[level] = heap

    def clear_heap(self) -> None:
        self.heaps = [[] for _ in self.heaps]
