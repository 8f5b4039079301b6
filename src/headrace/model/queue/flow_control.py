# SPDX-License-Identifier: Apache-2.0
"""Flow control and alerts by the length of a queue, as in Qpid's brokers.

Flow control. At the stop threshold the broker stops reading from the queue's publishers, until the
queue has shrunk to the resume threshold. A connection that also consumes from the queue is only
slowed, because its settlements make the queue shorter.

Alerts. Beyond a threshold the broker emits an event ``queue.alert`` and logs a line, and repeats
both once in each repeat gap while the excess lasts. The age of the oldest message is checked at
intervals, so that an alert may be late by a tenth of the age.

Only queues with thresholds have a guard. Thresholds apply to ready messages. With limits or
thresholds under Qpid's names unacked messages count as well, and each delivery is checked.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from headrace.model.arguments.values import number
from headrace.model.errors import InvalidArgument
from headrace.model.queue.destination import PACE_ABOVE
from headrace.model.queue.overflow import Overflow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

CHECK_MS = 50  # The interval between two checks of a queue whose publishers are stopped.
GAP_MS = 60_000  # Default of the shortest time between two alerts for one reason.
AGE_MIN_MS = 1000  # The shortest interval between two checks of the age.
AGE_CHECKS = 10  # Checks within the alerting age.
RESUME_TENTHS = 8  # Default of the resume threshold, in tenths of the stop threshold.

STOP_COUNT = ("qpid.flow_stop_count",)
STOP_SIZE = ("qpid.flow_stop_size", "x-qpid-capacity")
RESUME_COUNT = ("qpid.flow_resume_count",)
RESUME_SIZE = ("qpid.flow_resume_size", "x-qpid-flow-resume-capacity")
ALERT_COUNT = ("qpid.alert_count", "qpid.alert_count_up", "x-qpid-maximum-message-count")
ALERT_SIZE = ("qpid.alert_size", "qpid.alert_size_up", "x-qpid-maximum-queue-depth")
ALERT_MESSAGE = ("x-qpid-maximum-message-size",)
ALERT_AGE = ("x-qpid-maximum-message-age",)
# Unacked messages count for these thresholds, and for the limits in ``LENGTH_LIMITS``.
UNACKED_THRESHOLDS = (*STOP_COUNT, *STOP_SIZE, *ALERT_COUNT, *ALERT_SIZE)
LENGTH_LIMITS = ("qpid.max_count", "qpid.max_size")
GAP_S = "qpid.alert_repeat_gap"
GAP = "x-qpid-minimum-alert-repeat-gap"

THRESHOLD_ARGUMENTS = (
    *STOP_COUNT,
    *STOP_SIZE,
    *RESUME_COUNT,
    *RESUME_SIZE,
    *ALERT_COUNT,
    *ALERT_SIZE,
    *ALERT_MESSAGE,
    *ALERT_AGE,
    GAP_S,
    GAP,
)


def read_threshold(arguments: Mapping[str, object], names: tuple[str, ...]) -> int:
    """Return the lowest threshold among the arguments ``names``; 0 if none is set."""
    return min(
        (number(arguments[name]) for name in names if number(arguments.get(name, 0))), default=0
    )


class FlowGuard:
    """The thresholds of one queue; 0 means no threshold."""

    def __init__(self, queue: Queue, arguments: Mapping[str, object]) -> None:
        self.queue = queue
        self.stop_count = read_threshold(arguments, STOP_COUNT)
        self.stop_size = read_threshold(arguments, STOP_SIZE)
        if arguments.get("x-overflow") == "flow-control":
            self.stop_count = self.stop_count or number(arguments.get("x-max-length", 0))
            self.stop_size = self.stop_size or number(arguments.get("x-max-length-bytes", 0))
        tenths = RESUME_TENTHS
        self.resume_count = (
            read_threshold(arguments, RESUME_COUNT) or self.stop_count * tenths // 10
        )
        self.resume_count = min(self.resume_count, self.stop_count)  # A policy may lower the limit.
        self.resume_size = read_threshold(arguments, RESUME_SIZE) or self.stop_size * tenths // 10
        self.resume_size = min(self.resume_size, self.stop_size)
        self.alert_count = read_threshold(arguments, ALERT_COUNT)
        self.alert_size = read_threshold(arguments, ALERT_SIZE)
        self.alert_message = read_threshold(arguments, ALERT_MESSAGE)
        self.alert_age_ms = read_threshold(arguments, ALERT_AGE)
        self.gap_ms = GAP_MS
        if GAP_S in arguments:
            self.gap_ms = 1000 * number(arguments[GAP_S])
        if GAP in arguments:
            self.gap_ms = number(arguments[GAP])
        self.counts_unacked = any(
            number(arguments.get(name, 0)) for name in (*UNACKED_THRESHOLDS, *LENGTH_LIMITS)
        )
        self.last_alerts: dict[str, int] = {}  # Time of the last alert (ms) for each reason.
        # The next position and the time (ms) of each check of the age.
        self.marks: deque[tuple[int, int]] = deque()

    @property
    def has_thresholds(self) -> bool:
        """True if there is a threshold that depends on the depth or age of the queue."""
        return bool(
            self.stops_publishers or self.alert_count or self.alert_size or self.alert_age_ms
        )

    @property
    def stops_publishers(self) -> bool:
        """True if publishers may be stopped."""
        return bool(self.stop_count or self.stop_size)

    # --- Flow control -----------------------------------------------------------------------

    def check_depth(self, delivered: Message | None = None) -> None:
        """Stop or resume publishers, and raise alerts, after the depth has changed.

        ``delivered`` is a message that is about to be delivered, and then unacked.
        """
        queue = self.queue
        count, size = self.depth()
        if delivered is not None:
            count += 1
            size += delivered.body_size
        if queue.publishers_stopped:
            if self.may_resume(count, size):
                self.resume()
        elif (self.stop_count and count >= self.stop_count) or (
            self.stop_size and size >= self.stop_size
        ):
            self.stop()
        if self.alert_count and count >= self.alert_count:
            self.alert("message-count", count, self.alert_count)
        if self.alert_size and size >= self.alert_size:
            self.alert("queue-depth", size, self.alert_size)

    def check_delivery(self, consumer: Consumer, message: Message) -> None:
        """Check the depth before a delivery that will be unacked."""
        if self.counts_unacked and not consumer.no_ack:
            self.check_depth(message)

    def depth(self) -> tuple[int, int]:
        """Return the depth that thresholds apply to: messages, and bytes of their bodies."""
        queue = self.queue
        if self.counts_unacked:
            return (
                queue.ready_count + queue.unacked_count,
                queue.ready_bytes + queue.unacked_bytes,
            )
        return queue.ready_count, queue.ready_bytes

    def may_resume(self, count: int, size: int) -> bool:
        """Return True if a depth is at or below the resume thresholds."""
        if self.stop_count and count > self.resume_count:
            return False
        return not self.stop_size or size <= self.resume_size

    def stop(self) -> None:
        """Make every publisher wait before its next message."""
        queue = self.queue
        queue.publishers_stopped = True
        queue.pace_above = -1
        log.info("queue %r: publishers wait at %d messages", queue.name, self.depth()[0])
        queue.vhost.scheduler.put(("flow", queue), queue.counters.now_ms + CHECK_MS, self.check)

    def check(self, now_ms: int) -> int:
        """Resume the publishers of a queue that shrank without a drain.

        Return the time of the next check, 0 for none.
        """
        queue = self.queue
        if queue.publishers_stopped and queue.guard is self and not queue.deleted:
            if not self.may_resume(*self.depth()):
                return now_ms + CHECK_MS
            self.resume()
        return 0

    def resume(self) -> None:
        """Resume the publishers."""
        queue = self.queue
        queue.publishers_stopped = False
        queue.pace_above = PACE_ABOVE
        queue.release_waiters()

    # --- Alerts -----------------------------------------------------------------------------

    def check_size(self, message: Message) -> None:
        """Raise an alert if an arrival is too large."""
        if self.alert_message and message.body_size >= self.alert_message:
            self.alert("message-size", message.body_size, self.alert_message)

    def watch_age(self) -> None:
        """Schedule checks of the oldest message's age, if it has a threshold."""
        if self.alert_age_ms:
            queue = self.queue
            queue.vhost.scheduler.put(
                ("alert", queue), queue.counters.now_ms + self.age_check_ms, self.check_age
            )

    @property
    def age_check_ms(self) -> int:
        """Milliseconds between two checks of the age."""
        return max(AGE_MIN_MS, self.alert_age_ms // AGE_CHECKS)

    def check_age(self, now_ms: int) -> int:
        """Raise an alert if the oldest message is too old; return the time of the next check.

        Each check records the position of the next arrival as a mark. A message arrived before
        the first mark behind its position.
        """
        queue = self.queue
        next_check_ms: int = now_ms + self.age_check_ms
        if queue.guard is not self or queue.deleted:
            return 0
        marks = self.marks
        marks.append((queue.counters.next_seq, now_ms))
        if queue.ready_count:
            oldest = queue.ready.first_position(queue.counters.next_seq)
            while len(marks) > 1 and marks[0][0] <= oldest:
                marks.popleft()  # The oldest message arrived after this check.
            if len(marks) > AGE_CHECKS + 2:
                del marks[1]  # The first mark decides: the oldest message is older.
            if marks[0][0] > oldest:
                age_ms = now_ms - marks[0][1]
                if age_ms >= self.alert_age_ms:
                    self.alert("message-age", age_ms, self.alert_age_ms)
        else:
            marks.clear()
            marks.append((queue.counters.next_seq, now_ms))
        return next_check_ms

    def alert(self, reason: str, value: int, limit: int) -> None:
        """Raise an alert, unless there was one for this reason within the repeat gap."""
        queue = self.queue
        now_ms = queue.counters.now_ms
        last_alert_ms = self.last_alerts.get(reason)
        if last_alert_ms is not None and now_ms - last_alert_ms < self.gap_ms:
            return
        self.last_alerts[reason] = now_ms
        log.warning("queue %r: %s %d has reached %d", queue.name, reason, value, limit)
        events = queue.vhost.events
        if events.has_listeners:
            events.emit(
                "queue.alert",
                name=queue.name,
                vhost=queue.vhost.name,
                reason=reason,
                value=value,
                threshold=limit,
                messages=queue.ready_count,
                message_bytes=queue.ready_bytes,
            )


def check_thresholds(arguments: Mapping[str, object], subject: str) -> None:
    """Refuse thresholds that contradict each other; ``subject`` names the queue.

    Raises:
        InvalidArgument: a resume threshold has no stop threshold, or is above it.
    """
    for stop_names, resume_names in ((STOP_COUNT, RESUME_COUNT), (STOP_SIZE, RESUME_SIZE)):
        stop = read_threshold(arguments, stop_names)
        resume = read_threshold(arguments, resume_names)
        name = next((name for name in resume_names if name in arguments), resume_names[0])
        if resume and not stop and arguments.get("x-overflow") != "flow-control":
            raise InvalidArgument(f"invalid arg '{name}' for {subject}: it needs '{stop_names[0]}'")
        if stop and resume > stop:
            other = next(name for name in stop_names if name in arguments)
            raise InvalidArgument(
                f"invalid arg '{name}' for {subject}: {resume} is more than '{other}', {stop}"
            )


def must_report_deliveries(queue: Queue) -> bool:
    """Return True if the virtual host or the guard is called before each delivery."""
    return bool(
        queue.vhost.reports_deliveries or (queue.guard is not None and queue.guard.counts_unacked)
    )


def set_guard(queue: Queue, arguments: Mapping[str, object]) -> None:
    """Set the guard of a queue from its effective arguments, which may have changed."""
    is_needed = arguments.get("x-overflow") == "flow-control" or any(
        name in arguments for name in THRESHOLD_ARGUMENTS
    )
    old_guard = queue.guard
    if not is_needed:
        queue.guard = None
        queue.reports_deliveries = must_report_deliveries(queue)
        if queue.publishers_stopped and old_guard is not None:
            old_guard.resume()
        return
    guard = FlowGuard(queue, arguments)
    if isinstance(old_guard, FlowGuard):
        guard.last_alerts, guard.marks = old_guard.last_alerts, old_guard.marks
    queue.guard = guard
    queue.reports_deliveries = must_report_deliveries(queue)
    if guard.has_thresholds and queue.limits is None:
        queue.limits = Overflow()  # Without limits, the queue reports arrivals to its guard.
    if queue.publishers_stopped and not guard.stops_publishers:
        guard.resume()
    elif queue.publishers_stopped:
        queue.vhost.scheduler.remove(("flow", queue))
        queue.vhost.scheduler.put(("flow", queue), queue.counters.now_ms + CHECK_MS, guard.check)
    queue.vhost.scheduler.remove(("alert", queue))
    guard.watch_age()
