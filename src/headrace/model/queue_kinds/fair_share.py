# SPDX-License-Identifier: Apache-2.0
"""Priorities of which the high ones do not starve the low: fair share, as in qpidd.

``qpid.fairshare`` is how many messages in a row may leave from one level while a lower one waits;
``qpid.fairshare-N`` says it for level N alone; 0 is no limit. When a level has had its share, or is
empty, the next lower one has its turn, and behind the lowest the highest again.

Whoever looks, or chooses, goes through the levels in the same way, with a turn of his own that
begins with that of the queue.
"""

from heapq import heapify, heappop, heappush
from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.queue.dispatch import Consumer, Cursor
    from headrace.model.queue.ready_list import STALE_MIN
    from headrace.model.queue_kinds.ordered import OrderedQueue

from headrace.model.arguments.values import number


class FairCursor(Cursor):
    """How far somebody has looked, by shares."""

    def __init__(
        self, consumer: Consumer, lines: list[list[tuple[int, Message]]], turn_of: int, had: int
    ) -> None:
        Cursor.__init__(self, consumer, len(lines))
        self.lines = lines  # What it has not looked at, as the queue's own.
        self.turn_of = turn_of
        self.had = had


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

    # --- Looking ----------------------------------------------------------------------------

    def push(self, message: Message) -> None:
        OrderedQueue.push(self, message)
        cursor: FairCursor
        if self.browsers is not None or self.seekers is not None:
            level = self.level(message.priority)
            for cursor in (self.browsers or []) + (self.seekers or []):
                self.list_ahead(cursor, level, message)

    def notify_cursors(self, entry: tuple[int, int, Message]) -> None:
        cursor: FairCursor
        level = -entry[0]
        for cursor in self.seekers or ():
            self.list_ahead(cursor, level, entry[2])
        for cursor in self.browsers or ():
            if entry[1] > cursor.seen[level]:
                self.list_ahead(cursor, level, entry[2])
        if self.browsers is not None:
            self.wake()

    def list_ahead(self, cursor: FairCursor, level: int, message: Message) -> None:
        """A cursor is to look at a message that came, or came back."""
        line = cursor.lines[level]
        if len(line) > 2 * self.ready_count + STALE_MIN:
            line = list({entry[0]: entry for entry in line if self.is_ready(entry[1])}.values())
            heapify(line)
            cursor.lines[level] = line
        heappush(line, (message.seq, message))

    def new_cursor(self, consumer: Consumer) -> Cursor:
        return FairCursor(consumer, [list(line) for line in self.lines], self.turn_of, self.had)

    def following(self, cursor: Cursor) -> Message | None:
        assert isinstance(cursor, FairCursor)
        own = cursor
        turn = own.turn_of
        had = own.had
        tries = self.level_count + 1
        while tries:
            share = self.shares[turn]
            if not share or had < share:
                message = self.first_of(own, turn)
                if message is not None:
                    return message
            had = 0
            turn = (turn or self.level_count) - 1
            tries -= 1
        return None

    def first_of(self, cursor: FairCursor, level: int) -> Message | None:
        """Return the first message of a level that a cursor has not looked at."""
        line = cursor.lines[level]
        seen = cursor.seen[level] if cursor.browses else 0
        while line:
            message: Message = line[0][1]
            if message.seq > seen and self.is_ready(message):
                return message
            heappop(line)
        return None

    def pass_over(self, cursor: Cursor, message: Message) -> None:
        assert isinstance(cursor, FairCursor)
        own = cursor
        level = self.level(message.priority)
        line = own.lines[level]
        while line and line[0][1] is message:  # One that came back may be there twice.
            heappop(line)
        if message.seq > own.seen[level]:
            own.seen[level] = message.seq
        share = self.shares[level]
        if level != own.turn_of or (share and own.had >= share):
            own.turn_of = level
            own.had = 0
        own.had += 1

    # --- The line ---------------------------------------------------------------------------

    def sweep(self) -> None:
        OrderedQueue.sweep(self)
        for level in range(self.level_count):
            line = [entry for entry in self.lines[level] if self.is_ready(entry[1])]
            heapify(line)
            self.lines[level] = line

    def clear_line(self) -> None:
        self.lines = [[] for _ in self.lines]
