# SPDX-License-Identifier: Apache-2.0
"""The ready messages of a queue: what it takes in, how long it keeps it, and how it ends.

Limits. What exceeds the queue's length goes as its overflow policy has it: turned away, dropped
from the head, or moved to the disk. Where memory is short, data moves to the disk but for the head
of each queue.

Time. A message with a deadline is listed in a heap and goes on time wherever it stands. What is due
goes in portions, so that nobody else has to wait long.

Ends. A message that is dropped, expires or is rejected becomes a dead letter where the queue has a
place for those; after that nothing of it is left, here or in the store.
"""

import logging
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.counters import PAGED_WEIGHT as C_PAGED_WEIGHT
    from headrace.model.counters import Counters
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import SCRATCH as C_SCRATCH
    from headrace.model.message import Message
    from headrace.model.ports import Store
    from headrace.model.queue.ready_list import STALE_MIN, Places

from headrace.model.queue.delivery_count import tell as tell_count

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

RESIDENT_MIN = 256  # Ready messages at a queue's head that are not paged out,
RESIDENT_OCTETS = 65536  # unless they are larger than this, or there are too many such queues.
EXPIRE_MAX = 16384  # Messages that expire in one go; of dead letters LETTERS_MAX of all queues.

OVERFLOW_DROP_HEAD = 0
OVERFLOW_REJECT = 1
OVERFLOW_REJECT_DEAD_LETTER = 2
OVERFLOW_RING_STRICT = 3  # Drop the oldest, but refuse what comes while somebody holds a message.
OVERFLOW_SELF_DESTRUCT = 4  # Delete the queue.
OVERFLOW_TO_DISK = 5  # Have the disk only hold what is too much.


