# SPDX-License-Identifier: Apache-2.0
"""Sends the dead letters of a queue to its dead-letter or alternate exchange.

A dead letter and the settlement of its original are one store transaction; otherwise a crash
between the two would leave the message in both places. `headrace.model.vhost.dead_lettering` routes
dead letters and drops dead letters in cycles.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import SCRATCH as C_SCRATCH
    from headrace.model.message import Message

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue


class DeadLetterSender:
    """Sends the dead letters of one queue.

    With the strategy at-least-once, a message stays in the queue until its dead letter has arrived.
    """

    def __init__(self, queue: "Queue") -> None:
        self.queue = queue

    def has_exchange(self) -> bool:
        """Return True if the queue has a dead-letter exchange or an alternate exchange."""
        queue = self.queue
        if queue.dead_letter_exchange is None and queue.alternate_exchange is None:
            return False
        return queue.vhost is not None

    def begin(self, message: Message) -> bool:
        """Begin a store transaction for a stored message.

        Return True if the caller must call :meth:`end`.
        """
        if not self.has_exchange() or not message.position or message.flags & C_SCRATCH:
            return False
        return bool(self.queue.vhost.dead_letters.begin())

    def begin_batch(self) -> bool:
        """Begin a store transaction for several dead letters.

        Return True if the caller must call :meth:`end`.
        """
        return self.has_exchange() and bool(self.queue.vhost.dead_letters.join_transaction())

    def end(self) -> None:
        """Commit the transaction of :meth:`begin` or :meth:`begin_batch`."""
        self.queue.vhost.dead_letters.end()

    def defer(self, message: Message, reason: str) -> bool:
        """Postpone a dead letter if too many were sent in this millisecond.

        Return True if it was postponed. In the journal the message stays in the queue until the
        dead letter is sent.
        """
        if not self.has_exchange():
            return False
        return bool(self.queue.vhost.dead_letters.postpone(self.queue, message, reason))

    def dead_letter(self, message: Message, reason: str) -> None:
        """Send a dead letter and remove its message.

        With at-least-once, a dead letter that did not arrive is retried later.
        """
        queue = self.queue
        begun = self.begin(message)
        try:
            if self.publish(message, reason):
                self.count_arrival()
                queue.remove(message)
            elif not message.flags & C_GONE:
                queue.pending_count += 1
                message.consumer = queue.vhost.dead_letters.keep_undelivered(queue, message, reason)
        finally:
            if begun:
                self.end()

    def retry(self, message: Message, reason: str) -> bool:
        """Send an undelivered dead letter again; return True if it arrived."""
        begun = self.begin(message)
        try:
            if not self.publish(message, reason):
                return False
            self.count_arrival()
            self.queue.remove(message)
        finally:
            if begun:
                self.end()
        return True

    def count_arrival(self) -> None:
        """Count the arrival of a dead letter under the strategy at-least-once."""
        if self.queue.dead_letter_at_least_once and self.queue.dead_letter_exchange is not None:
            self.queue.counters.deaths["dead_confirmed"] += 1

    def publish(self, message: Message, reason: str) -> bool:
        """Publish a dead letter; return False if it did not arrive under at-least-once."""
        if not self.has_exchange():
            return True
        queue = self.queue
        must_load = message.flags & C_PAGED != 0 and queue.vhost.dead_letters.has_target(
            queue, reason
        )
        if must_load and not queue.load(message):
            return True
        arrived: bool = queue.vhost.dead_letters.dead_letter(message, queue, reason)
        return arrived or not queue.dead_letter_at_least_once

    def send_unconvertible(self, message: Message, text: str) -> None:
        """Dead-letter a message that cannot be converted for a consumer; ``text`` is the cause."""
        queue = self.queue
        begun = self.begin(message)
        try:
            if not queue.deleted and queue.vhost is not None:
                queue.vhost.dead_letters.dead_letter(message, queue, "unconvertible", text)
            queue.remove(message)
        finally:
            if begun:
                self.end()

    # Keeps 0-10/s179, 0-10/s180.
    def orphan(self, message: Message) -> None:
        """Remove a message of a deleted queue; publish it to the alternate exchange, if any."""
        queue = self.queue
        begun = self.begin(message)
        try:
            if queue.alternate_exchange is not None:
                self.publish(message, "orphaned")
            queue.remove(message)
        finally:
            if begun:
                self.end()

    def orphan_some(self, maximum: int) -> int:
        """Publish up to ``maximum`` ready messages to the alternate exchange, in one transaction.

        Return ``maximum`` less the number of messages.
        """
        queue = self.queue
        batch = self.begin_batch()
        try:
            while maximum > 0:
                message = queue.ready.pop_oldest()
                if message is None:
                    break
                maximum -= 1
                if message.deadline_ms and message.deadline_ms <= queue.counters.now_ms:
                    queue.dead_letter(message, "expired")
                elif not message.flags & C_PAGED or queue.load(message):
                    self.orphan(message)
        finally:
            if batch:
                self.end()
        return maximum
