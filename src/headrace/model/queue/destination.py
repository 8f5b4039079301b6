# SPDX-License-Identifier: Apache-2.0
"""Two ports: a queue or stream, as exchanges and channels use it; a consumer, as queues use it.

A :class:`Destination` enqueues messages that were routed to it, and delivers messages to consumers.
Queues, streams, leases and views of queues are destinations. :class:`Destination` and
:class:`Consumer` are in one module because each has an attribute of the other's C type.

A destination has a :class:`ConsumerRound`, made with its first consumer. Active consumers take
turns (round robin); consumers of a higher priority are served first. A consumer without room is
parked outside the round until it reports room again, so that a parked consumer costs nothing. With
a single active consumer (``x-single-active-consumer``) all other consumers are parked.
"""

import operator
from typing import TYPE_CHECKING, Protocol, Required, TypedDict

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.counters import PAGED_WEIGHT as C_PAGED_WEIGHT
    from headrace.model.counters import Counters
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message
    from headrace.model.ports import Store
    from headrace.model.queue.ready_list import Cursor, ReadyList
    from headrace.model.tallies import QueueTally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.queue.queue import Queue
    from headrace.model.queue.queue_host import QueueHost
    from headrace.model.selector import Selector

PACE_ABOVE = 8192  # Ready messages in a queue with consumers, above which its publishers pause.
PRIORITY = operator.attrgetter("priority")

# The results of ``Consumer.evaluate``.
NEVER = 0  # The consumer must not get the message.
ACCEPTED = 1  # The message may be delivered now.
NO_ROOM = 2  # The message waits until the consumer has room for it.
if not cython.compiled:
    C_NEVER = NEVER
    C_ACCEPTED = ACCEPTED
    C_NO_ROOM = NO_ROOM


class PacedPublisher(Protocol):
    """A connection that does not read its socket until a queue is shorter."""

    def resume_publishing(self) -> None:
        """Resume reading."""


class LengthGuard(Protocol):
    """A guard of a queue's length; see :mod:`headrace.model.queue.flow_control`."""

    counts_unacked: bool  # True if unacked messages count.

    def check_depth(self) -> None:
        """Compare the depth of the queue with the thresholds."""

    def check_size(self, message: Message) -> None:
        """Compare the size of an arrival with its threshold."""

    def check_delivery(self, consumer: "Consumer", message: Message) -> None:
        """Check the depth before a delivery."""

    def resume(self) -> None:
        """Resume the publishers."""


class Consumer:
    """A consumer, as its queue sees it; gateways override ``has_room``, ``deliver`` and ``put``."""

    def __init__(self, queue: "Queue", tag: str, no_ack: bool) -> None:
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = False
        self.no_local = False
        # Call ``evaluate`` before each message: prefetch-size, or filters.
        self.is_selective = False
        self.is_filtering = False  # True with no-local or a selector: it needs a cursor.
        self.selector: Selector | None = None  # The selector of the messages that it accepts.
        self.auto_close = False  # The consumer ends at the end of the queue.
        self.cursor: Cursor | None = None  # The position in the queue, while it filters or browses.
        self.is_scanning = False  # The scan of the queue continues in a later turn.
        self.priority = 0
        self.content_kind = 0  # The kind of message that ``put`` accepts, such as KIND_BASIC.
        self.publisher = 0  # The number of the consumer's connection, as in Message.publisher.
        self.is_parked = False  # The consumer is outside the queue's round until it has room.
        self.is_browser = False  # The consumer gets messages without acquiring them.
        self.arguments: Mapping[str, object] = {}

    def has_room(self) -> bool:
        """Return True if the consumer has room for one more message."""
        return False

    def evaluate(self, message: Message) -> int:
        """Return ACCEPTED if this message may be delivered now, else NEVER or NO_ROOM.

        Called only where ``is_selective`` is set.
        """
        return C_ACCEPTED

    def deliver(self, message: Message) -> None:
        """Send a message, with its data in memory; unless ``no_ack`` it is unacked."""

    def on_redelivery(self) -> None:
        """Called before a delivery of a message that was delivered before."""

    def delay_deliveries(self, position: int) -> None:
        """Delay later deliveries until the journal is synced up to ``position``.

        After a crash the messages that a client received are then marked redelivered.
        """

    def put(
        self, buffer: bytes | bytearray, start: int, address_len: int, end: int, redelivered: int
    ) -> int:
        """Send a message of class basic from ``buffer[start:end]``, laid out as in Message.data.

        Called only with ``no_ack``.
        """
        return 0

    def lags(self) -> bool:
        """Return True if earlier deliveries are not yet written to the socket.

        The caller then shares large messages instead of copying them.
        """
        return False

    def accepts_records(self) -> bool:
        """Return True if ``put_record`` accepts records of a stream from a buffer."""
        return False

    def put_record(
        self,
        buffer: bytes | bytearray,
        start: int,
        address_len: int,
        end: int,
        offset: int,
        arrived_ms: int,
    ) -> int:
        """Send a record of a stream from ``buffer[start:end]``, laid out as in Message.data."""
        return 0

    def on_cancel(self) -> None:
        """Called when the queue is deleted, or no longer serves this consumer."""

    def on_scan_end(self) -> None:
        """Called when a ``is_scanning`` consumer has read the whole queue."""

    def on_queue_end(self) -> None:
        """Called when an auto-close consumer was removed at the end of its queue."""
        self.on_cancel()

    def on_failure(self, error: Exception) -> None:
        """Called when this consumer cannot be served, and was removed from its queue."""
        self.on_cancel()


