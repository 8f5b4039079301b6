# SPDX-License-Identifier: Apache-2.0
"""Dead-lettering at least once, and deaths that were postponed.

With ``x-dead-letter-strategy`` ``at-least-once`` a message leaves its queue only when all target
queues have its dead letter. Until then it is kept here: not ready, not counted in the queue's
limits, still in the journal, with the reason of its death. It is retried at intervals for the
targets that lack it; after a restart, for all.

If very many messages die at once, in any queue, most of them wait here for a later turn.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.model.queue.destination import Consumer

if TYPE_CHECKING:
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.scheduler import Scheduler

RETRY_MS = 1000  # Pause between two tries; it grows while they fail.
RETRY_MS_MAX = 30_000
TRIES_MAX = 256  # Dead letters tried at once.


class Undelivered(Consumer):
    """The undelivered dead letters of one queue; their consumer meanwhile."""

    def __init__(self, queue: Queue, scheduler: Scheduler) -> None:
        super().__init__(queue, "", False)
        self.dead_letters: list[tuple[Message, str]] = []
        self.delivered_to: dict[Message, set[str]] = {}  # Target queues that have a letter already.
        self.dying: deque[tuple[Message, str]] = deque()  # Postponed, not tried yet.
        self._scheduler = scheduler
        self._wait_ms = RETRY_MS

    def add(self, message: Message, reason: str) -> None:
        """Keep a dead letter and schedule its retry."""
        self.dead_letters.append((message, reason))
        if len(self.dead_letters) == 1:
            self._wait_ms = RETRY_MS
            self._scheduler.put(self, self.queue.counters.now_ms + RETRY_MS, self.retry)

    def postpone(self, message: Message, reason: str) -> None:
        """Postpone the death of a message."""
        self.dying.append((message, reason))
        if len(self.dying) == 1:
            self._scheduler.put(("dying", self), self.queue.counters.now_ms + 1, self.go_on)

    def go_on(self, now_ms: int) -> int:
        """Dead-letter some of the postponed messages; return when to go on, 0 when none is left."""
        queue = self.queue
        if queue.deleted:
            self.forget()
            return 0
        counters = queue.counters
        counters.begin_letters(now_ms)
        letters = queue.vhost.dead_letters
        joins = letters.join_transaction()
        try:
            while self.dying and counters.letters_left > 0:
                counters.letters_left -= 1
                message, reason = self.dying.popleft()
                queue.pending_count -= 1
                message.consumer = None
                if not queue.retry_dead_letter(message, reason):
                    queue.pending_count += 1
                    message.consumer = letters.keep_undelivered(queue, message, reason)
        finally:
            if joins:
                letters.end()
        return now_ms + 1 if self.dying else 0

    def retry(self, now_ms: int) -> int:
        """Retry the oldest dead letters; return when to try again, 0 when none is left."""
        queue = self.queue
        if queue.deleted:
            self.forget()
            return 0
        tried, self.dead_letters = self.dead_letters[:TRIES_MAX], self.dead_letters[TRIES_MAX:]
        failed: list[tuple[Message, str]] = []
        joins = queue.vhost.dead_letters.join_transaction()
        try:
            for message, reason in tried:
                queue.pending_count -= 1
                message.consumer = None
                if queue.retry_dead_letter(message, reason):
                    continue
                queue.pending_count += 1
                message.consumer = self
                failed.append((message, reason))
        finally:
            if joins:
                queue.vhost.dead_letters.end()
        self.dead_letters = failed + self.dead_letters
        if not self.dead_letters:
            return 0
        if len(failed) == len(tried):
            self._wait_ms = min(2 * self._wait_ms, RETRY_MS_MAX)
            return now_ms + self._wait_ms
        self._wait_ms = RETRY_MS
        return now_ms + (RETRY_MS if failed else 1)

    def forget(self) -> None:
        """Drop all dead letters of a deleted queue."""
        letters, self.dead_letters = [*self.dying, *self.dead_letters], []
        self.dying.clear()
        self.delivered_to.clear()
        for message, _ in letters:
            self.queue.pending_count -= 1
            self.queue.remove(message)
