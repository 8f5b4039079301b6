# SPDX-License-Identifier: Apache-2.0
"""``x-consumer-timeout``: deliveries that a consumer holds for too long return to their queue.

Deliveries have no timestamps. Instead the number of the latest delivery is sampled ``CHECKS``
times within the timeout. Deliveries up to a sample are overdue once the sample is as old as the
timeout. So a message returns between one and one and an eighth of the timeout after its delivery.

A returned delivery counts against the consumer's prefetch until the client settles it. Settling has
no other effect. A consumer that hangs thus gets no more than its prefetch. Deliveries return by
`Channel.requeue_overdue` (``gateway/v0_x/channel/channel.py``) and `Session010.requeue_overdue`
(``gateway/v0_10/session/session.py``).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.model.arguments.values import parse_integer
from headrace.model.errors import PreconditionFailed
from headrace.model.queue_kinds.multi_queue import MultiQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.scheduler import Scheduler
    from headrace.model.vhost.virtual_host import VirtualHost

ARGUMENT = "x-consumer-timeout"  # Milliseconds; of a consumer, a queue or a policy.
CHECKS = 8  # Samples within one timeout.
TIMEOUT_MS_MAX = 1 << 40


def find_timeout_ms(
    vhost: VirtualHost, queue: Queue, arguments: Mapping[str, object], default_ms: int
) -> int:
    """Return the timeout of a consumer in milliseconds; 0 is none.

    The consumer's own argument takes precedence, then that of the queue or its policy, then
    ``default_ms``. A consumer of several queues has the shortest of their timeouts.

    Raises:
        PreconditionFailed: the argument is not a number of milliseconds.
    """
    if ARGUMENT in arguments:
        value = arguments[ARGUMENT]
    elif queue.is_stream:
        return 0
    elif isinstance(queue, MultiQueue):
        timeouts_ms = [
            find_timeout_ms(vhost, part, arguments, default_ms) for part in queue.sources
        ]
        value = min([timeout_ms for timeout_ms in timeouts_ms if timeout_ms], default=0)
    else:
        value = vhost.effective_arguments(queue).get(ARGUMENT, default_ms)
    timeout_ms = parse_integer(value)
    if timeout_ms is None or not 0 <= timeout_ms <= TIMEOUT_MS_MAX:
        raise PreconditionFailed(
            f"invalid arg '{ARGUMENT}' for queue '{queue.name}' in vhost '{vhost.name}': {value!r}"
        )
    return timeout_ms


class ConsumerTimeout:
    """The timer for the overdue deliveries of one consumer."""

    def __init__(
        self,
        consumer: Consumer,
        timeout_ms: int,
        *,
        newest: Callable[[], int],
        overdue: Callable[[int], None],
        is_active: Callable[[], bool],
    ) -> None:
        """``newest`` returns the number of the latest delivery. ``overdue`` receives the number up
        to which deliveries are overdue. ``is_active`` returns False once the timer can
        stop.
        """
        self.consumer = consumer
        self.timeout_ms = timeout_ms
        self.period_ms = -(-timeout_ms // CHECKS)  # Rounded up.
        self._newest = newest
        self._overdue = overdue
        self._is_active = is_active
        self._samples: deque[tuple[int, int]] = deque()  # Time in ms, latest delivery.

    def check(self, now_ms: int) -> int:
        """Return overdue deliveries to their queue; return when to check again, 0 for never."""
        if not self._is_active():
            return 0
        newest = self._newest()
        if not self._samples or self._samples[-1][1] != newest:
            self._samples.append((now_ms, newest))
        last_overdue = -1
        while self._samples and self._samples[0][0] + self.timeout_ms <= now_ms:
            last_overdue = self._samples.popleft()[1]
        if last_overdue >= 0:
            self._overdue(last_overdue)
        next_ms = now_ms + self.period_ms
        if self._samples:  # A rounded period may not divide the timeout.
            next_ms = min(next_ms, self._samples[0][0] + self.timeout_ms)
        return next_ms


def start_timer(scheduler: Scheduler, timeout: ConsumerTimeout, now_ms: int) -> None:
    """Start the timer of a consumer."""
    scheduler.put(("acks", timeout.consumer), now_ms + timeout.period_ms, timeout.check)


def timeout_error(number: int, timeout_ms: int) -> PreconditionFailed:
    """Return the error of a channel that a consumer timeout closes; clients match the text."""
    return PreconditionFailed(
        f"delivery acknowledgement on channel {number} timed out. Timeout value used: "
        f"{timeout_ms} ms. This timeout value can be configured, see consumers doc guide to learn "
        "more"
    )
