# SPDX-License-Identifier: Apache-2.0
"""Delayed retry: a requeued message is ready again after a delay that grows each time.

Until then it is neither ready nor unacked by a client. The journal has the time until which it
waits, so after a restart or a crash of the broker it waits for the rest of its delay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.model.arguments.values import number
from headrace.model.queue.delivery_count import is_spent
from headrace.model.queue.destination import Consumer
from headrace.model.queue.not_before import Later

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.scheduler import Scheduler

TYPE = "x-delayed-retry-type"  # all, failed, returned or disabled.
MIN = "x-delayed-retry-min"  # Milliseconds.
MAX = "x-delayed-retry-max"
MULTIPLIER = "x-delayed-retry-multiplier"
TYPES = ("all", "failed", "returned", "disabled")
MIN_MS = 1000  # Where only the type is given.
MAX_MS = 0xFFFFFFFF  # Some 49 days.
DUE_MAX = 512  # Messages that become ready, or dead letters, in one go.


class Backoff(NamedTuple):
    """The delays of one queue."""

    failed: bool  # Delay messages that a consumer requeued after a try,
    returned: bool  # and those that it released untried.
    min_ms: int
    max_ms: int
    multiplier: int  # 0: the delay grows by the least one each time.

    def delay_ms(self, count: int) -> int:
        """Return the delay of a message that was requeued ``count`` times, from 1."""
        count = max(1, count)
        if self.multiplier:
            grown: int = self.min_ms * self.multiplier ** min(count - 1, 64)
            return min(grown, self.max_ms)
        return min(self.min_ms * count, self.max_ms)


def backoff(arguments: Mapping[str, object]) -> Backoff | None:
    """Return the delays that a queue's arguments set, which were checked before."""
    kind = arguments.get(TYPE, "all" if MIN in arguments else "disabled")
    if kind == "disabled":
        return None
    return Backoff(
        kind in ("all", "failed"),
        kind in ("all", "returned"),
        number(arguments.get(MIN, MIN_MS)),
        min(number(arguments.get(MAX, MAX_MS)), MAX_MS),
        number(arguments.get(MULTIPLIER, 0)),
    )


class Waiting(Consumer):
    """The messages of one queue that wait for their next try."""

    def __init__(self, queue: Queue, scheduler: Scheduler) -> None:
        super().__init__(queue, "", False)
        self._later = Later()
        self._scheduler = scheduler

    def add(self, message: Message, due_ms: int) -> None:
        """Let a message wait until a time."""
        self._later.add(due_ms, message)
        self._scheduler.put(self, due_ms, self.ripen)  # Unless it is due earlier already.

    def ripen(self, now_ms: int) -> int:
        """Requeue due messages; return when to call again, 0 when none waits."""
        queue = self.queue
        for message in self._later.take(now_ms, DUE_MAX):
            if is_spent(queue, message):
                queue.give_up(message)
            else:
                queue.requeue_now(message)
        queue.drain()
        return self._later.next_ms

    def forget(self) -> None:
        """Return all messages: the queue is deleted."""
        for message in self._later.take_all():
            self.queue.requeue_now(message)
