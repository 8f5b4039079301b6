# SPDX-License-Identifier: Apache-2.0
"""A queue's messages and the consumers that they are handed to.

The round. Consumers take turns; one without room is parked outside the round until it reports room
again, so nothing in here looks at more than one consumer with room at a time.

Settlement. Whoever takes a message holds it until it is settled, comes back to its place, or is
discarded. Before a message is handed out the journal says that it may have been delivered; it says
so for many at once, ahead of time.

Pace. Publishers that are faster than the consumers wait until the queue is short again.
"""

import logging
import operator
from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.model.counters import Counters
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import SCRATCH as C_SCRATCH
    from headrace.model.message import Message
    from headrace.model.ports import Store
    from headrace.model.queue.retention import ReadyMessages

from headrace.model.queue.delivery_count import COUNT_MAX as COUNTED_MAX
from headrace.model.queue.delivery_count import tell as tell_count
from headrace.model.queue.retention import OVERFLOW_REJECT_DEAD_LETTER, OVERFLOW_SELF_DESTRUCT

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

COUNT_MAX = COUNTED_MAX
RESERVATION = 65536  # How far ahead of the deliveries the journal says "may have been delivered".
PACE_ABOVE = 8192  # Ready messages in a queue with consumers, above which its publishers pause.
PACE_BELOW = 2048  # Ready messages below which they go on.
PRIORITY = operator.attrgetter("priority")


class Consumer:
    """What a queue sees of whoever takes its messages; a gateway fills in the three methods."""

    def __init__(self, queue: "Queue", tag: str, no_ack: bool) -> None:
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = False
        self.no_local = False
        self.selective = False  # Ask ``accepts`` before each message: prefetch-size, or picky.
        self.filters = False  # May pass messages over, so it has a cursor: no-local, a selector.
        self.selector: Any = None  # The Selector of the messages that it takes.
        self.auto_close = False  # It ends when there is nothing more for it.
        self.cursor: Any = None  # How far it has looked, while it consumes and is picky.
        self.looking = False  # It has not looked at all there is, and goes on in a moment.
        self.priority = 0
        self.family = 0  # The kind of content that its ``put`` wants: see model/message.py.
        self.publisher = 0  # The number of its connection, as in Message.publisher.
        self.parked = False  # Out of the queue's round, waiting for room.
        self.browses = False  # Is shown messages without taking them.
        self.arguments: dict[str, Any] = {}

    def can(self) -> bool:
        """Tell whether one more message may be handed over now."""
        return False

    def accepts(self, message: Message) -> int:
        """Tell whether this message may come: 1 yes, 0 never, 2 not now, for want of room.

        Asked only where ``selective`` is set.
        """
        return 1

    def deliver(self, message: Message) -> None:
        """Take a message. Its data is in memory; unless ``no_ack``, it stays this consumer's."""

    def hold(self, position: int) -> None:
        """Let nothing that is delivered from now on leave before the log is durable up to here.

        So what a client has seen is known to have been delivered, whatever happens to us.
        """

    def put(
        self, d: bytes | bytearray, lo: int, address_len: int, end: int, redelivered: int
    ) -> int:
        """Take a message of class basic straight from a buffer, laid out as in Message.data.

        Only with no_ack.
        """
        return 0

    def lags(self) -> bool:
        """Return True if what was given before waits: large messages are better shared then."""
        return False

    def pours(self) -> bool:
        """Whether it takes records of a stream where they were read, by ``put_record``."""
        return False

    def put_record(
        self,
        d: bytes | bytearray,
        lo: int,
        address_len: int,
        end: int,
        offset: int,
        arrived_ms: int,
    ) -> int:
        """Take a record of a stream, laid out in ``d[lo:end]`` as in Message.data."""
        return 0

    def cancelled(self) -> None:
        """The queue is gone, or will not serve this consumer any longer."""

    def looked(self) -> None:
        """This consumer, which was ``looking``, has looked at all there is."""

    def ended(self) -> None:
        """This consumer has all that it asked for; it is off its queue."""
        self.cancelled()

    def failed(self, error: Exception) -> None:
        """This consumer cannot have what it asked for; it is off its queue."""
        self.cancelled()


class Cursor:
    """How far a browser, or a consumer that chooses, has looked."""

    def __init__(self, consumer: Consumer, levels: int) -> None:
        self.consumer = consumer
        self.browses = consumer.browses  # What came back behind it is not shown again.
        self.seen = [0] * levels  # The last seq that it was shown, by level.
        self.ahead: Any = None  # Copies of entries of ``returned`` that it may still be shown.
        self.looks = 0  # In a row.


