# SPDX-License-Identifier: Apache-2.0
"""A queue that is sorted by a header's value: what is ready leaves in lexical order.

As in Broker-J (``qpid.queue_sort_key``): the value counts as text, whatever it is, compared
character by character, the first ``SORTED_BY`` of them; messages without the header come first;
equal ones leave as they came. A message that comes later and sorts before others overtakes them.

Whoever looks, or chooses, goes by the header as well. A browser is shown each message once: one
that comes later and sorts before what it has been shown is the next.

Cost. A heap: the logarithm of the depth for each message. Each cursor has a heap of its own, of
what it has not looked at: eight octets for each message.
"""

from heapq import heapify, heappop, heappush
from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.queue.dispatch import Consumer, Cursor
    from headrace.model.queue_kinds.ordered import OrderedQueue

from headrace.model.arguments.values import shown

SORTED_BY = 255  # Characters of each value, which are in memory wherever the message is.


class SortedCursor(Cursor):
    """How far somebody has looked, by the header."""

    def __init__(self, consumer: Consumer, line: list[tuple[str, int, Message]]) -> None:
        Cursor.__init__(self, consumer, 1)
        self.ahead = line  # A heap.
        self.reach: Any = None  # Value and seq of the last in order that it has looked at.


class SortedQueue(OrderedQueue):
    """A queue whose ready messages leave in the order of a header."""

    def __init__(self, name: str, **options: Any) -> None:
        OrderedQueue.__init__(self, name, **options)
        self.key = ""  # The name of the header.
        self.line: list[tuple[str, int, Message]] = []  # Value, seq; a heap.
        self.values: dict[int, str] = {}  # The value, by seq, of each message that has one.

    def shape(self, arguments: dict[str, Any]) -> None:
        OrderedQueue.shape(self, arguments)
        self.key = arguments["qpid.queue_sort_key"]

    def level(self, priority: int) -> int:
        """All go by the header, whatever their priority."""
        return 0

    def line_up(self, message: Message) -> None:
        text = self.values.get(message.seq)
        if text is None:
            value = self.header(message, self.key)
            text = ""
            if value is not None:
                text = "=" + (value if type(value) is str else shown(value))[:SORTED_BY]
            self.values[message.seq] = text
        heappush(self.line, (text, message.seq, message))

    def next_in_line(self) -> Message | None:
        line = self.line
        while line:
            message: Message = heappop(line)[2]
            if self.is_ready(message):
                return message
        return None

    def push(self, message: Message) -> None:
        OrderedQueue.push(self, message)
        if self.browsers is not None or self.seekers is not None:
            self.announce(message, True)

    def notify_cursors(self, entry: tuple[int, int, Message]) -> None:
        self.announce(entry[2], False)

    def announce(self, message: Message, fresh: bool) -> None:
        """Let those know who look: a message came, or came back to its place."""
        cursor: SortedCursor
        entry = (self.values[message.seq], message.seq, message)
        for cursor in self.seekers or ():
            self.add_ahead(cursor, entry)
        for cursor in self.browsers or ():
            if fresh or cursor.reach is None or entry[:2] > cursor.reach:
                self.add_ahead(cursor, entry)
        if self.browsers is not None:
            self.wake()

    def new_cursor(self, consumer: Consumer) -> Cursor:
        return SortedCursor(consumer, list(self.line))

    def following(self, cursor: Cursor) -> Message | None:
        ahead = cursor.ahead
        first = cursor.seen[0]  # Nothing up to this place is wanted.
        while ahead:
            message: Message = ahead[0][2]
            if message.seq > first and self.is_ready(message):
                return message
            heappop(ahead)
        return None

    def pass_over(self, cursor: Cursor, message: Message) -> None:
        assert isinstance(cursor, SortedCursor)
        own = cursor
        ahead = own.ahead
        reach = (self.values[message.seq], message.seq)
        while ahead and ahead[0][2] is message:  # One that came back may be there twice.
            heappop(ahead)
        if own.reach is None or reach > own.reach:
            own.reach = reach

    def remove(self, message: Message) -> None:
        self.values.pop(message.seq, None)
        OrderedQueue.remove(self, message)

    def sweep(self) -> None:
        OrderedQueue.sweep(self)
        self.line = [entry for entry in self.line if self.is_ready(entry[2])]
        heapify(self.line)

    def clear_line(self) -> None:
        self.line = []
