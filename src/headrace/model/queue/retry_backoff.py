# SPDX-License-Identifier: Apache-2.0
"""Delayed retry: a requeued message is ready again after a delay that grows each time.

During the delay the message is neither ready nor unacked by a client. The journal has the end of
the delay, so that a restart or a crash of the broker does not change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.queue.delivery_count import DEATHS
from headrace.model.queue.destination import Consumer
from headrace.model.queue.not_before import TimedMessages

if TYPE_CHECKING:
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.scheduler import Scheduler

DUE_MAX = 512  # Messages that are requeued or dead-lettered in one call.


# Keeps 0-10/s224.
def is_over_delivery_limit(queue: Queue, message: Message) -> bool:
    """Return True if a message was requeued more often than its queue allows."""
    return 0 <= queue.delivery_limit < message.deliveries


def restore(queue: Queue, message: Message, arrived_ms: int) -> None:
    """Restore a recovered message: it is ready, waits for its retry, or is a dead letter.

    ``queue`` is the queue for its content class, which has no consumer yet.
    """
    due_ms = queue.store.retry_times.pop((queue.id, message.seq), 0)
    if 0 < due_ms <= len(DEATHS) and queue.dead_letter_at_least_once:
        queue.vhost.dead_letters.restore_undelivered(queue, message, DEATHS[due_ms - 1])
        return
    if due_ms <= queue.counters.now_ms and not is_over_delivery_limit(queue, message):
        queue.restore(message, arrived_ms)
        return
    if queue.message_ttl_ms >= 0:
        queue.set_deadline(message, arrived_ms)
    queue.vhost.dead_letters.restore_retry(queue, message, max(due_ms, queue.counters.now_ms))


class DelayedRetries(Consumer):
    """The messages of one queue that wait for their next delivery.

    Until then this consumer owns them, as if they were delivered to it.
    """

    def __init__(self, queue: Queue, scheduler: Scheduler) -> None:
        super().__init__(queue, "", False)
        self._messages = TimedMessages()
        self._scheduler = scheduler

    def add(self, message: Message, due_ms: int) -> None:
        """Add a message to requeue at ``due_ms``."""
        self._messages.add(due_ms, message)
        self._scheduler.put(self, due_ms, self.requeue_due)  # Keeps an earlier time.

    def requeue_due(self, now_ms: int) -> int:
        """Requeue due messages; return the time of the next call, 0 if no message waits."""
        queue = self.queue
        for message in self._messages.pop_due(now_ms, DUE_MAX):
            if is_over_delivery_limit(queue, message):
                queue.dead_letter_over_limit(message)
            else:
                queue.requeue_now(message)
        queue.drain()
        return self._messages.next_ms

    def requeue_all(self) -> None:
        """Requeue all messages of a deleted queue."""
        for message in self._messages.pop_all():
            self.queue.requeue_now(message)
