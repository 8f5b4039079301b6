# SPDX-License-Identifier: Apache-2.0
"""Priorities of which the high ones do not starve the low: fair share, as in qpidd.

``qpid.fairshare`` is how many messages in a row may leave from one level while a lower one waits;
``qpid.fairshare-N`` says it for level N alone; 0 is no limit. When a level has had its share, or is
empty, the next lower one has its turn, and behind the lowest the highest again.
"""

from heapq import heapify, heappop, heappush
from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.ordered import OrderedQueue

from headrace.model.arguments import number


class FairShareQueue(OrderedQueue):
    """A queue whose levels take turns."""

    def __init__(self, name: str, **options: Any) -> None:
        OrderedQueue.__init__(self, name, **options)
        self.level_count = 0
        self.shares: list[int] = []  # By level; 0 is no limit.
        self.lines: list[list[tuple[int, Message]]] = []  # Seq; heaps, by level.
        self.turn_of = 0  # The level whose turn it is,
        self.had = 0  # and how many it had in this turn.

    def shape(self, arguments: dict[str, Any]) -> None:
        OrderedQueue.shape(self, arguments)
        self.level_count = max(2, number(arguments["qpid.priorities"]))
        share = arguments.get("qpid.fairshare", arguments.get("x-qpid-fairshare", 0))
        for level in range(self.level_count):
            self.shares.append(number(arguments.get(f"qpid.fairshare-{level}", share)))
            self.lines.append([])
        self.turn_of = self.level_count - 1

    def line_up(self, message: Message) -> None:
        heappush(self.lines[self.level(message.priority)], (message.seq, message))

    def next_in_line(self) -> Message | None:
        tries = self.level_count + 1  # The level whose turn it is may be the only one.
        while tries:
            share = self.shares[self.turn_of]
            if not share or self.had < share:
                line = self.lines[self.turn_of]
                while line:
                    message: Message = heappop(line)[1]
                    if self.is_ready(message):
                        self.had += 1
                        return message
            self.had = 0
            self.turn_of = (self.turn_of or self.level_count) - 1
            tries -= 1
        return None

    def sweep(self) -> None:
        OrderedQueue.sweep(self)
        for level in range(self.level_count):
            line = [entry for entry in self.lines[level] if self.is_ready(entry[1])]
            heapify(line)
            self.lines[level] = line

    def clear_line(self) -> None:
        self.lines = [[] for _ in self.lines]
