# SPDX-License-Identifier: Apache-2.0
"""A queue: messages that wait for consumers.

A queue consists of:

- :class:`~headrace.model.queue.ready_list.ReadyList`, the ready messages in order. Other kinds of
  queue have another class of list: sorted, by groups, fair share.
- :class:`~headrace.model.queue.destination.ConsumerRound`, made with the first consumer.
- :class:`~headrace.model.queue.overflow.Overflow`, if its length is limited.
- :class:`~headrace.model.queue.expiry.Expiry`, while messages have deadlines.
- :class:`~headrace.model.queue.browsing.Browsing`, while consumers browse or filter.
- :class:`~headrace.model.queue.delivery_mark.DeliveryMark`, if the queue is durable.
- :class:`~headrace.model.queue.dead_letter_sender.DeadLetterSender`, from the first dead letter on.

Settlement. A delivered message is unacked until it is settled, requeued or discarded. The journal
records deliveries in advance, for many messages at once.

Dead letters. A message that is dropped, expires or is rejected becomes a dead letter if the queue
has a dead-letter exchange. Then it is removed from memory and from the store.
"""

import logging
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.counters import PAGED_WEIGHT as C_PAGED_WEIGHT
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import SCRATCH as C_SCRATCH
    from headrace.model.message import Message, measure
    from headrace.model.queue.browsing import Browsing
    from headrace.model.queue.dead_letter_sender import DeadLetterSender
    from headrace.model.queue.delivery_mark import RESERVATION, DeliveryMark
    from headrace.model.queue.destination import Consumer, Destination
    from headrace.model.queue.expiry import Expiry
    from headrace.model.queue.ready_list import ReadyList
    from headrace.model.tallies import QueueTally

from headrace.model.queue.delivery_count import COUNT_MAX as COUNTED_MAX
from headrace.model.queue.delivery_count import write_count
from headrace.model.tallies import AT_LEAST_ONCE, AT_MOST_ONCE, DEATHS, DISABLED

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from headrace.model.arguments.backoff import Backoff
    from headrace.model.queue.destination import LengthGuard, Options
    from headrace.model.queue.overflow import Overflow

log = logging.getLogger(__name__)

COUNT_MAX = COUNTED_MAX
# A queue within both limits pages arrivals out only if memory is exceeded by an eighth.
RESIDENT_MIN = 256  # Ready messages.
RESIDENT_BYTES = 65536  # Bytes of the bodies of ready messages.
PACE_BELOW = 2048  # Ready messages below which paced publishers resume; see PACE_ABOVE.