class ReadyMessages(Places):
    """Ready messages under limits; the second of the four classes that make up a queue."""

    def __init__(
        self,
        name: str,
        store: Store,
        counters: Counters,
        vhost: Any,
        id: int,  # noqa: A002 - the field has this name in every definition
        durable: bool,
    ) -> None:
        Places.__init__(self, counters)
        self.name = name
        self.store = store
        self.vhost = vhost
        self.id = id
        self.id_bytes = id.to_bytes(4, "big")
        self.durable = durable
        self.deleted = False
        self.ending = False  # It is deleted, and its messages are on their way elsewhere.
        # Limits; the virtual host fills them in from the arguments.
        self.max_length = -1
        self.max_length_bytes = -1
        self.overflow = OVERFLOW_DROP_HEAD
        self.limited = False  # One of max_length and max_length_bytes is set.
        self.counts_unacked = False  # What somebody holds counts for them, as in Qpid's brokers.
        self.message_ttl_ms = -1
        self.delivery_limit = -1  # How often a message may come back; below zero is for ever.
        self.dead_letter_exchange: str | None = None
        self.dead_letter_routing_key: str | None = None
        self.alternate_exchange: str | None = None  # For what is rejected or orphaned.
        self.dead_letter_at_least_once = False  # Dead letters stay here until they have arrived.
        self.guard: Any = None  # A Guard, if there are thresholds; see model.guard.
        # State.
        self.unacked_count = 0  # Messages that somebody holds,
        self.unacked_bytes = 0  # and the octets of their bodies.
        self.pending_count = 0  # Messages of prepared transactions that are meant for this queue.
        self.expiring: Any = None  # (deadline_ms, seq, message)
        self.on_deadline: Callable[[Any, int], None] | None = None

    # --- Room -------------------------------------------------------------------------------------

    def is_full_for(self, body_size: int) -> bool:
        """Tell whether the overflow policy turns the next message away."""
        if (
            not self.limited
            or self.overflow == OVERFLOW_DROP_HEAD
            or self.overflow == OVERFLOW_TO_DISK
        ):
            return False
        if self.overflow == OVERFLOW_RING_STRICT:
            held = self.unacked_count
            if not held or self.max_length < 0:
                return held > 0 and self.exceeds_limits(1, body_size)
            return self.ready_count + held >= self.max_length or self.exceeds_limits(1, body_size)
        if self.max_length >= 0 and self.length() >= self.max_length:
            return True
        return self.max_length_bytes >= 0 and self.octets() + body_size > self.max_length_bytes

    def length(self) -> int:
        """Return how many messages count for the length limit."""
        if self.counts_unacked:
            return self.ready_count + self.unacked_count
        return self.ready_count

    def octets(self) -> int:
        """Return how many octets count for the limit of octets."""
        if self.counts_unacked:
            return self.ready_bytes + self.unacked_bytes
        return self.ready_bytes

    # Keeps 0-9-1/basic#02, 0-9/basic#02, 0-9/message#02, 0-10/s058.
    def enforce_limits(self, message: Message | None) -> None:
        """Do what the limits ask for after ``message`` came, or with None after some came back."""
        if self.overflow == OVERFLOW_TO_DISK:
            if message is not None and message.consumer is None and self.exceeds_limits(0, 0):
                self.page_out(message)
        elif message is not None:
            self.drop_head()
        elif self.overflow == OVERFLOW_DROP_HEAD or self.overflow == OVERFLOW_RING_STRICT:
            self.drop_head_in_batches()
        if self.guard is not None:
            self.guard.look()

    def exceeds_limits(self, more: int, octets: int) -> bool:
        """Tell whether the limits do not allow so many more messages and octets."""
        if self.max_length >= 0 and self.length() + more > self.max_length:
            return True
        return self.max_length_bytes >= 0 and self.octets() + octets > self.max_length_bytes

    # Keeps 0-9-1/basic#05, 0-9/basic#05, 0-9/message#05, 0-10/s061.
    def drop_head(self) -> None:
        """Drop from the head what exceeds the length limits (x-overflow drop-head)."""
        while self.ready_count and self.exceeds_limits(0, 0):
            message = self.next_ready()
            if message is None:
                return
            self.dead_letter(message, "maxlen")

    def drop_head_in_batches(self) -> None:
        """As :meth:`drop_head`, where it may be very long: a policy changed, or many came back."""
        gathers = self.batch_dead_letters()
        try:
            while self.ready_count and self.exceeds_limits(0, 0):
                message = self.next_ready()
                if message is None:
                    return
                if not self.defer_dead_letter(message, "maxlen"):
                    self.dead_letter(message, "maxlen")
        finally:
            if gathers:
                self.vhost.dead_letters.end()

    def weight(self, message: Message) -> int:
        """Octets of memory that a message is counted with."""
        if message.flags & C_PAGED:
            return C_PAGED_WEIGHT
        return message.body_size + (message.header_units << 8) + C_MESSAGE_OVERHEAD

    def relieve(self, message: Message) -> None:
        """Memory is short: page out what was pushed, unless it is near the queue's head."""
        if (
            self.ready_count > RESIDENT_MIN
            or self.ready_bytes > RESIDENT_OCTETS
            or self.counters.memory_used
            > self.counters.memory_max + (self.counters.memory_max >> 3)
        ):
            self.page_out(message)

    # Keeps 0-9-1/basic#04, 0-9/basic#04, 0-9/message#04, 0-10/s060.
    def page_out(self, message: Message) -> None:
        """Move a message's data to the disk, if there is one."""
        if not message.flags & C_PAGED and self.store.page_out(message):
            gained = message.body_size + (message.header_units << 8) + C_MESSAGE_OVERHEAD
            self.counters.memory_used -= gained - C_PAGED_WEIGHT

    # --- Life -------------------------------------------------------------------------------------

    def set_deadline(self, message: Message, arrived_ms: int) -> None:
        """Apply the queue's time to live to a message that arrived at ``arrived_ms``."""
        deadline = arrived_ms + self.message_ttl_ms
        if not message.deadline_ms or deadline < message.deadline_ms:
            message.deadline_ms = deadline

    def set_deadlines(self, first: int, last: int, arrived_ms: int, octets_max: int) -> int:
        """Apply the queue's time to live to ready messages at the positions ``[first, last)``.

        They count as having arrived at ``arrived_ms``. Return the position to go on with when
        there were more than about ``octets_max`` octets of them, else ``last``.
        """
        message: Message
        found = self.peek(first, last, octets_max, [])
        for message in found:
            self.set_deadline(message, arrived_ms)
            self.schedule_expiry(message)
        if not found:
            return last
        message = found[len(found) - 1]
        return message.seq + 1

    def schedule_expiry(self, message: Message) -> None:
        """Have the message expire on time wherever it stands in the queue."""
        if self.expiring is None:
            self.expiring = []
        elif len(self.expiring) > 2 * self.ready_count + STALE_MIN:
            self.sweep_deadlines()
        heappush(self.expiring, (message.deadline_ms, message.seq, message))
        if self.on_deadline is not None and self.expiring[0][2] is message:
            self.on_deadline(self, message.deadline_ms)

    def sweep_deadlines(self) -> None:
        """List the deadlines of ready messages only, and each of them once.

        What somebody holds is listed again when it comes back. At least half of the list goes, so
        that a message costs the same however many there are.
        """
        message: Message
        listed: dict[int, tuple[int, int, Message]] = {}
        for entry in self.expiring:
            message = entry[2]
            if not message.flags & C_GONE and message.consumer is None:
                known = listed.get(entry[1])
                if known is None or entry[0] < known[0]:
                    listed[entry[1]] = entry
        self.expiring = list(listed.values())
        heapify(self.expiring)

    def expire(self, now_ms: int) -> int:
        """Drop and dead-letter what is due; return the next deadline, 0 when there is none.

        So that nobody else has to wait long, some of what is due may be left for the next call.
        """
        deadline: int
        following = 0
        budget = EXPIRE_MAX
        letters = self.dead_letter_exchange is not None
        counters = self.counters
        gathers = False
        if letters:
            counters.begin_letters(now_ms)
            gathers = self.batch_dead_letters()
        try:
            while self.expiring:
                deadline, _, message = self.expiring[0]
                gone = message.flags & C_GONE or message.consumer is not None
                spent = budget == 0 or (letters and counters.letters_left <= 0)
                if not gone and (deadline > now_ms or spent):
                    following = deadline
                    break
                heappop(self.expiring)
                if gone:
                    continue
                budget -= 1
                if letters:
                    counters.letters_left -= 1
                self.ready_count -= 1
                self.ready_bytes -= message.body_size
                self.stale_count += 1
                self.dead_letter(message, "expired")
        finally:
            if gathers:
                self.vhost.dead_letters.end()
        if following == 0:
            self.expiring = None
        if self.stale_count > STALE_MIN and self.stale_count > self.ready_count:
            self.sweep()
        return following

    def restore(self, message: Message, arrived_ms: int) -> None:
        """Take back a message that the store recovered; in order of seq, before any consumer."""
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, arrived_ms)
        self.counters.memory_used += self.weight(message)
        self.push(message)
        if message.deadline_ms:
            self.schedule_expiry(message)

    def restore_unacked(self, message: Message) -> bool:
        """Take back a recovered message that ``message.consumer`` holds; false if it is lost."""
        self.counters.memory_used += self.weight(message)
        self.unacked_count += 1
        self.unacked_bytes += message.body_size
        return True

    # --- Departures -------------------------------------------------------------------------------

    def dequeue(self) -> Message | None:
        """Remove the first ready message that is still alive and bring its data into memory."""
        while True:
            message = self.next_ready()
            if message is None:
                return None
            if message.deadline_ms and message.deadline_ms <= self.counters.now_ms:
                if not self.defer_dead_letter(message, "expired"):
                    self.dead_letter(message, "expired")
                continue
            if message.flags & C_PAGED and not self.load(message):
                continue
            return message

    def load(self, message: Message) -> bool:
        """Load a paged message; a message that cannot be read any more is dropped, and logged."""
        before = self.weight(message)
        try:
            self.store.load(message)
        except OSError as error:
            log.error(
                "queue %r: message %d cannot be read and is dropped: %s",
                self.name,
                message.seq,
                error,
            )
            self.remove(message)
            return False
        if message.data is not None:
            message.measure()
        self.counters.memory_used += self.weight(message) - before
        if message.deliveries and self.delivery_limit >= 0:
            tell_count(self, message)
        return True

    def dead_letter(self, message: Message, reason: str) -> None:
        """Let go of a message that becomes a dead letter, at once or once that succeeds."""
        if self.dead_letter_exchange is None and self.alternate_exchange is None:
            self.remove(message)
            return
        begun = self.begin_dead_letter(message)
        try:
            if self.publish_dead_letter(message, reason):
                self.remove(message)
            elif not message.flags & C_GONE:
                self.pending_count += 1
                message.consumer = self.vhost.dead_letters.keep_undelivered(self, message, reason)
        finally:
            if begun:
                self.vhost.dead_letters.end()

    def begin_dead_letter(self, message: Message) -> bool:
        """Begin the transaction of a letter and of the settlement of what it was, if need be.

        Without it the journal, torn between the two, would have the message in both places.
        """
        if self.dead_letter_exchange is None and self.alternate_exchange is None:
            return False
        if self.vhost is None or not message.position or message.flags & C_SCRATCH:
            return False
        return bool(self.vhost.dead_letters.begin())

    def batch_dead_letters(self) -> bool:
        """Let the letters that follow share one transaction; the caller ends it if true."""
        if self.dead_letter_exchange is None and self.alternate_exchange is None:
            return False
        return self.vhost is not None and bool(self.vhost.dead_letters.join_transaction())

    def defer_dead_letter(self, message: Message, reason: str) -> bool:
        """Put a death off for a moment when there are very many, so that others are served.

        The message is held aside then, and stays the queue's in the journal until it is a letter.
        """
        if self.dead_letter_exchange is None and self.alternate_exchange is None:
            return False
        return self.vhost is not None and bool(
            self.vhost.dead_letters.postpone(self, message, reason)
        )

    def retry_dead_letter(self, message: Message, reason: str) -> bool:
        """Try to deliver a dead letter that was kept; tell whether it is gone."""
        begun = self.begin_dead_letter(message)
        try:
            if not self.publish_dead_letter(message, reason):
                return False
            self.remove(message)
        finally:
            if begun:
                self.vhost.dead_letters.end()
        return True

    def publish_dead_letter(self, message: Message, reason: str) -> bool:
        """Pass a message on to the dead-letter or the alternate exchange, if the queue has one.

        False when the queue's dead letters are to arrive, and this one does not yet.
        """
        if self.dead_letter_exchange is None and self.alternate_exchange is None:
            return True
        if self.vhost is None:
            return True
        wanted = message.flags & C_PAGED != 0 and self.vhost.dead_letters.has_target(self, reason)
        if wanted and not self.load(message):
            return True
        arrived: bool = self.vhost.dead_letters.dead_letter(message, self, reason)
        return arrived or not self.dead_letter_at_least_once

    def remove(self, message: Message) -> None:
        """Let go of a message for good: in memory, in the journal, in the scratch log."""
        if message.flags & C_GONE:
            return
        self.counters.memory_used -= self.weight(message)
        message.flags |= C_GONE
        if message.position:
            if message.flags & C_SCRATCH:
                self.store.release(message)
            elif self.deleted and not self.ending:
                self.store.forget(self.id, message.position)
            else:
                self.store.settle(self.id, message.seq, message.position)
        message.data = None
        message.parts = None
        message.consumer = None

    def forget_ready(self, settle: bool) -> None:
        """Empty the rings; ``settle`` tells the store of each message."""
        while True:
            message = self.next_ready()
            if message is None:
                break
            if not settle and message.position and not message.flags & C_SCRATCH:
                self.store.forget(self.id, message.position)
                message.position = 0
            self.remove(message)
        self.ring = None
        self.rings = None
        self.returned = None
        self.expiring = None
        self.stale_count = 0

    def orphan_some(self, most: int) -> int:
        """Pass up to so many ready messages on to the alternate exchange, in one transaction.

        Return how many more it could have been.
        """
        gathers = self.batch_dead_letters()
        try:
            while most > 0:
                message = self.next_ready()
                if message is None:
                    break
                most -= 1
                if message.deadline_ms and message.deadline_ms <= self.counters.now_ms:
                    self.dead_letter(message, "expired")
                elif not message.flags & C_PAGED or self.load(message):
                    self.orphan(message)
        finally:
            if gathers:
                self.vhost.dead_letters.end()
        return most

    def orphan(self, message: Message) -> None:
        """Pass a message of a queue that ends on to the alternate exchange, if it has one."""
        begun = self.begin_dead_letter(message)
        try:
            if self.alternate_exchange is not None:
                self.publish_dead_letter(message, "orphaned")
            self.remove(message)
        finally:
            if begun:
                self.vhost.dead_letters.end()
