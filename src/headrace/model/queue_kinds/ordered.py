# SPDX-License-Identifier: Apache-2.0
"""Queues whose next message is not simply the oldest: sorted, grouped, shared out fairly.

All messages stand in the rings of :class:`~headrace.model.queue.queue.Queue`, by place, as
everywhere: that is what browsers, leases, purges and limits look at. Beside it a kind has a line of
its own, in which what is ready stands in the order in which it is to leave. What left by the line
stays in its ring as a shell, which goes when it is the ring's first, or when shells outnumber the
living.
"""

from heapq import heappush
from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.queue.ready_list import STALE_MIN
    from headrace.model.queue.ring import Ring
    from headrace.model.queue_kinds.inspecting import InspectingQueue


class OrderedQueue(InspectingQueue):
    """A queue with a line beside its rings; a kind fills in ``line_up`` and ``next_in_line``."""

    def __init__(self, name: str, **options: Any) -> None:
        InspectingQueue.__init__(self, name, **options)
        self.looks = True
        self.by_place = False  # Take the oldest, whatever the line says.

    def line_up(self, message: Message) -> None:
        """A message is ready: list it where it is to leave from."""

    def next_in_line(self) -> Message | None:
        """Remove and return the next one of the line; None when there is none to be had."""
        return None

    def clear_line(self) -> None:
        """Nothing is ready any more."""

    def push(self, message: Message) -> None:
        InspectingQueue.push(self, message)
        self.line_up(message)

    def next_ready(self) -> Message | None:
        if self.by_place:
            return InspectingQueue.next_ready(self)
        message = self.next_in_line()
        if message is None:
            return None
        self.ready_count -= 1
        self.ready_bytes -= message.body_size
        self.stale_count += 1  # It is listed in its ring still.
        self.trim(self.ring)
        if self.stale_count > STALE_MIN and self.stale_count > self.ready_count:
            self.sweep()
        return message

    def trim(self, ring: Ring | None) -> None:
        """Drop shells at the head of a ring."""
        if ring is None:
            return
        while ring.count:
            first = ring.at(0)
            if first is not None and self.is_ready(first):
                return
            ring.pop()
            self.stale_count -= 1

    def reinsert(self, message: Message) -> None:
        entry = (-self.level(message.priority), message.seq, message)
        if self.is_listed(message):
            self.stale_count -= 1
        else:
            if self.returned is None:
                self.returned = []
            heappush(self.returned, entry)
        self.ready_count += 1
        self.ready_bytes += message.body_size
        self.line_up(message)
        if self.browsers is not None or self.seekers is not None:
            self.notify_cursors(entry)

    def drop_head(self) -> None:
        """Drop the oldest, not the next."""
        self.by_place = True
        InspectingQueue.drop_head(self)
        self.by_place = False

    def forget_ready(self, settle: bool) -> None:
        self.by_place = True
        InspectingQueue.forget_ready(self, settle)
        self.by_place = False
        self.clear_line()

    def orphan_some(self, most: int) -> int:
        self.by_place = True
        left = InspectingQueue.orphan_some(self, most)
        self.by_place = False
        return left
