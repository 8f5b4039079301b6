# SPDX-License-Identifier: Apache-2.0
"""The deadlines of a queue's messages (``x-message-ttl`` and expirations), soonest first.

``Queue.set_deadline`` of `headrace.model.queue.queue` applies ``x-message-ttl``.
"""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import Message
    from headrace.model.queue.ready_list import STALE_MIN

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

EXPIRE_MAX = 16384  # Messages that expire in one call, fewer if they are dead-lettered.


class Expiry:
    """A heap of deadlines, so that a message expires on time at any position in the queue.

    The entry of a removed or unacked message stays until its deadline or a sweep.
    """

    def __init__(self) -> None:
        self.deadlines: list[tuple[int, int, Message]] = []  # (deadline_ms, seq, message)

    def add(self, message: Message, ready_count: int) -> bool:
        """Add the deadline of a ready message; return True if it is the soonest."""
        if len(self.deadlines) > 2 * ready_count + STALE_MIN:
            self.sweep()
        heappush(self.deadlines, (message.deadline_ms, message.seq, message))
        return self.deadlines[0][2] is message

    def sweep(self) -> None:
        """Remove the entries of removed and unacked messages, and duplicates.

        An unacked message gets an entry when it is requeued. A sweep removes at least half of the
        entries, so that the cost of a message does not depend on their number.
        """
        message: Message
        by_seq: dict[int, tuple[int, int, Message]] = {}
        for entry in self.deadlines:
            message = entry[2]
            if not message.flags & C_GONE and message.consumer is None:
                previous = by_seq.get(entry[1])
                if previous is None or entry[0] < previous[0]:
                    by_seq[entry[1]] = entry
        self.deadlines = list(by_seq.values())
        heapify(self.deadlines)

    def first_ms(self) -> int:
        """Return the soonest deadline of a ready message; 0 if there is none."""
        message: Message
        while self.deadlines:
            message = self.deadlines[0][2]
            if not message.flags & C_GONE and message.consumer is None:
                deadline_ms: int = self.deadlines[0][0]
                return deadline_ms
            heappop(self.deadlines)
        return 0

    def expire(self, queue: "Queue", now_ms: int) -> int:
        """Dead-letter expired messages; return the next deadline, 0 if there is none."""
        message: Message
        budget = EXPIRE_MAX
        limited = queue.dead_letter_exchange is not None
        counters = queue.counters
        batch = False
        if limited:
            counters.begin_letters(now_ms)
            batch = queue.dead_letter_sender().begin_batch()
        try:
            while True:
                deadline_ms = self.first_ms()
                is_over_budget = budget == 0 or (limited and counters.letters_left <= 0)
                if deadline_ms == 0 or deadline_ms > now_ms or is_over_budget:
                    return deadline_ms
                message = heappop(self.deadlines)[2]
                budget -= 1
                if limited:
                    counters.letters_left -= 1
                queue.ready.withdraw(message)
                queue.dead_letter(message, "expired")
        finally:
            if batch:
                queue.dead_letter_sender().end()