class ServedMessages(ReadyMessages):
    """Messages and who takes them; the third of the four classes that make up a queue."""

    def __init__(
        self,
        name: str,
        store: Store,
        counters: Counters,
        vhost: Any,
        id: int,  # noqa: A002 - the field has this name in every definition
        durable: bool,
    ) -> None:
        ReadyMessages.__init__(self, name, store, counters, vhost, id, durable)
        self.is_stream = False  # Messages stay when they are taken; see model.stream.
        self.published = 0
        self.delivered = 0
        self.acknowledged = 0
        self.used_ms = counters.now_ms  # For x-expires.
        self.reserved = 0  # The journal says that up to here may have been delivered, durably.
        self.reserving = 0  # What it says last,
        self.reserving_at = 0  # and the log position at which that is durable.
        self.consumers: Any = None
        self.active: Any = None
        self.turn = 0
        self.ranked = False  # Some consumer has a priority other than 0.
        self.selective = 0  # Consumers that do not take every message.
        self.exclusive_consumer: Consumer | None = None
        self.traced = False  # The virtual host wants to see each delivery.
        self.exclusive_only = False  # Every consumer is exclusive.
        self.browse_only = False  # Nobody takes from it: every consumer browses.
        self.single_active = False  # x-single-active-consumer: one at a time gets messages,
        self.single_active_consumer: Consumer | None = None  # and this is the one.
        self.backoff: Any = None  # A Backoff, where what comes back waits; see model.retry.
        self.waiters: Any = None  # Paced publishers.
        self.pace_above = PACE_ABOVE  # Ready messages above which publishers are paced;
        self.stopped = False  # now they are, by flow control, until its guard lets them go on.

    # --- Arrivals ---------------------------------------------------------------------------------

    def ready_consumer(self) -> Consumer | None:
        """Return a consumer that may have the next arrival at once, if nothing waits before it."""
        if self.ready_count or self.active is None or self.selective:
            return None
        return self.pick()

    def has_ready_consumer(self) -> bool:
        """Tell whether a consumer may have the next arrival at once."""
        return self.ready_consumer() is not None

    def would_reject(self, body_size: int) -> bool:
        """Tell whether the next message is turned away: no room, and nobody takes it at once."""
        return self.limited and self.is_full_for(body_size) and not self.has_ready_consumer()

    def enqueue(self, message: Message) -> int:
        """Take a message that was routed here; 1 when the overflow policy refused it, else 0."""
        if self.limited and self.would_reject(message.body_size):
            self.reject_overflow(message)
            return 1
        self.published += 1
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, self.counters.now_ms)
        self.counters.memory_used += self.weight(message)
        if self.ready_count == 0 and self.active is not None and not self.selective:
            consumer = self.pick()
            if consumer is not None:
                self.dispatch(consumer, message)
                return 0
        self.push(message)
        if message.deadline_ms:
            self.schedule_expiry(message)
        if self.limited:
            self.enforce_limits(message)
        if self.selective:
            self.drain()
        return 0

    def reject_overflow(self, message: Message) -> None:
        """Let go of an arrival that the overflow policy refuses."""
        if self.overflow == OVERFLOW_REJECT_DEAD_LETTER:
            begun = self.begin_dead_letter(message)
            try:
                self.publish_dead_letter(message, "maxlen")
                self.forget_arrival(message)
            finally:
                if begun:
                    self.vhost.dead_letters.end()
            return
        if self.overflow == OVERFLOW_SELF_DESTRUCT and not self.deleted:
            log.warning("queue %r: it is full, and deleted, as its policy has it", self.name)
            self.vhost.destruct(self)
        self.forget_arrival(message)

    def forget_arrival(self, message: Message) -> None:
        """Have the store forget an arrival that the queue does not take."""
        if message.position and self.deleted and not self.ending:
            self.store.forget(self.id, message.position)
        elif message.position:
            self.store.settle(self.id, message.seq, message.position)

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        """Take an arrival that has a place already, from when its transaction was prepared.

        With ``promised`` there was room for it then, and it is not turned away now.
        """
        if not promised and self.would_reject(message.body_size):
            self.reject_overflow(message)
            return
        self.published += 1
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, self.counters.now_ms)
        self.counters.memory_used += self.weight(message)
        if self.is_newest(message):
            self.push(message)
        else:
            self.reinsert(message)
        if message.deadline_ms:
            self.schedule_expiry(message)
        self.drain()

    def dispatch_arrival(self, consumer: Consumer, message: Message) -> None:
        """Take a message for the consumer that :meth:`ready_consumer` named just now."""
        self.published += 1
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, self.counters.now_ms)
        self.counters.memory_used += self.weight(message)
        self.dispatch(consumer, message)

    # --- Consumers --------------------------------------------------------------------------------

    # Keeps 0-9-1/basic.consume#01, 0-9/basic.consume#01, 0-9/message.consume#01,
    # 0-9/file.consume#01, 0-9/stream.consume#01, 0-10/s089, 0-10/s209, 0-10/s240.
    def join(self, consumer: Consumer) -> None:
        """Let a consumer take messages."""
        if self.consumers is None:
            self.consumers = []
            self.active = []
        self.consumers.append(consumer)
        if consumer.exclusive or self.exclusive_only:
            self.exclusive_consumer = consumer
        if consumer.selective:
            self.selective += 1
        if consumer.priority:
            self.ranked = True
        if self.single_active and self.single_active_consumer is None:
            self.single_active_consumer = consumer
        if self.turn and self.pick() is not None:  # Who has no room is behind those that come.
            self.turn -= 1
        self.activate(consumer)
        if self.durable and not self.reserving:
            self.reserve(self.counters.next_seq)

    def activate(self, consumer: Consumer) -> None:
        """Put a consumer in the round, behind its equals."""
        if self.single_active and consumer is not self.single_active_consumer:
            consumer.parked = True
            return
        consumer.parked = False
        if not self.ranked:
            if self.turn and self.turn <= len(self.active):  # All of them come before it.
                self.active.insert(self.turn, consumer)
                self.turn += 1
            else:
                self.active.append(consumer)
            return
        at = len(self.active)
        while at and self.active[at - 1].priority < consumer.priority:
            at -= 1
        self.active.insert(at, consumer)

    def unpark(self, consumer: Consumer) -> None:
        """A consumer has room again: put it back in the round and hand out what waits."""
        if consumer.browses:
            consumer.parked = False
            self.wake()
        elif consumer.parked:
            self.activate(consumer)
        if self.ready_count or self.waiters is not None:
            self.drain()

    def part(self, consumer: Consumer) -> None:
        """Give a consumer nothing more."""
        self.consumers.remove(consumer)
        if not consumer.parked:
            at = self.active.index(consumer)
            del self.active[at]
            if at < self.turn:
                self.turn -= 1
        consumer.parked = False  # Room that it gains by settling no longer matters.
        if consumer is self.exclusive_consumer:
            self.exclusive_consumer = None
        if consumer.selective:
            self.selective -= 1
        if consumer is self.single_active_consumer:
            # The highest priority comes next, and of those the one that has waited longest.
            following = max(self.consumers, key=PRIORITY) if self.consumers else None
            self.single_active_consumer = following
            if following is not None:
                self.activate(following)
        if not self.consumers:
            self.consumers = None
            self.active = None
            self.ranked = False
            self.release_waiters()
        self.used_ms = self.counters.now_ms

    def pick(self) -> Consumer | None:
        """Return the consumer whose turn it is among those with room; park those without."""
        if self.ranked:
            return self.pick_by_rank()
        consumer: Consumer
        active = self.active
        n = len(active)
        while n:
            if self.turn >= n:
                self.turn = 0
            consumer = cython.cast(Consumer, active[self.turn])  # Only such are in there.
            if consumer.can():
                self.turn += 1
                return consumer
            consumer.parked = True
            del active[self.turn]
            n -= 1
        return None

    def pick_by_rank(self) -> Consumer | None:
        """Like :meth:`pick`, where a higher x-priority goes first while it has room."""
        consumer: Consumer
        active = self.active
        while active:
            last = 1
            while last < len(active) and active[last].priority == active[0].priority:
                last += 1
            if self.turn >= last:
                self.turn = 0
            consumer = active[self.turn]
            if consumer.can():
                self.turn += 1
                return consumer
            consumer.parked = True
            del active[self.turn]
        return None

    # --- Deliveries -------------------------------------------------------------------------------

    def drain(self) -> None:
        """Hand out ready messages while a consumer has room."""
        if self.expiring is not None:
            self.expire(self.counters.now_ms)  # First: dead letters may take room that is here now.
        if self.active is not None:
            if self.selective:
                self.drain_selective()
            else:
                while self.ready_count and self.active:
                    consumer = self.pick()
                    if consumer is None:
                        break
                    message = self.dequeue()
                    if message is None:
                        break
                    self.dispatch(consumer, message)
        if self.limited:
            self.enforce_limits(None)  # What came back may be more than there is room for.
        if self.waiters is not None:
            self.release_waiters()
        if self.browsers is not None:
            self.show_all()

    def drain_selective(self) -> None:
        """Hand out ready messages where some consumers do not take every message."""

    def show_all(self) -> None:
        """Show every browser with room what it has not seen."""

    def dispatch(self, consumer: Consumer, message: Message) -> None:
        """Hand a message to a consumer with room."""
        self.delivered += 1
        if self.traced:
            self.vhost.delivering(self, consumer, message)
        if message.position and message.seq + (RESERVATION >> 1) > self.reserved:
            self.reserve_for(consumer, message)
        if consumer.no_ack:
            consumer.deliver(message)
            self.remove(message)
            return
        self.unacked_count += 1
        self.unacked_bytes += message.body_size
        message.consumer = consumer
        consumer.deliver(message)
        if self.counters.memory_used > self.counters.memory_max and message.consumer is not None:
            self.page_out(message)

    def get(self, getter: Consumer) -> Message | None:
        """Take the first message for ``basic.get``; unless ``no_ack`` it is the getter's now.

        With ``no_ack`` the caller calls :meth:`remove` once it has written the message.
        """
        message = self.dequeue()
        if message is None:
            return None
        self.delivered += 1
        if self.traced:
            self.vhost.delivering(self, getter, message)
        if message.position and message.seq + (RESERVATION >> 1) > self.reserved:
            self.reserve_for(getter, message)
        if not getter.no_ack:
            self.unacked_count += 1
            self.unacked_bytes += message.body_size
            message.consumer = getter
        return message

    def reserve(self, seq: int) -> None:
        """Let the journal say, ahead of time, that messages up to beyond ``seq`` were delivered."""
        if self.durable:
            self.reserving = seq + RESERVATION
            self.store.delivered(self.id, self.reserving)
            self.reserving_at = self.store.appended

    def reserve_for(self, consumer: Consumer, message: Message) -> None:
        """Reserve in time, so that mostly what is handed out next is covered durably already.

        Where it is not, the consumer holds it back until it is. In queues with a delivery limit
        each message comes here (``reserved`` stays 0), for each is noted: it counts as coming back.
        """
        if not self.durable:
            return
        reserved = self.reserved
        if self.reserving > reserved and self.store.synced >= self.reserving_at:
            reserved = self.reserving
            if self.delivery_limit < 0:
                self.reserved = reserved
        if message.seq + (RESERVATION >> 1) > self.reserving:
            self.reserve(message.seq)
        if message.seq > reserved:
            consumer.hold(self.reserving_at)
        if self.delivery_limit >= 0 and not consumer.no_ack:
            durable_at = self.note(message, min(message.deliveries + 1, COUNT_MAX), 0)
            if durable_at and message.flags & C_REDELIVERED:
                consumer.hold(durable_at)

    def note(self, message: Message, count: int, when_ms: int) -> int:
        """Have the store know that a message came back so often, and until when it is to wait.

        Returns:
            The position of the log at which that is durable; 0 when it need not be, or cannot.
        """
        if not self.durable or not message.position or message.flags & C_SCRATCH:
            return 0
        return self.store.counted(self.id, message.seq, message.position, count, when_ms)

    def acquire(self, message: Message, consumer: Consumer) -> bool:
        """Take a ready message from wherever it stands; False when another was faster."""
        if self.deleted or message.flags & C_GONE or message.consumer is not None:
            return False
        if self.browse_only:
            return False
        if message.deadline_ms and message.deadline_ms <= self.counters.now_ms:
            return False
        if message.position and message.seq + (RESERVATION >> 1) > self.reserved:
            self.reserve_for(consumer, message)
        return self.acquire_quietly(message, consumer)

    def acquire_quietly(self, message: Message, holder: Consumer) -> bool:
        """As :meth:`acquire`, for one who settles or releases it before anybody sees it."""
        if self.deleted or message.flags & C_GONE or message.consumer is not None:
            return False
        message.consumer = holder
        self.ready_count -= 1
        self.ready_bytes -= message.body_size
        self.stale_count += 1
        self.unacked_count += 1
        self.unacked_bytes += message.body_size
        return True

    # --- Settlement -------------------------------------------------------------------------------

    def settle(self, message: Message) -> None:
        """A consumer accepted the message: it is done with."""
        self.unacked_count -= 1
        self.unacked_bytes -= message.body_size
        self.acknowledged += 1
        self.remove(message)

    def unassign(self, message: Message) -> None:
        """A message is not its consumer's any longer."""
        self.unacked_count -= 1
        self.unacked_bytes -= message.body_size
        message.consumer = None

    def requeue(self, message: Message) -> None:
        """A consumer gives a message back: it returns to its place, marked redelivered.

        The caller drains the queue afterwards, once for all that it returns.
        """
        message.flags |= C_REDELIVERED
        if message.deliveries < COUNT_MAX:
            message.deliveries += 1
        if 0 <= self.delivery_limit < message.deliveries and not self.deleted:
            self.give_up(message)
            return
        if self.delivery_limit >= 0:
            tell_count(self, message)
        if self.active is not None and len(self.active) > 1:
            at = self.turn if self.turn < len(self.active) else 0
            if self.active[at] is message.consumer:  # Let another one try it.
                self.turn = at + 1
        self.requeue_or_delay(message, self.backoff is not None and self.backoff.failed)

    def give_up(self, message: Message) -> None:
        """A message that somebody holds has come back too often."""
        self.unassign(message)
        if not self.defer_dead_letter(message, "delivery_limit"):
            self.dead_letter(message, "delivery_limit")

    def release(self, message: Message) -> None:
        """A consumer gives a message back that it has not tried: it returns to its place."""
        self.requeue_or_delay(message, self.backoff is not None and self.backoff.returned)

    def requeue_or_delay(self, message: Message, waits: bool) -> None:
        """A message that somebody holds returns to its place, at once or when it has waited."""
        if waits and not self.deleted:
            self.vhost.dead_letters.delay_retry(self, message)
            return
        if self.delivery_limit >= 0 and not self.deleted:
            self.note(message, message.deliveries, 0)
        self.requeue_now(message)

    # Keeps 0-10/s084, 0-10/s085.
    def requeue_now(self, message: Message) -> None:
        """A message that was held returns to its place, or goes when there is no queue."""
        self.unassign(message)
        if self.deleted:
            self.orphan(message)
            return
        self.reinsert(message)
        if message.deadline_ms:
            self.schedule_expiry(message)

    # Keeps 0-9-1/s003, 0-9/redelivered#implementation, 0-10/s065, 0-10/s067.
    def redeliver(self, message: Message) -> None:
        """Hand a message once more to the consumer that already holds it (recover, requeue 0)."""
        message.flags |= C_REDELIVERED
        if message.flags & C_PAGED and not self.load(message):
            self.unassign(message)
            return
        message.consumer.deliver(message)

    def discard(self, message: Message) -> None:
        """A consumer rejected the message for good: dead-letter it, then forget it."""
        self.unassign(message)
        if self.deleted:
            self.remove(message)
        elif not self.defer_dead_letter(message, "rejected"):
            self.dead_letter(message, "rejected")

    def unconvertible(self, message: Message, consumer: Consumer, text: str) -> None:
        """A consumer cannot say a message in its version: dead-letter it with the reason.

        Called from :meth:`Consumer.deliver`; a browser passes such a message over.
        """
        log.warning("queue %r: message %d is not delivered: %s", self.name, message.seq, text)
        if consumer.browses:
            return
        if message.consumer is not None:
            self.unassign(message)
        begun = self.begin_dead_letter(message)
        try:
            if self.vhost is not None and not self.deleted:
                self.vhost.dead_letters.dead_letter(message, self, "unconvertible", text)
            self.remove(message)
        finally:
            if begun:
                self.vhost.dead_letters.end()

    # --- Publishers that wait ---------------------------------------------------------------------

    def add_waiter(self, publisher: Any) -> None:
        """Remember a publisher that stopped reading until the queue is shorter."""
        if self.waiters is None:
            self.waiters = {}
        self.waiters[publisher] = None

    def drop_waiter(self, publisher: Any) -> None:
        """Forget a publisher that waits no longer."""
        if self.waiters is not None:
            self.waiters.pop(publisher, None)

    def release_waiters(self) -> None:
        """Let paced publishers read again when the queue is short enough."""
        if self.stopped and not self.deleted:
            return
        if self.waiters is not None and (
            self.ready_count < PACE_BELOW or self.active is None or self.guard is not None
        ):
            waiters = self.waiters
            self.waiters = None
            for publisher in waiters:
                publisher.unpace()
