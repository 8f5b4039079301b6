# SPDX-License-Identifier: Apache-2.0
"""Dead-lettering at least once, and postponed deaths.

With ``x-dead-letter-strategy`` ``at-least-once`` a message is removed from its queue only when all
target queues have its dead letter. Until then the message is not ready, and the queue's limits do
not count it; the journal has it, with the reason of its death. At intervals the dead letter is sent
again to the targets that lack it, after a restart to all targets.

If very many messages die in one millisecond, in all queues together, most deaths are postponed to
later turns.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.model.queue.destination import Consumer

if TYPE_CHECKING:
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.scheduler import Scheduler

RETRY_MS = 1000  # Pause between two retries; it doubles while all of them fail.
RETRY_MS_MAX = 30_000
TRIES_MAX = 256  # Dead letters retried at once.


class UndeliveredLetters(Consumer):
    """The undelivered dead letters of one queue, as the consumer that owns their messages."""

    def __init__(self, queue: Queue, scheduler: Scheduler) -> None:
        super().__init__(queue, "", False)
        self.dead_letters: list[tuple[Message, str]] = []
        self.delivered_to: dict[Message, set[str]] = {}  # Names of the target queues that have it.
        self.postponed: deque[tuple[Message, str]] = deque()  # Postponed deaths, with reasons.
        self._scheduler = scheduler
        self._wait_ms = RETRY_MS

    def add(self, message: Message, reason: str) -> None:
        """Add an undelivered dead letter and schedule its retry."""
        self.dead_letters.append((message, reason))
        if len(self.dead_letters) == 1:
            self._wait_ms = RETRY_MS
            self._scheduler.put(self, self.queue.counters.now_ms + RETRY_MS, self.retry)

    def postpone(self, message: Message, reason: str) -> None:
        """Postpone the death of a message."""
        self.postponed.append((message, reason))
        if len(self.postponed) == 1:
            self._scheduler.put(
                ("dying", self), self.queue.counters.now_ms + 1, self.dead_letter_postponed
            )

    def dead_letter_postponed(self, now_ms: int) -> int:
        """Dead-letter some postponed messages; return the time of the next call, 0 if none."""
        queue = self.queue
        if queue.deleted:
            self.drop_all()
            return 0
        counters = queue.counters
        counters.begin_letters(now_ms)
        dead_letters = queue.vhost.dead_letters
        must_end = dead_letters.join_transaction()
        try:
            while self.postponed and counters.letters_left > 0:
                counters.letters_left -= 1
                message, reason = self.postponed.popleft()
                queue.pending_count -= 1
                message.consumer = None
                if not queue.retry_dead_letter(message, reason):
                    queue.pending_count += 1
                    message.consumer = dead_letters.keep_undelivered(queue, message, reason)
        finally:
            if must_end:
                dead_letters.end()
        return now_ms + 1 if self.postponed else 0

    def retry(self, now_ms: int) -> int:
        """Retry the oldest dead letters; return the time of the next retry, 0 for none."""
        queue = self.queue
        if queue.deleted:
            self.drop_all()
            return 0
        batch, self.dead_letters = self.dead_letters[:TRIES_MAX], self.dead_letters[TRIES_MAX:]
        failed: list[tuple[Message, str]] = []
        must_end = queue.vhost.dead_letters.join_transaction()
        try:
            for message, reason in batch:
                queue.pending_count -= 1
                message.consumer = None
                if queue.retry_dead_letter(message, reason):
                    continue
                queue.pending_count += 1
                message.consumer = self
                failed.append((message, reason))
        finally:
            if must_end:
                queue.vhost.dead_letters.end()
        self.dead_letters = failed + self.dead_letters
        if not self.dead_letters:
            return 0
        if len(failed) == len(batch):
            self._wait_ms = min(2 * self._wait_ms, RETRY_MS_MAX)
            return now_ms + self._wait_ms
        self._wait_ms = RETRY_MS
        return now_ms + (RETRY_MS if failed else 1)

    def drop_all(self) -> None:
        """Drop all dead letters of a deleted queue."""
        letters, self.dead_letters = [*self.postponed, *self.dead_letters], []
        self.postponed.clear()
        self.delivered_to.clear()
        for message, _ in letters:
            self.queue.pending_count -= 1
            self.queue.remove(message)
