# SPDX-License-Identifier: Apache-2.0
"""The base of ready lists that do not deliver in order of arrival: sorted, grouped, fair share.

Every message has an entry in the rings of :class:`~headrace.model.queue.ready_list.ReadyList`, by
position, for leases, purges and limits. Each kind also has a heap of ready messages in order of
delivery. A message that was popped from the heap has a stale entry in its ring, until that is the
ring's first entry, or stale entries outnumber the others.
"""

from heapq import heappush

import cython

if not cython.compiled:
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import Message
    from headrace.model.queue.ready_list import STALE_MIN, ReadyList
    from headrace.model.queue.ring import Ring


class OrderedList(ReadyList):
    """A list with rings and a heap; subclasses override ``push_heap`` and ``pop_heap``."""

    def __init__(self) -> None:
        ReadyList.__init__(self)
        self.oldest_popped = 0  # Messages that left by `pop_oldest` since the last sweep.

    def push_heap(self, message: Message) -> None:
        """Add a ready message to the heap."""

    def pop_heap(self) -> Message | None:
        """Remove and return the first ready message of the heap; None if there is none."""
        return None

    def clear_heap(self) -> None:
        """Empty the heap."""

    def push(self, message: Message) -> None:
        ReadyList.push(self, message)
        self.push_heap(message)

    def pop(self) -> Message | None:
        message = self.pop_heap()
        if message is not None:
            self.count_departure(message)
            self.sweep_if_stale()
        return message

    def pop_oldest(self) -> Message | None:
        # The heap cannot drop the message's entry. Sweep before too many of them are stale.
        self.oldest_popped += 1
        if self.oldest_popped > STALE_MIN and self.oldest_popped > self.count:
            self.sweep()
        return ReadyList.pop_oldest(self)

    def sweep(self) -> None:
        ReadyList.sweep(self)
        self.oldest_popped = 0

    def count_departure(self, message: Message) -> None:
        """Count a message that was popped from the heap."""
        self.withdraw(message)
        self.trim(self.ring)

    def trim(self, ring: Ring | None) -> None:
        """Drop stale entries at the head of a ring."""
        if ring is None:
            return
        while ring.count:
            first = ring.get(0)
            if first is not None and self.is_ready(first):
                return
            ring.pop()
            self.stale_count -= 1

    def reinsert(self, message: Message) -> None:
        entry = (-self.level(message.priority), message.seq, message)
        if self.is_listed(message):
            self.stale_count -= 1
        else:
            if self.requeued is None:
                self.requeued = []
            heappush(self.requeued, entry)
        self.count += 1
        self.bytes += message.body_size
        self.push_heap(message)
        if self.cursors is not None:
            self.notify_cursors(entry)

    def clear(self) -> None:
        ReadyList.clear(self)
        self.clear_heap()

    def is_ready(self, message: Message) -> bool:
        """Return True if an entry of the heap stands for a ready message."""
        return not message.flags & C_GONE and message.consumer is None
