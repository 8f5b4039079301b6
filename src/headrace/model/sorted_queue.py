# SPDX-License-Identifier: Apache-2.0
"""A queue that is sorted by a header's value: what is ready leaves in lexical order.

As in Broker-J (``qpid.queue_sort_key``): the value counts as text, whatever it is, compared
character by character; messages without the header come first; equal ones leave as they came. A
message that comes later and sorts before others overtakes them. Whoever looks at the queue without
taking anything is shown it by place.

Cost. A heap: the logarithm of the depth for each message.
"""

from heapq import heapify, heappop, heappush
from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.ordered import OrderedQueue

from headrace.model.arguments import shown


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

    def line_up(self, message: Message) -> None:
        text = self.values.get(message.seq)
        if text is None:
            value = self.header(message, self.key)
            text = "" if value is None else "=" + (value if type(value) is str else shown(value))
            self.values[message.seq] = text
        heappush(self.line, (text, message.seq, message))

    def next_in_line(self) -> Message | None:
        line = self.line
        while line:
            message: Message = heappop(line)[2]
            if self.is_ready(message):
                return message
        return None

    def leave(self, message: Message) -> None:
        self.values.pop(message.seq, None)
        OrderedQueue.leave(self, message)

    def sweep(self) -> None:
        OrderedQueue.sweep(self)
        self.line = [entry for entry in self.line if self.is_ready(entry[2])]
        heapify(self.line)

    def clear_line(self) -> None:
        self.line = []
