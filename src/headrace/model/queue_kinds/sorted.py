# SPDX-License-Identifier: Apache-2.0
"""A ready list sorted by a header: messages leave in lexical order of its value.

As in Broker-J (``qpid.queue_sort_key``), values of all types are compared as text, by their first
``KEY_LENGTH_MAX`` characters. Messages without the header come first. Messages with equal values
leave in order of arrival. A message that arrives later and sorts before others overtakes them.

Cursors follow the same order. A browser is shown each message once. A message that arrives later
and sorts before messages that were shown already is shown next.

Cost. The list is a heap: adding or removing one of n messages takes O(log n). Each cursor has a
heap of the messages that it has not seen, at eight bytes a message.
"""

from heapq import heapify, heappop, heappush

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.queue.ready_list import STALE_MIN, Cursor
    from headrace.model.queue_kinds.header_reader import HeaderReader
    from headrace.model.queue_kinds.ordered import OrderedList

from headrace.model.arguments.values import format_value

KEY_LENGTH_MAX = 255  # Characters of each value; they are in memory also for paged messages.


class SortedCursor(Cursor):
    """The position of a cursor in a sorted queue."""

    def __init__(self, is_browser: bool, heap: list[tuple[str, int, Message]]) -> None:
        Cursor.__init__(self, is_browser, 1)
        self.heap = heap  # The messages that the cursor has not seen; a heap.
        self.last_shown: tuple[str, int] | None = None  # Value and seq, the highest in order.


class SortedList(OrderedList):
    """Ready messages that leave in the order of a header."""

    def __init__(self, reader: HeaderReader, key: str) -> None:
        OrderedList.__init__(self)
        self.reader = reader
        self.key = key  # The name of the header.
        self.heap: list[tuple[str, int, Message]] = []  # (value, seq, message); a heap.
        self.values: dict[int, str] = {}  # The value, by seq, of each message that has one.

    def level(self, priority: int) -> int:
        """Return 0: messages leave by the header, whatever their priority."""
        return 0

    def push_heap(self, message: Message) -> None:
        text = self.values.get(message.seq)
        if text is None:
            value = self.reader.read(message, self.key)
            text = ""
            if value is not None:
                text = (
                    "="
                    + (value if isinstance(value, str) else format_value(value))[:KEY_LENGTH_MAX]
                )
            self.values[message.seq] = text
        heappush(self.heap, (text, message.seq, message))

    def pop_heap(self) -> Message | None:
        heap = self.heap
        while heap:
            message: Message = heappop(heap)[2]
            if self.is_ready(message):
                return message
        return None

    def push(self, message: Message) -> None:
        OrderedList.push(self, message)
        if self.cursors is not None:
            self.announce(message, True)

    def notify_cursors(self, entry: tuple[int, int, Message]) -> None:
        self.announce(entry[2], False)

    def announce(self, message: Message, fresh: bool) -> None:
        """Show the cursors a message that arrived (``fresh``), or returned to its position."""
        entry = (self.values[message.seq], message.seq, message)
        for cursor in self.cursors or ():
            assert isinstance(cursor, SortedCursor)
            sorted_cursor = cursor
            last_shown = sorted_cursor.last_shown
            unseen = fresh or last_shown is None or entry[:2] > last_shown
            if unseen or not sorted_cursor.is_browser:
                self.add_unseen(sorted_cursor, entry)

    def add_unseen(self, cursor: SortedCursor, entry: tuple[str, int, Message]) -> None:
        """Add a message to those that a cursor has not seen."""
        if len(cursor.heap) > 2 * self.count + STALE_MIN:
            by_seq = {unseen[1]: unseen for unseen in cursor.heap if self.is_ready(unseen[2])}
            cursor.heap = list(by_seq.values())
            heapify(cursor.heap)
        heappush(cursor.heap, entry)

    def new_cursor(self, is_browser: bool) -> Cursor:
        return SortedCursor(is_browser, list(self.heap))

    def peek_unseen(self, cursor: Cursor) -> Message | None:
        assert isinstance(cursor, SortedCursor)
        sorted_cursor = cursor
        heap = sorted_cursor.heap
        first = sorted_cursor.seen[0]  # Messages up to this position are skipped.
        while heap:
            message: Message = heap[0][2]
            if message.seq > first and self.is_ready(message):
                return message
            heappop(heap)
        return None

    def pass_over(self, cursor: Cursor, message: Message) -> None:
        assert isinstance(cursor, SortedCursor)
        sorted_cursor = cursor
        heap = sorted_cursor.heap
        shown = (self.values[message.seq], message.seq)
        while heap and heap[0][2] is message:  # A requeued message may be listed twice.
            heappop(heap)
        if sorted_cursor.last_shown is None or shown > sorted_cursor.last_shown:
            sorted_cursor.last_shown = shown

    def on_removal(self, message: Message) -> None:
        self.values.pop(message.seq, None)

    def sweep(self) -> None:
        OrderedList.sweep(self)
        self.heap = [entry for entry in self.heap if self.is_ready(entry[2])]
        heapify(self.heap)

    def clear_heap(self) -> None:
        self.heap = []
