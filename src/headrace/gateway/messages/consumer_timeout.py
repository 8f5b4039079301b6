# SPDX-License-Identifier: Apache-2.0
"""``x-consumer-timeout``: what consumers hold for too long returns to its queue.

Nothing is noted for a message. A few times within the timeout it is noted how far deliveries have
come; what stands before a note that is old enough is overdue. So a message returns between one and
one and an eighth of the timeout after its delivery. What returned so stays on the consumer's
account until the client settles it, which then does nothing else: a consumer that hangs gets no
more than its prefetch.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.model.arguments.values import number_of
from headrace.model.errors import PreconditionFailed
from headrace.model.queue_kinds.multi_queue import MultiQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.scheduler import Scheduler
    from headrace.model.vhost.virtual_host import VirtualHost

ARGUMENT = "x-consumer-timeout"  # Milliseconds; of a consumer, a queue or a policy.
CHECKS = 8  # Within one timeout.
TIMEOUT_MS_MAX = 1 << 40


def timeout_of(
    vhost: VirtualHost, queue: Queue, arguments: Mapping[str, object], otherwise_ms: int
) -> int:
    """Return the timeout of a consumer in milliseconds; 0 is none.

    Its own argument counts first, then that of the queue or its policy, then ``otherwise_ms``. Of
    several queues the least counts.

    Raises:
        PreconditionFailed: the argument is not a number of milliseconds.
    """
    if ARGUMENT in arguments:
        value = arguments[ARGUMENT]
    elif queue.is_stream:
        return 0
    elif isinstance(queue, MultiQueue):
        each = [timeout_of(vhost, part, arguments, otherwise_ms) for part in queue.sources]
        value = min([timeout_ms for timeout_ms in each if timeout_ms], default=0)
    else:
        value = vhost.effective(queue).get(ARGUMENT, otherwise_ms)
    timeout_ms = number_of(value)
    if timeout_ms is None or not 0 <= timeout_ms <= TIMEOUT_MS_MAX:
        raise PreconditionFailed(
            f"invalid arg '{ARGUMENT}' for queue '{queue.name}' in vhost '{vhost.name}': {value!r}"
        )
    return timeout_ms


class ConsumerTimeout:
    """Watches the deliveries to one consumer."""

    def __init__(
        self,
        consumer: Consumer,
        timeout_ms: int,
        *,
        newest: Callable[[], int],
        overdue: Callable[[int], None],
        goes_on: Callable[[], bool],
    ) -> None:
        """``newest`` tells the number of the latest delivery; ``overdue`` is called with the one
        up to which deliveries are overdue; ``goes_on`` tells whether there is anything to watch.
        """
        self.consumer = consumer
        self.timeout_ms = timeout_ms
        self.period_ms = max(1, timeout_ms // CHECKS)
        self._newest = newest
        self._overdue = overdue
        self._goes_on = goes_on
        self._notes: deque[tuple[int, int]] = deque()  # (when, the latest delivery then)

    def check(self, now_ms: int) -> int:
        """Give back what is overdue; return when to check again, 0 for never."""
        if not self._goes_on():
            return 0
        newest = self._newest()
        if not self._notes or self._notes[-1][1] != newest:
            self._notes.append((now_ms, newest))
        due = -1
        while self._notes and self._notes[0][0] + self.timeout_ms <= now_ms:
            due = self._notes.popleft()[1]
        if due >= 0:
            self._overdue(due)
        return now_ms + self.period_ms


def watch(scheduler: Scheduler, timeout: ConsumerTimeout, now_ms: int) -> None:
    """Have a consumer looked at from now on."""
    scheduler.put(("acks", timeout.consumer), now_ms + timeout.period_ms, timeout.check)


def closing(number: int, timeout_ms: int) -> PreconditionFailed:
    """Return the error of a channel that a consumer timeout closes; clients match the text."""
    return PreconditionFailed(
        f"delivery acknowledgement on channel {number} timed out. Timeout value used: "
        f"{timeout_ms} ms. This timeout value can be configured, see consumers doc guide to learn "
        "more"
    )
