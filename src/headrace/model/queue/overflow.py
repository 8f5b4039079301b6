# SPDX-License-Identifier: Apache-2.0
"""The length limits of a queue, and its policy for messages beyond them.

A queue beyond a limit drops its oldest messages, rejects arrivals, keeps further messages on disk
only, or is deleted. `Queue.enqueue` returns 1 for a rejected arrival. The gateway then nacks the
publish (``SlowPathReceiver.refuse``).
"""

import logging
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import Message

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

OVERFLOW_DROP_HEAD = 0
OVERFLOW_REJECT = 1
OVERFLOW_REJECT_DEAD_LETTER = 2
OVERFLOW_RING_STRICT = 3  # Drop the oldest, but reject arrivals while messages are unacked.
OVERFLOW_SELF_DESTRUCT = 4  # Delete the queue.
OVERFLOW_TO_DISK = 5  # Keep messages beyond the limits on disk only.

if not cython.compiled:
    C_DROP_HEAD = OVERFLOW_DROP_HEAD
    C_REJECT_DEAD_LETTER = OVERFLOW_REJECT_DEAD_LETTER
    C_RING_STRICT = OVERFLOW_RING_STRICT
    C_SELF_DESTRUCT = OVERFLOW_SELF_DESTRUCT
    C_TO_DISK = OVERFLOW_TO_DISK


class Overflow:
    """Limits in messages and in bytes of their bodies; -1 means no limit."""

    def __init__(
        self,
        max_length: int = -1,
        max_length_bytes: int = -1,
        policy: int = OVERFLOW_DROP_HEAD,
        counts_unacked: bool = False,
    ) -> None:
        self.max_length = max_length
        self.max_length_bytes = max_length_bytes
        self.policy = policy
        self.counts_unacked = counts_unacked  # Unacked messages count as well (Qpid's rule).

    # Keeps 0-10/s058.
    def is_full_for(self, queue: "Queue", body_size: int) -> bool:
        """Return True if the policy rejects an arrival with a body of this size."""
        policy = self.policy
        if policy in (C_DROP_HEAD, C_TO_DISK):
            return False
        if policy == C_RING_STRICT:
            if not queue.unacked_count:
                return False
            if 0 <= self.max_length <= queue.ready.count + queue.unacked_count:
                return True
            total = queue.ready.bytes + queue.unacked_bytes + body_size
            return 0 <= self.max_length_bytes < total
        if 0 <= self.max_length <= self.length(queue):
            return True
        return 0 <= self.max_length_bytes < self.bytes(queue) + body_size

    def length(self, queue: "Queue") -> int:
        """Return the number of messages that count for the limit."""
        if self.counts_unacked:
            return queue.ready.count + queue.unacked_count
        return queue.ready.count

    def bytes(self, queue: "Queue") -> int:
        """Return the bytes that count for the limit."""
        if self.counts_unacked:
            return queue.ready.bytes + queue.unacked_bytes
        return queue.ready.bytes

    def exceeds(self, queue: "Queue", count: int, body_bytes: int) -> bool:
        """Return True if the queue would exceed a limit with ``count`` more messages.

        ``body_bytes`` is the size of their bodies.
        """
        if 0 <= self.max_length < self.length(queue) + count:
            return True
        return 0 <= self.max_length_bytes < self.bytes(queue) + body_bytes

    def reject(self, queue: "Queue", message: Message) -> None:
        """Reject an arrival, as the policy requires: dead-letter it, or delete the queue."""
        if self.policy == C_REJECT_DEAD_LETTER:
            sender = queue.dead_letter_sender()
            queue.count_death("maxlen")
            begun = sender.begin(message)
            try:
                sender.publish(message, "maxlen")
                queue.remove_arrival(message)
            finally:
                if begun:
                    sender.end()
            return
        if self.policy == C_SELF_DESTRUCT and not queue.deleted:
            log.warning("queue %r is full and is deleted: its policy is self-destruct", queue.name)
            queue.vhost.destruct(queue)
        queue.remove_arrival(message)

    # Keeps 0-10/s058.
    def enforce(self, queue: "Queue", message: Message | None) -> None:
        """Apply the policy after ``message`` arrived; None after messages were requeued."""
        policy = self.policy
        if policy == C_TO_DISK:
            if message is not None and message.consumer is None and self.exceeds(queue, 0, 0):
                queue.page_out(message)
        elif message is not None:
            self.drop_head(queue)
        elif policy in (C_DROP_HEAD, C_RING_STRICT):
            self.drop_head_in_batch(queue)
        if queue.guard is not None:
            queue.guard.check_depth()

    # Keeps 0-9-1/basic#05, 0-9/basic#05, 0-9/message#05, 0-10/s061.
    def drop_head(self, queue: "Queue") -> None:
        """Drop the oldest messages while the queue is beyond a limit, persistent ones too.

        A message of a higher priority is dropped first. Within a priority, the lowest position is
        dropped first, also in a sorted queue and in a queue with message groups.
        """
        while queue.ready.count and self.exceeds(queue, 0, 0):
            message = queue.ready.pop_oldest()
            if message is None:
                return
            queue.dead_letter(message, "maxlen")

    def drop_head_in_batch(self, queue: "Queue") -> None:
        """Drop many messages in one transaction, after a policy change or a requeue."""
        if not queue.ready.count or not self.exceeds(queue, 0, 0):
            return
        sender = queue.dead_letter_sender()
        batch = sender.begin_batch()
        try:
            while queue.ready.count and self.exceeds(queue, 0, 0):
                message = queue.ready.pop_oldest()
                if message is None:
                    return
                queue.dead_letter_soon(message, "maxlen")
        finally:
            if batch:
                sender.end()
