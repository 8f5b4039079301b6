# SPDX-License-Identifier: Apache-2.0
"""The deadlines of a queue's messages (``x-message-ttl`` and expirations), soonest first."""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import Message
    from headrace.model.queue.ready_list import STALE_MIN

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

EXPIRE_MAX = 16384  # Messages that expire in one go; of dead letters LETTERS_MAX of all queues.


class Expiry:
    """A heap of deadlines. A message that left, or is unacked, keeps its entry until it is due.

    So a message expires on time at any position in the queue.
    """

    def __init__(self) -> None:
        self.deadlines: list[tuple[int, int, Message]] = []  # (deadline_ms, seq, message)

    def add(self, message: Message, ready_count: int) -> bool:
        """List a ready message; return True if its deadline is the soonest."""
        if len(self.deadlines) > 2 * ready_count + STALE_MIN:
            self.sweep()
        heappush(self.deadlines, (message.deadline_ms, message.seq, message))
        return self.deadlines[0][2] is message

    def sweep(self) -> None:
        """List the deadlines of ready messages only, and each of them once.

        An unacked message is listed again when it is requeued. At least half of the entries go, so
        that a message costs the same however many there are.
        """
        message: Message
        listed: dict[int, tuple[int, int, Message]] = {}
        for entry in self.deadlines:
            message = entry[2]
            if not message.flags & C_GONE and message.consumer is None:
                previous = listed.get(entry[1])
                if previous is None or entry[0] < previous[0]:
                    listed[entry[1]] = entry
        self.deadlines = list(listed.values())
        heapify(self.deadlines)

    def first_ms(self) -> int:
        """Return the soonest deadline of a ready message; 0 when there is none."""
        message: Message
        while self.deadlines:
            message = self.deadlines[0][2]
            if not message.flags & C_GONE and message.consumer is None:
                deadline_ms: int = self.deadlines[0][0]
                return deadline_ms
            heappop(self.deadlines)
        return 0

    def expire(self, queue: "Queue", now_ms: int) -> int:
        """Dead-letter messages that are due; return the next deadline, 0 when there is none."""
        message: Message
        budget = EXPIRE_MAX
        limited = queue.dead_letter_exchange is not None
        counters = queue.counters
        batch = False
        if limited:
            counters.begin_letters(now_ms)
            batch = queue.dead_letters().begin_batch()
        try:
            while True:
                deadline_ms = self.first_ms()
                spent = budget == 0 or (limited and counters.letters_left <= 0)
                if deadline_ms == 0 or deadline_ms > now_ms or spent:
                    return deadline_ms
                message = heappop(self.deadlines)[2]
                budget -= 1
                if limited:
                    counters.letters_left -= 1
                queue.ready.withdraw(message)
                queue.dead_letter(message, "expired")
        finally:
            if batch:
                queue.dead_letters().end()