class ConsumerRound:
    """The consumers of one queue, in the order in which they are served."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        # The time at which the last consumer ran out of room; 0 while a consumer may have room.
        self.stalled_since_ms = 0
        self.stalled_total_ms = 0  # The total time without a consumer with room, before that.
        self.consumers: list[Consumer] = []
        self.active: list[Consumer] = []  # Consumers that may have room, by priority.
        self.next_index = 0  # The index in ``active`` of the consumer to serve next.
        self.has_priorities = False  # A consumer has a priority other than 0.
        self.selective_count = 0  # The number of consumers that do not accept every message.
        self.single_active_consumer: Consumer | None = None

    def add(self, consumer: Consumer, single_active: bool) -> None:
        """Add a consumer; the caller activates it next."""
        self.consumers.append(consumer)
        if consumer.is_selective:
            self.selective_count += 1
        if consumer.priority:
            self.has_priorities = True
        if single_active and self.single_active_consumer is None:
            self.single_active_consumer = consumer
        if self.next_index and self.pick() is not None:  # ``pick`` parks consumers without room.
            self.next_index -= 1

    def activate(self, consumer: Consumer, single_active: bool) -> None:
        """Put a consumer in the round, behind the consumers of its priority."""
        if single_active and consumer is not self.single_active_consumer:
            consumer.is_parked = True
            return
        consumer.is_parked = False
        if self.stalled_since_ms:
            self.stalled_total_ms += self.counters.now_ms - self.stalled_since_ms
            self.stalled_since_ms = 0
        if not self.has_priorities:
            if self.next_index and self.next_index <= len(self.active):  # Behind all others.
                self.active.insert(self.next_index, consumer)
                self.next_index += 1
            else:
                self.active.append(consumer)
            return
        index = len(self.active)
        while index and self.active[index - 1].priority < consumer.priority:
            index -= 1
        self.active.insert(index, consumer)

    def deactivate(self, consumer: Consumer) -> None:
        """Park an active consumer, which has no room."""
        consumer.is_parked = True
        self.active.remove(consumer)

    def remove(self, consumer: Consumer) -> Consumer | None:
        """Remove a consumer.

        Return the next single active consumer if the removed one was the single active consumer.
        """
        self.consumers.remove(consumer)
        if not consumer.is_parked:
            index = self.active.index(consumer)
            del self.active[index]
            if index < self.next_index:
                self.next_index -= 1
        consumer.is_parked = False  # Room that it gains by settling no longer matters.
        if consumer.is_selective:
            self.selective_count -= 1
        if consumer is not self.single_active_consumer:
            return None
        # The oldest consumer of the highest priority follows.
        successor: Consumer | None = max(self.consumers, key=PRIORITY) if self.consumers else None
        self.single_active_consumer = successor
        return successor

    def total_wait_ms(self) -> int:
        """Return the time in milliseconds during which no consumer had room for a message."""
        if not self.stalled_since_ms:
            return self.stalled_total_ms
        return self.stalled_total_ms + self.counters.now_ms - self.stalled_since_ms

    def clear(self) -> None:
        """Remove all consumers."""
        self.consumers = []
        self.active = []
        self.single_active_consumer = None

    def pick(self) -> Consumer | None:
        """Return the next active consumer with room; park the consumers without room."""
        if self.has_priorities:
            return self.pick_by_priority()
        consumer: Consumer
        active = self.active
        n = len(active)
        while n:
            if self.next_index >= n:
                self.next_index = 0
            consumer = cython.cast(Consumer, active[self.next_index])  # The list has no other type.
            if consumer.has_room():
                self.next_index += 1
                return consumer
            consumer.is_parked = True
            del active[self.next_index]
            n -= 1
        if self.stalled_since_ms == 0:
            self.stalled_since_ms = self.counters.now_ms
        return None

    def pick_by_priority(self) -> Consumer | None:
        """Return the next consumer with room, by x-priority; park the consumers without room."""
        consumer: Consumer
        active = self.active
        while active:
            level_end = 1
            while level_end < len(active) and active[level_end].priority == active[0].priority:
                level_end += 1
            if self.next_index >= level_end:
                self.next_index = 0
            consumer = active[self.next_index]
            if consumer.has_room():
                self.next_index += 1
                return consumer
            consumer.is_parked = True
            del active[self.next_index]
        if self.stalled_since_ms == 0:
            self.stalled_since_ms = self.counters.now_ms
        return None

    def skip(self, consumer: Consumer) -> None:
        """Serve another active consumer next instead of ``consumer``, if there is one."""
        if len(self.active) > 1:
            index = self.next_index if self.next_index < len(self.active) else 0
            if self.active[index] is consumer:
                self.next_index = index + 1


class Options(TypedDict, total=False):
    """The options of :class:`Destination`, for subclasses that pass them on."""

    store: Required[Store]
    counters: Required[Counters]
    vhost: "QueueHost | None"
    id: int
    durable: bool
    auto_delete: bool
    exclusive_owner: object
    arguments: dict[str, object] | None


class Destination:
    """A queue or stream, with its identity, its consumers and the operations of channels."""

    # Uncompiled, a dictionary of so many attributes would take twice the memory of all else.
    __slots__ = (
        "access_name",
        "arguments",
        "auto_delete",
        "browse_only",
        "counters",
        "deleted",
        "durable",
        "exclusive_consumer",
        "exclusive_only",
        "exclusive_owner",
        "expires_ms",
        "id",
        "id_bytes",
        "is_hidden",
        "is_stream",
        "name",
        "pace_above",
        "publishers_stopped",
        "ready",
        "reports_deliveries",
        "round",
        "sampler_state",
        "single_active",
        "store",
        "tally",
        "unacked_bytes",
        "unacked_count",
        "used_ms",
        "vhost",
        "waiters",
        "will_drain",
    )

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        counters: Counters,
        vhost: "QueueHost | None" = None,
        id: int = 0,  # noqa: A002 - the field has this name in every definition
        durable: bool = False,
        auto_delete: bool = False,
        exclusive_owner: object = None,
        arguments: dict[str, object] | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self.counters = counters
        # Only queues in tests have no virtual host.
        self.vhost: QueueHost = vhost  # type: ignore[assignment]
        self.id = id
        self.id_bytes = id.to_bytes(4, "big")
        self.durable = durable
        self.auto_delete = auto_delete
        self.exclusive_owner = exclusive_owner
        self.arguments = arguments if arguments is not None else {}
        self.is_hidden = False  # An internal queue: clients cannot publish to it or bind it.
        self.is_stream = False  # Messages stay after delivery; see model.stream.
        self.access_name = name  # The queue whose read permission this queue requires.
        self.expires_ms = -1  # The time without consumers after which it is deleted (x-expires).
        self.used_ms = counters.now_ms  # The time of its last use, for x-expires.
        self.deleted = False
        self.ready = NOTHING_READY  # Replaced by queues; streams have no ready list.
        self.round: ConsumerRound | None = None
        self.exclusive_consumer: Consumer | None = None
        self.exclusive_only = False  # True if at most one consumer is allowed (policy LINK).
        self.browse_only = False  # True if every consumer is a browser.
        self.single_active = False  # True if only one consumer gets messages at a time.
        self.reports_deliveries = False  # True if the virtual host is called before deliveries.
        self.will_drain = False  # True until the drain at the end of this turn.
        self.pace_above = PACE_ABOVE  # Ready messages above which publishers are paced.
        # Publishers are paced, until the guard of flow control resumes them.
        self.publishers_stopped = False
        self.waiters: dict[PacedPublisher, None] | None = None  # Paced publishers.
        self.tally = QueueTally()
        self.sampler_state: object = None  # Set by the sampler of the server; opaque to the model.
        self.unacked_count = 0
        self.unacked_bytes = 0  # The bytes of the bodies of unacked messages.

    @property
    def ready_count(self) -> int:
        """The number of messages that wait for a consumer."""
        return self.ready.count

    @property
    def ready_bytes(self) -> int:
        """The bytes of the bodies of ready messages."""
        return self.ready.bytes

    @property
    def published(self) -> int:
        """The number of messages that were routed to this queue."""
        return self.tally.publish

    @property
    def delivered(self) -> int:
        """The number of messages that were delivered to consumers or returned by ``get``."""
        return self.tally.delivered()

    @property
    def acknowledged(self) -> int:
        """The number of deliveries that were acknowledged."""
        return self.tally.ack

    @property
    def consumers(self) -> list[Consumer] | None:
        """The consumers other than browsers; None if there are none."""
        return None if self.round is None else self.round.consumers

    @property
    def single_active_consumer(self) -> Consumer | None:
        """The single active consumer; None if there is none."""
        return None if self.round is None else self.round.single_active_consumer

    # --- Arrivals ---------------------------------------------------------------------------------

    def ready_consumer(self) -> Consumer | None:
        """Return a consumer with room for the next arrival; None if messages are ready."""
        return None

    def has_ready_consumer(self) -> bool:
        """Return True if the next arrival can be delivered at once."""
        return False

    def would_reject(self, body_size: int) -> bool:
        """Return True if the overflow policy rejects the next arrival."""
        return False

    def enqueue(self, message: Message) -> int:
        """Enqueue an arrival; return 1 if the overflow policy rejected it, else 0."""
        return 0

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        """Enqueue an arrival that got its position when its transaction was prepared.

        With ``promised`` the queue has reserved room for it, so it is not rejected.
        """
        self.enqueue(message)

    def dispatch_arrival(self, consumer: Consumer, message: Message) -> None:
        """Deliver an arrival to the consumer that :meth:`ready_consumer` returned."""

    def restore(self, message: Message, arrived_ms: int) -> None:
        """Restore a message that the store recovered; called in order of seq, before any consumer.

        ``arrived_ms`` is the time of its arrival.
        """

    # --- Consumers --------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Add a consumer; the caller drains the queue afterwards."""

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; its unacked messages stay unacked."""

    def start_filtering(self, consumer: Consumer) -> None:
        """Let a consumer pass messages over from now on."""

    def set_selective(self, consumer: Consumer, selective: bool) -> None:
        """Set whether :meth:`Consumer.evaluate` is called before each message."""
        if consumer.is_selective != selective:
            consumer.is_selective = selective
            if self.round is not None and consumer in self.round.consumers:
                self.round.selective_count += 1 if selective else -1

    def show_message(self, consumer: Consumer, message: Message) -> None:
        """Show a message of another queue to a browser of this queue."""
        consumer.deliver(message)

    # Keeps 0-10/s089, 0-10/s209, 0-10/s240.
    def join_round(self, consumer: Consumer) -> None:
        """Add a consumer to the round and activate it."""
        if self.round is None:
            self.round = ConsumerRound(self.counters)
        self.round.add(consumer, self.single_active)
        if consumer.exclusive or self.exclusive_only:
            self.exclusive_consumer = consumer
        self.activate(consumer)

    def activate(self, consumer: Consumer) -> None:
        """Activate a consumer of the round that may have room."""
        if self.round is not None:
            self.round.activate(consumer, self.single_active)

    def deactivate(self, consumer: Consumer) -> None:
        """Park a consumer of the round, which has no room."""
        if self.round is not None:
            self.round.deactivate(consumer)

    def leave_round(self, consumer: Consumer) -> None:
        """Remove a consumer from the round."""
        if self.round is None:
            return
        successor = self.round.remove(consumer)
        if consumer is self.exclusive_consumer:
            self.exclusive_consumer = None
        if successor is not None:
            self.activate(successor)
        if not self.round.consumers:
            self.round = None
        self.used_ms = self.counters.now_ms

    def unpark(self, consumer: Consumer) -> None:
        """Called when a consumer has room again."""

    def drain(self) -> None:
        """Deliver messages while a consumer has room."""

    def drain_again(self, now_ms: int) -> int:
        """Drain the queue; called once by the scheduler. Return 0, the time of no further call."""
        self.drain()
        return 0

    def wake(self) -> None:
        """Drain the queue at the end of this turn."""
        if not self.will_drain:
            self.will_drain = True
            self.counters.to_drain.append(self)

    # --- Settlement -------------------------------------------------------------------------------

    def get(self, getter: Consumer) -> Message | None:
        """Return the first message for ``basic.get``; unless ``no_ack`` it is unacked.

        With ``no_ack`` the caller calls :meth:`remove` once it has written the message.
        """
        return None

    def acquire(self, message: Message, consumer: Consumer) -> bool:
        """Acquire a ready message from its position; return False if it is no longer ready."""
        return False

    def settle(self, message: Message) -> None:
        """Settle a message that a consumer acknowledged."""

    def requeue(self, message: Message) -> None:
        """Requeue a message after a failed delivery; it is marked redelivered.

        The caller drains the queue once, after it has requeued all messages.
        """

    def release(self, message: Message) -> None:
        """Requeue a message that its consumer did not process; it is not marked redelivered."""

    def discard(self, message: Message) -> None:
        """Discard a message that a consumer rejected without requeue."""

    def redeliver(self, message: Message) -> None:
        """Deliver an unacked message to its consumer again (recover without requeue)."""

    def on_unconvertible(self, message: Message, consumer: Consumer, text: str) -> None:
        """Handle a message that cannot be converted to a consumer's protocol.

        ``text`` is the cause.
        """

    def remove(self, message: Message) -> None:
        """Remove a message from memory and from the store."""

    def weight(self, message: Message) -> int:
        """Return the bytes of memory that a message counts for."""
        if message.flags & C_PAGED:
            return C_PAGED_WEIGHT
        return message.body_size + (message.header_units << 8) + C_MESSAGE_OVERHEAD

    # --- Paced publishers -------------------------------------------------------------------------

    def add_waiter(self, publisher: PacedPublisher) -> None:
        """Register a publisher to resume when the queue is shorter."""
        if self.waiters is None:
            self.waiters = {}
        self.waiters[publisher] = None

    def remove_waiter(self, publisher: PacedPublisher) -> None:
        """Unregister a publisher of :meth:`add_waiter`."""
        if self.waiters is not None:
            self.waiters.pop(publisher, None)

    # --- The whole queue --------------------------------------------------------------------------

    def message_count(self) -> int:
        """Return the number of ready messages, as Queue.Declare-Ok reports it."""
        return self.ready.count

    def consumer_count(self) -> int:
        """Return the number of consumers."""
        return 0 if self.round is None else len(self.round.consumers)

    def purge(self) -> int:
        """Remove every ready message; return their number."""
        return 0

    def destroy(self) -> int:
        """Delete the queue: remove all messages, cancel all consumers.

        Return the number of messages that were ready.
        """
        return 0


NOTHING_READY = ReadyList()  # The empty list that streams share.