class Queue(Destination):
    """A classic queue, and the base of all other kinds of queue."""

    # Uncompiled, a dictionary of so many attributes would take twice the memory of all else.
    __slots__ = (
        "alternate_exchange",
        "backoff",
        "browsing",
        "chunk",
        "dead_letter_at_least_once",
        "dead_letter_exchange",
        "dead_letter_routing_key",
        "delivery_limit",
        "delivery_mark",
        "expiry",
        "guard",
        "is_retired",
        "lanes",
        "limits",
        "message_ttl_ms",
        "on_deadline",
        "pending_count",
        "sender",
        "view",
    )

    def __init__(self, name: str, **options: "Unpack[Options]") -> None:
        Destination.__init__(self, name, **options)
        # True after the deletion, until all messages are rerouted to the alternate exchange.
        self.is_retired = False
        self.ready = ReadyList()
        self.limits: Overflow | None = None
        self.expiry: Expiry | None = None
        self.browsing: Browsing | None = None
        self.sender: DeadLetterSender | None = None
        self.delivery_mark: DeliveryMark | None = (
            DeliveryMark(self.store, self.id) if self.durable else None
        )
        self.guard: LengthGuard | None = None  # Thresholds; see model.queue.flow_control.
        self.backoff: Backoff | None = None  # Delays of requeued messages.
        self.lanes: dict[int, Queue] | None = None  # File and stream content, by kind.
        self.view: Queue | None = None  # The queue as a stream, made for the first such reader.
        # Set from the arguments; see model.queue_kinds.apply_arguments.
        self.message_ttl_ms = -1
        self.delivery_limit = -1  # The maximum number of requeues of a message; -1 is no limit.
        self.dead_letter_exchange: str | None = None
        self.dead_letter_routing_key: str | None = None
        self.alternate_exchange: str | None = None  # Gets rejected and orphaned messages.
        # True if a message stays until all target queues have its dead letter.
        self.dead_letter_at_least_once = False
        self.pending_count = 0  # Prepared messages for this queue, and undelivered dead letters.
        self.on_deadline: Callable[[Queue, int], None] | None = None  # Schedules :meth:`expire`.
        self.chunk: list[Queue] | None = None  # The queue's chunk in ``queues_in_order``.

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} ready={self.ready.count} unacked={self.unacked_count}>"

    @property
    def max_length(self) -> int:
        """The length limit in messages; -1 is none."""
        return -1 if self.limits is None else self.limits.max_length

    @property
    def max_length_bytes(self) -> int:
        """The length limit in bytes of bodies; -1 is none."""
        return -1 if self.limits is None else self.limits.max_length_bytes

    # --- Arrivals ---------------------------------------------------------------------------------

    def ready_consumer(self) -> Consumer | None:
        """Return a consumer with room for the next arrival; None if messages are ready."""
        if self.ready.count or self.round is None or self.round.selective_count:
            return None
        return self.round.pick()

    def has_ready_consumer(self) -> bool:
        return self.ready_consumer() is not None

    def is_full_for(self, body_size: int) -> bool:
        """Return True if the overflow policy has no room for an arrival."""
        return self.limits is not None and self.limits.is_full_for(self, body_size)

    def would_reject(self, body_size: int) -> bool:
        """Return True if neither the queue nor a consumer has room for the next arrival."""
        return (
            self.limits is not None
            and self.is_full_for(body_size)
            and not self.has_ready_consumer()
        )

    def enqueue(self, message: Message) -> int:
        if self.limits is not None and self.would_reject(message.body_size):
            self.limits.reject(self, message)
            return 1
        self.tally.publish += 1
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, self.counters.now_ms)
        self.counters.memory_used += self.weight(message)
        if self.ready.count == 0 and self.round is not None and not self.round.selective_count:
            consumer = self.round.pick()
            if consumer is not None:
                self.dispatch(consumer, message)
                return 0
        self.ready.push(message)  # As in ``push``, without a call.
        if self.browsing is not None:
            self.browsing.wake()
        if self.counters.memory_used > self.counters.memory_max:
            self.relieve_memory(message)
        if self.round is not None and self.round.selective_count:
            if self.limits is not None:
                self.limits.enforce(self, message)
            self.drain_arrival(message)
            return 0
        if message.deadline_ms:
            self.schedule_expiry(message)
        if self.limits is not None:
            self.limits.enforce(self, message)
        return 0

    def drain_arrival(self, message: Message) -> None:
        """Deliver ready messages, after an arrival that no deadline has been scheduled for.

        An arrival without time to live (``x-message-ttl`` or expiration 0) expires only if no
        consumer takes it.
        """
        deadline_ms = message.deadline_ms
        if deadline_ms and deadline_ms <= self.counters.now_ms:
            message.deadline_ms = 0
            self.drain()
            message.deadline_ms = deadline_ms
            if not message.flags & C_GONE and message.consumer is None:
                self.schedule_expiry(message)
        else:
            if deadline_ms:
                self.schedule_expiry(message)
            self.drain()

    def push(self, message: Message) -> None:
        """Append an arrival to the ready messages; page it out if memory is short."""
        self.ready.push(message)
        if self.browsing is not None:
            self.browsing.wake()
        if self.counters.memory_used > self.counters.memory_max:
            self.relieve_memory(message)

    def reinsert(self, message: Message) -> None:
        """Return a message to its position among the ready messages."""
        self.ready.reinsert(message)
        if self.browsing is not None:
            self.browsing.wake()

    def remove_arrival(self, message: Message) -> None:
        """Remove a rejected arrival from the store."""
        if message.position and self.deleted and not self.is_retired:
            self.store.forget(self.id, message.position)
        elif message.position:
            self.store.bind()
            self.store.settle(self.id, message.seq, message.position)

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        if not promised and self.limits is not None and self.would_reject(message.body_size):
            self.limits.reject(self, message)
            return
        self.tally.publish += 1
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, self.counters.now_ms)
        self.counters.memory_used += self.weight(message)
        if self.ready.is_newest(message):
            self.push(message)
        else:
            self.reinsert(message)
        self.drain_arrival(message)

    def dispatch_arrival(self, consumer: Consumer, message: Message) -> None:
        self.tally.publish += 1
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, self.counters.now_ms)
        self.counters.memory_used += self.weight(message)
        self.dispatch(consumer, message)

    def restore(self, message: Message, arrived_ms: int) -> None:
        if self.message_ttl_ms >= 0:
            self.set_deadline(message, arrived_ms)
        self.counters.memory_used += self.weight(message)
        self.push(message)
        if message.deadline_ms:
            self.schedule_expiry(message)

    def restore_unacked(self, message: Message) -> bool:
        """Restore a recovered message as unacked; return False if it is lost."""
        self.counters.memory_used += self.weight(message)
        self.unacked_count += 1
        self.unacked_bytes += message.body_size
        return True

    # --- Consumers --------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        if self.vhost is not None:
            self.vhost.on_consumer_added(consumer)
        if consumer.is_browser:
            self.browse().add_browser(consumer)
            return
        self.join_round(consumer)
        if self.delivery_mark is not None and not self.delivery_mark.pending_seq:
            self.delivery_mark.reserve(self.counters.next_seq)
        if (
            consumer.is_filtering
            or consumer.no_local
            or consumer.selector is not None
            or (consumer.auto_close and not self.is_stream)
        ):
            self.start_filtering(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer.is_browser:
            self.remove_browser(consumer)
            return
        if self.round is None or consumer not in self.round.consumers:
            return
        if self.vhost is not None:
            self.vhost.on_consumer_removed(consumer)
        if consumer.cursor is not None and self.browsing is not None:
            self.browsing.remove_filter(consumer)
        self.leave_round(consumer)

    def leave_round(self, consumer: Consumer) -> None:
        Destination.leave_round(self, consumer)
        if self.round is None:
            self.release_waiters()

    def start_filtering(self, consumer: Consumer) -> None:
        """Make a consumer a filter, which starts with the first ready message."""
        consumer.is_filtering = True
        if consumer.cursor is not None or consumer.is_browser or self.is_stream:
            return
        if self.round is None or consumer not in self.round.consumers:
            return
        self.set_selective(consumer, True)
        self.browse().add_filter(consumer)

    def add_browser(self, consumer: Consumer) -> None:
        """Show a consumer all ready messages and all arrivals; the caller drains the queue."""
        self.browse().add_browser(consumer)

    def browse_from(self, consumer: Consumer, position: int) -> None:
        """Start a browser at a position."""
        if consumer.cursor is not None:
            consumer.cursor.skip_to(position)

    def remove_browser(self, consumer: Consumer) -> None:
        """Remove a browser."""
        consumer.is_parked = False
        if consumer.is_browser and self.vhost is not None:
            self.vhost.on_consumer_removed(consumer)
        if self.browsing is not None:
            self.browsing.remove_browser(consumer)
        if consumer is self.exclusive_consumer:
            self.exclusive_consumer = None
        self.used_ms = self.counters.now_ms

    def browse(self) -> Browsing:
        """Return the queue's :class:`Browsing`, made on first use."""
        if self.browsing is None:
            self.browsing = Browsing(self)
        return self.browsing

    def unpark(self, consumer: Consumer) -> None:
        if consumer.is_browser:
            consumer.is_parked = False
            self.wake()
        elif consumer.is_parked:
            self.activate(consumer)
        if self.ready.count or self.waiters is not None:
            self.drain()

    # --- Deliveries -------------------------------------------------------------------------------

    def drain(self) -> None:
        self.will_drain = False
        if self.expiry is not None:
            self.expire(self.counters.now_ms)  # First: dead letters may take room in other queues.
        consumers = self.round
        if consumers is not None:
            if consumers.selective_count:
                self.browse().drain_selective()
            else:
                while self.ready.count and consumers.active:
                    consumer = consumers.pick()
                    if consumer is None:
                        break
                    message = self.dequeue()
                    if message is None:
                        break
                    self.dispatch(consumer, message)
        if self.limits is not None:
            self.limits.enforce(self, None)  # Requeued messages may exceed the limits.
        if self.waiters is not None:
            self.release_waiters()
        if self.browsing is not None:
            self.browsing.show_all()

    def dequeue(self) -> Message | None:
        """Remove and return the first ready message that has not expired, loaded into memory.

        Return None if no message is ready.
        """
        while True:
            message = self.ready.pop()
            if message is None:
                return None
            if message.deadline_ms and message.deadline_ms <= self.counters.now_ms:
                self.dead_letter_soon(message, "expired")
                continue
            if message.flags & C_PAGED and not self.load(message):
                continue
            return message

    # Keeps 0-9-1/basic#09, 0-9-1/basic#10, 0-9/basic#09, 0-9/basic#10, 0-9/stream#03.
    def dispatch(self, consumer: Consumer, message: Message) -> None:
        """Deliver a message to a consumer with room."""
        if message.flags & C_REDELIVERED:
            self.tally.redeliver += 1
            consumer.on_redelivery()
        if self.reports_deliveries:
            self.vhost.before_delivery(self, consumer, message)
        if (
            message.position
            and self.delivery_mark is not None
            and message.seq + (RESERVATION >> 1) > self.delivery_mark.durable_seq
        ):
            self.reserve_for(consumer, message)
        if consumer.no_ack:
            self.tally.deliver_no_ack += 1
            consumer.deliver(message)
            if message.position:
                message.consumer = consumer  # With no_ack the delivery settles the message.
            self.remove(message)
            return
        self.tally.deliver += 1
        self.unacked_count += 1
        self.unacked_bytes += message.body_size
        message.consumer = consumer
        consumer.deliver(message)
        if self.counters.memory_used > self.counters.memory_max and message.consumer is not None:
            self.page_out(message)

    def get(self, getter: Consumer) -> Message | None:
        message = self.dequeue()
        if message is None:
            self.tally.get_empty += 1
            return None
        if message.flags & C_REDELIVERED:
            self.tally.redeliver += 1
            getter.on_redelivery()
        if self.reports_deliveries:
            self.vhost.before_delivery(self, getter, message)
        self.reserve_for(getter, message)
        if getter.no_ack:
            self.tally.get_no_ack += 1
        else:
            self.tally.get += 1
            self.unacked_count += 1
            self.unacked_bytes += message.body_size
            message.consumer = getter
        return message

    def reserve_for(self, consumer: Consumer, message: Message) -> None:
        """Record a delivery in the journal; if necessary, delay it until the record is durable.

        With a delivery limit the count of each delivery is recorded, until it is settled.
        """
        mark = self.delivery_mark
        if mark is None or not message.position:
            return
        if message.seq + (RESERVATION >> 1) <= mark.durable_seq:
            return
        log_position = mark.reserve_for(message.seq)
        if log_position:
            consumer.delay_deliveries(log_position)
        if self.delivery_limit >= 0 and not consumer.no_ack:
            log_position = self.record_count(message, min(message.deliveries + 1, COUNT_MAX), 0)
            if log_position and message.flags & C_REDELIVERED:
                consumer.delay_deliveries(log_position)

    def record_count(self, message: Message, count: int, due_ms: int) -> int:
        """Store the number of requeues of a message, and the time of its next delivery.

        Returns:
            The log position at which the record is durable; 0 if the message is not in the journal.
        """
        if not self.durable or not message.position or message.flags & C_SCRATCH:
            return 0
        return self.store.record_count(self.id, message.seq, message.position, count, due_ms)

    def acquire(self, message: Message, consumer: Consumer) -> bool:
        if self.deleted or message.flags & C_GONE or message.consumer is not None:
            return False
        if self.browse_only:
            return False
        if message.deadline_ms and message.deadline_ms <= self.counters.now_ms:
            return False
        self.reserve_for(consumer, message)
        return self.acquire_quietly(message, consumer)

    def acquire_quietly(self, message: Message, consumer: Consumer) -> bool:
        """Acquire a ready message for the broker itself, without a record of a delivery.

        Return False if the message is no longer ready.
        """
        if self.deleted or message.flags & C_GONE or message.consumer is not None:
            return False
        message.consumer = consumer
        self.ready.withdraw(message)
        self.unacked_count += 1
        self.unacked_bytes += message.body_size
        return True

    # --- Settlement -------------------------------------------------------------------------------

    def settle(self, message: Message) -> None:
        self.unacked_count -= 1
        self.unacked_bytes -= message.body_size
        self.tally.ack += 1
        self.remove(message)

    def unassign(self, message: Message) -> None:
        """Remove an unacked message from its consumer."""
        self.unacked_count -= 1
        self.unacked_bytes -= message.body_size
        message.consumer = None

    # Keeps 0-9-1/s003, 0-9-1/s115, 0-9-1/s116, 0-9-1/basic.deliver#01, 0-9-1/basic.recover#01,
    # 0-9-1/basic.recover-async#01, 0-9/redelivered#implementation, 0-9/basic.deliver#01,
    # 0-9/file.deliver#01, 0-9/basic.recover#01, 0-9/message.recover#01, 0-10/s065.
    def requeue(self, message: Message) -> None:
        """Return an unacked message to its position, marked redelivered.

        A message beyond the delivery limit is dead-lettered instead.
        """
        message.flags |= C_REDELIVERED
        if message.deliveries < COUNT_MAX:
            message.deliveries += 1
        if 0 <= self.delivery_limit < message.deliveries and not self.deleted:
            self.dead_letter_over_limit(message)
            return
        if self.delivery_limit >= 0 and self.vhost is not None:
            write_count(self.name, self.vhost.contents, message)
        if self.round is not None and message.consumer is not None:
            self.round.skip(message.consumer)  # Another consumer gets the message, if possible.
        self.requeue_or_delay(message, self.backoff is not None and self.backoff.failed)

    def dead_letter_over_limit(self, message: Message) -> None:
        """Dead-letter an unacked message that was requeued more often than the limit allows."""
        self.unassign(message)
        self.dead_letter_soon(message, "delivery_limit")

    def release(self, message: Message) -> None:
        self.requeue_or_delay(message, self.backoff is not None and self.backoff.returned)

    def requeue_or_delay(self, message: Message, delayed: bool) -> None:
        """Return an unacked message to its position, at once or after the retry delay."""
        if delayed and not self.deleted:
            self.vhost.dead_letters.delay_retry(self, message)
            return
        if self.delivery_limit >= 0 and not self.deleted:
            self.record_count(message, message.deliveries, 0)
        self.requeue_now(message)

    # Keeps 0-10/s084, 0-10/s085.
    def requeue_now(self, message: Message) -> None:
        """Return an unacked message to its position; remove it if the queue is deleted."""
        self.unassign(message)
        if self.deleted:
            self.orphan(message)
            return
        self.reinsert(message)
        if message.deadline_ms:
            self.schedule_expiry(message)

    # Keeps 0-9-1/s003, 0-9-1/basic.recover#01, 0-9-1/basic.recover-async#01,
    # 0-9/redelivered#implementation, 0-9/basic.recover#01, 0-9/message.recover#01, 0-10/s065,
    # 0-10/s067.
    def redeliver(self, message: Message) -> None:
        """Deliver an unacked message to its consumer again, marked redelivered."""
        message.flags |= C_REDELIVERED
        if message.flags & C_PAGED and not self.load(message):
            self.unassign(message)
            return
        self.tally.redeliver += 1
        if message.consumer.no_ack:
            self.tally.deliver_no_ack += 1
        else:
            self.tally.deliver += 1
        message.consumer.on_redelivery()
        message.consumer.deliver(message)

    def discard(self, message: Message) -> None:
        """Dead-letter a message that a consumer rejected without requeue."""
        self.unassign(message)
        if self.deleted:
            self.remove(message)
        else:
            self.dead_letter_soon(message, "rejected")

    def on_unconvertible(self, message: Message, consumer: Consumer, text: str) -> None:
        """Dead-letter a message that cannot be converted; a browser passes it over.

        Called from :meth:`Consumer.deliver`.
        """
        log.warning("queue %r: message %d is not delivered: %s", self.name, message.seq, text)
        if consumer.is_browser:
            return
        if message.consumer is not None:
            self.unassign(message)
        self.dead_letter_sender().send_unconvertible(message, text)

    # --- Expiry and paging ------------------------------------------------------------------------

    def set_deadline(self, message: Message, arrived_ms: int) -> None:
        """Apply the queue's time to live to a message that arrived at ``arrived_ms``."""
        deadline = arrived_ms + self.message_ttl_ms
        if not message.deadline_ms or deadline < message.deadline_ms:
            message.deadline_ms = deadline

    def set_deadlines(self, first: int, last: int, arrived_ms: int, bytes_max: int) -> int:
        """Apply the queue's time to live to ready messages at the positions ``[first, last)``.

        Their time to live counts from ``arrived_ms``. After about ``bytes_max`` bytes of messages,
        return the position at which to continue; else return ``last``.
        """
        message: Message
        messages = self.ready.peek(first, last, bytes_max, [])
        for message in messages:
            self.set_deadline(message, arrived_ms)
            self.schedule_expiry(message)
        if not messages:
            return last
        message = messages[len(messages) - 1]
        return message.seq + 1

    def schedule_expiry(self, message: Message) -> None:
        """Add a ready message's deadline to :attr:`expiry`."""
        if self.expiry is None:
            self.expiry = Expiry()
        if self.expiry.add(message, self.ready.count) and self.on_deadline is not None:
            self.on_deadline(self, message.deadline_ms)

    def expire(self, now_ms: int) -> int:
        """Dead-letter expired messages; return the next deadline, 0 if there is none.

        The work of one call is bounded, so that a returned deadline may be past.
        """
        if self.expiry is None:
            return 0
        deadline_ms = self.expiry.expire(self, now_ms)
        if deadline_ms == 0:
            self.expiry = None
        self.ready.sweep_if_stale()
        return deadline_ms

    # Keeps 0-9-1/basic#02, 0-9-1/basic#04, 0-9/basic#02, 0-9/message#02, 0-9/basic#04,
    # 0-9/message#04.
    def relieve_memory(self, message: Message) -> None:
        """Page an arrival out, since memory is short, unless it is near the queue's head.

        Short memory drops no message; only the limits of :class:`Overflow` do.
        """
        counters = self.counters
        if (
            self.ready.count > RESIDENT_MIN
            or self.ready.bytes > RESIDENT_BYTES
            or counters.memory_used > counters.memory_max + (counters.memory_max >> 3)
        ):
            self.page_out(message)

    # Keeps 0-9-1/basic#04, 0-9/basic#04, 0-9/message#04, 0-10/s060.
    def page_out(self, message: Message) -> None:
        """Move a message's data to the disk, if the store has one."""
        if not message.flags & C_PAGED and self.store.page_out(message):
            weight = message.body_size + (message.header_units << 8) + C_MESSAGE_OVERHEAD
            self.counters.memory_used -= weight - C_PAGED_WEIGHT

    def load(self, message: Message) -> bool:
        """Load a paged message; remove it and return False if it cannot be read."""
        paged_weight = self.weight(message)
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
            measure(message)
        self.counters.memory_used += self.weight(message) - paged_weight
        if message.deliveries and self.delivery_limit >= 0 and self.vhost is not None:
            write_count(self.name, self.vhost.contents, message)
        return True

    # --- Departures -------------------------------------------------------------------------------

    def remove(self, message: Message) -> None:
        if message.flags & C_GONE:
            return
        self.counters.memory_used -= self.weight(message)
        message.flags |= C_GONE
        if message.position:
            if message.flags & C_SCRATCH:
                self.store.release(message)
            elif self.deleted and not self.is_retired:
                self.store.forget(self.id, message.position)
            else:
                if message.consumer is None:
                    self.store.bind()
                self.store.settle(self.id, message.seq, message.position)
        message.data = None
        message.parts = None
        message.consumer = None

    def dead_letter(self, message: Message, reason: str) -> None:
        """Send a message as a dead letter and remove it; with at-least-once, after its arrival."""
        self.count_death(reason)
        if self.dead_letter_exchange is None and self.alternate_exchange is None:
            self.remove(message)
        else:
            self.dead_letter_sender().dead_letter(message, reason)

    def count_death(self, reason: str) -> None:
        """Count a message that died for a reason, with or without a dead-letter exchange."""
        self.tally.count_death(reason)
        if self.dead_letter_exchange is None:
            strategy = DISABLED
        else:
            strategy = AT_LEAST_ONCE if self.dead_letter_at_least_once else AT_MOST_ONCE
        name = DEATHS[strategy].get(reason)
        if name is not None:
            self.counters.deaths[name] += 1

    # Keeps 0-10/s081, 0-10/s180.
    def dead_letter_soon(self, message: Message, reason: str) -> None:
        """Dead-letter a message, in a later turn if too many died in this millisecond."""
        self.count_death(reason)
        if self.dead_letter_exchange is None and self.alternate_exchange is None:
            self.remove(message)
            return
        sender = self.dead_letter_sender()
        if not sender.defer(message, reason):
            sender.dead_letter(message, reason)

    def dead_letter_sender(self) -> DeadLetterSender:
        """Return the queue's :class:`DeadLetterSender`, made on first use."""
        if self.sender is None:
            self.sender = DeadLetterSender(self)
        return self.sender

    def publish_dead_letter(self, message: Message, reason: str) -> bool:
        """Publish a dead letter; return False if it did not arrive under at-least-once."""
        self.count_death(reason)
        return self.dead_letter_sender().publish(message, reason)

    def retry_dead_letter(self, message: Message, reason: str) -> bool:
        """Publish an undelivered dead letter again; return True if it arrived."""
        return self.dead_letter_sender().retry(message, reason)

    def orphan(self, message: Message) -> None:
        """Remove a message of a deleted queue; publish it to the alternate exchange, if any."""
        self.dead_letter_sender().orphan(message)

    def orphan_some(self, maximum: int) -> int:
        """Publish up to ``maximum`` ready messages to the alternate exchange, in one transaction.

        Return ``maximum`` less the number of messages.
        """
        return self.dead_letter_sender().orphan_some(maximum)

    def merge_tally(self, total: QueueTally) -> None:
        """Add the counts to ``total``, the tally of deleted queues, which replaces the tally."""
        lane: Queue
        total.add(self.tally)
        self.tally = total
        self.notify_sampler()
        if self.lanes is not None:
            for lane in self.lanes.values():
                lane.merge_tally(total)

    def notify_sampler(self) -> None:
        """Report the end of the queue to its sampler."""
        if self.sampler_state is not None and self.counters.deleted_sampler_states is not None:
            self.counters.deleted_sampler_states.append(self.sampler_state)
        self.sampler_state = None

    def remove_ready(self, settle: bool) -> None:
        """Remove all ready messages; with ``settle`` also from the store."""
        while True:
            message = self.ready.pop_oldest()
            if message is None:
                break
            if not settle and message.position and not message.flags & C_SCRATCH:
                self.store.forget(self.id, message.position)
                message.position = 0
            self.remove(message)
        self.ready.clear()
        self.expiry = None

    # --- Paced publishers -------------------------------------------------------------------------

    def release_waiters(self) -> None:
        """Resume the paced publishers if the queue is short enough."""
        if self.publishers_stopped and not self.deleted:
            return
        if self.waiters is not None and (
            self.ready.count < PACE_BELOW or self.round is None or self.guard is not None
        ):
            waiters = self.waiters
            self.waiters = None
            for publisher in waiters:
                publisher.resume_publishing()

    # --- The whole queue --------------------------------------------------------------------------

    def message_count(self) -> int:
        """Return the number of ready messages, of every content class."""
        if self.lanes is not None:
            return self.ready.count + self.ready_in_lanes()
        return self.ready.count

    def held_count(self) -> int:
        """Return the number of messages that are not ready before a time."""
        return 0

    def has_messages(self) -> bool:
        """Return True if the queue has a message: ready, unacked or held, of any content class."""
        lane: Queue
        if self.unacked_count or self.message_count() or self.held_count():
            return True
        if self.lanes is not None:
            for lane in self.lanes.values():
                if lane.unacked_count:
                    return True
        return False

    def ready_in_lanes(self) -> int:
        """Return the number of ready messages of the classes file and stream."""
        lane: Queue
        count = 0
        if self.lanes is not None:
            for lane in self.lanes.values():
                count += lane.ready.count
        return count

    def consumer_count(self) -> int:
        """Return the number of consumers and browsers, of every content class."""
        lane: Queue
        count = 0 if self.round is None else len(self.round.consumers)
        if self.lanes is not None:
            for lane in self.lanes.values():
                count += lane.consumer_count()
        return count if self.browsing is None else count + len(self.browsing.browsers)

    def redelivered_seqs(self) -> list[int]:
        """Return the seqs of ready messages, of every content class, that were delivered before."""
        seqs = self.ready.redelivered_seqs()
        if self.lanes is not None:
            for lane in self.lanes.values():
                seqs += lane.redelivered_seqs()
        return seqs

    # Keeps 0-9-1/queue.purge#01, 0-9/queue.purge#01, 0-9/queue.purge#02, 0-10/s195, 0-10/s196,
    # 0-10/s197, 0-10/s198.
    def purge(self) -> int:
        """Remove every ready message; return their number."""
        lane: Queue
        count = self.message_count()
        retained_count = self.unacked_count + self.pending_count
        if self.lanes is not None:
            for lane in self.lanes.values():
                retained_count += lane.unacked_count
        drops_all = retained_count == 0 and self.durable and count > 0
        if drops_all:  # One record instead of a settlement for each message.
            self.store.drop(self.id, self.counters.next_seq - 1)
        self.remove_ready(not drops_all)
        self.release_waiters()
        if self.lanes is not None:
            for lane in self.lanes.values():
                lane.remove_ready(not drops_all)
                lane.release_waiters()
        return count

    def retire(self) -> None:
        """Delete the queue, but not its messages, which :meth:`destroy` removes later."""
        lane: Queue
        self.deleted = True
        self.is_retired = True
        if self.lanes is not None:
            for lane in self.lanes.values():
                lane.retire()
        self.cancel_consumers()

    def destroy(self) -> int:
        """Delete the queue: remove all messages, cancel all consumers.

        Return the number of messages that were ready.
        """
        lane: Queue
        count = self.message_count()
        if self.durable:
            self.store.drop(self.id, self.counters.next_seq - 1)
        self.deleted = True
        self.is_retired = False
        if self.lanes is not None:
            for lane in self.lanes.values():
                lane.destroy()
        self.remove_ready(True)
        self.cancel_consumers()
        return count

    def cancel_consumers(self) -> None:
        """Cancel all consumers and browsers."""
        if self.view is not None:
            self.view.destroy()
            self.view = None
        consumers: list[Consumer] = []
        if self.round is not None:
            consumers += self.round.consumers
            self.round.clear()
            self.round = None
        if self.browsing is not None:
            consumers += self.browsing.browsers
            self.browsing.clear()
            self.browsing = None
        self.exclusive_consumer = None
        self.release_waiters()
        for consumer in consumers:
            consumer.is_parked = False
            consumer.cursor = None
            if self.vhost is not None:
                self.vhost.on_consumer_removed(consumer)
            consumer.on_cancel()
