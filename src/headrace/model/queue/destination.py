# SPDX-License-Identifier: Apache-2.0
"""Two ports: a queue or stream, as exchanges and channels use it, and a consumer, as queues use it.

A :class:`Destination` enqueues messages that were routed to it, and delivers messages to consumers.
Queues, streams, leases and views of queues are destinations. The two are in one module because each
has an attribute of the other's C type.

Each has a :class:`ConsumerRound`, made with its first consumer. Active consumers take turns (round
robin), those of a higher priority first. A consumer without room is parked outside the round until
it reports room again, so a parked consumer costs nothing. With a single active consumer
(``x-single-active-consumer``) all others are parked.
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


class PacedPublisher(Protocol):
    """A publisher that stopped reading until a queue is shorter."""

    def unpace(self) -> None:
        """Read again."""


class LengthGuard(Protocol):
    """A guard of a queue's length; see :mod:`headrace.model.queue.flow_control`."""

    counts_unacked: bool  # Unacked messages count too.

    def check_depth(self) -> None:
        """Compare the depth of the queue with the thresholds."""

    def check_size(self, message: Message) -> None:
        """Compare the size of an arrival with its threshold."""

    def note_delivery(self, consumer: "Consumer", message: Message) -> None:
        """Check the depth before a delivery."""

    def resume(self) -> None:
        """Let the publishers continue."""


class Consumer:
    """A consumer, as its queue sees it; gateways override ``can_take``, ``deliver`` and ``put``."""

    def __init__(self, queue: "Queue", tag: str, no_ack: bool) -> None:
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = False
        self.no_local = False
        self.selective = False  # Ask ``accepts`` before each message: prefetch-size, or filters.
        self.filters = False  # May pass messages over, so it has a cursor: no-local, a selector.
        self.selector: Selector | None = None  # Of the messages that it takes.
        self.auto_close = False  # It ends at the end of the queue.
        self.cursor: Cursor | None = None  # How far it has read, while it filters or browses.
        self.scanning = False  # It has not read the whole queue yet, and continues in a later turn.
        self.priority = 0
        self.family = 0  # The kind of content that its ``put`` takes: see model/message.py.
        self.publisher = 0  # The number of its connection, as in Message.publisher.
        self.parked = False  # Out of the queue's round, waiting for room.
        self.browses = False  # Is shown messages without acquiring them.
        self.arguments: Mapping[str, object] = {}

    def can_take(self) -> bool:
        """Return True if there is room for one more message."""
        return False

    def accepts(self, message: Message) -> int:
        """Return 1 if this message may be delivered, 0 if never, 2 if there is no room for it now.

        Called only where ``selective`` is set.
        """
        return 1

    def deliver(self, message: Message) -> None:
        """Send a message to the client. Its data is in memory; unless ``no_ack`` it is unacked."""

    def redelivers(self) -> None:
        """Called before a delivery of a message that was delivered before."""

    def hold(self, position: int) -> None:
        """Delay later deliveries until the journal is synced up to ``position``.

        So a message that a client has seen comes back as redelivered after a crash.
        """

    def put(
        self, d: bytes | bytearray, start: int, address_len: int, end: int, redelivered: int
    ) -> int:
        """Send a message of class basic straight from a buffer, laid out as in Message.data.

        Only with ``no_ack``.
        """
        return 0

    def lags(self) -> bool:
        """Return True if earlier deliveries still wait: large messages are better shared then."""
        return False

    def pours(self) -> bool:
        """Return True if ``put_record`` accepts records of a stream from a buffer."""
        return False

    def put_record(
        self,
        d: bytes | bytearray,
        start: int,
        address_len: int,
        end: int,
        offset: int,
        arrived_ms: int,
    ) -> int:
        """Send a record of a stream, laid out in ``d[start:end]`` as in Message.data."""
        return 0

    def cancelled(self) -> None:
        """Called when the queue is deleted, or serves this consumer no longer."""

    def on_scan_end(self) -> None:
        """Called when this consumer, which was ``scanning``, has read the whole queue."""

    def ended(self) -> None:
        """Called when this consumer reached its end, and was removed from its queue."""
        self.cancelled()

    def failed(self, error: Exception) -> None:
        """Called when this consumer cannot be served, and was removed from its queue."""
        self.cancelled()


class ConsumerRound:
    """The consumers of one queue, in the order in which they are served."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.stalled_ms = 0  # Since when no consumer has room for a message; 0: some may.
        self.waited_ms = 0  # For how long that was so before.
        self.consumers: list[Consumer] = []
        self.active: list[Consumer] = []  # Those that may have room, by priority.
        self.next_index = 0  # Of the active consumer that comes next.
        self.has_priorities = False  # Some consumer has a priority other than 0.
        self.selective = 0  # Consumers that do not take every message.
        self.single_active_consumer: Consumer | None = None

    def add(self, consumer: Consumer, single_active: bool) -> None:
        """Add a consumer, which :meth:`activate` is to be called with next."""
        self.consumers.append(consumer)
        if consumer.selective:
            self.selective += 1
        if consumer.priority:
            self.has_priorities = True
        if single_active and self.single_active_consumer is None:
            self.single_active_consumer = consumer
        if self.next_index and self.pick() is not None:  # Parks consumers that have no room.
            self.next_index -= 1

    def activate(self, consumer: Consumer, single_active: bool) -> None:
        """Put a consumer in the round, behind those of its priority."""
        if single_active and consumer is not self.single_active_consumer:
            consumer.parked = True
            return
        consumer.parked = False
        if self.stalled_ms:
            self.waited_ms += self.counters.now_ms - self.stalled_ms
            self.stalled_ms = 0
        if not self.has_priorities:
            if self.next_index and self.next_index <= len(self.active):  # All others come first.
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
        consumer.parked = True
        self.active.remove(consumer)

    def remove(self, consumer: Consumer) -> Consumer | None:
        """Remove a consumer; return the next single active consumer if it was that one."""
        self.consumers.remove(consumer)
        if not consumer.parked:
            index = self.active.index(consumer)
            del self.active[index]
            if index < self.next_index:
                self.next_index -= 1
        consumer.parked = False  # Room that it gains by settling no longer matters.
        if consumer.selective:
            self.selective -= 1
        if consumer is not self.single_active_consumer:
            return None
        # The highest priority comes next, and of those the one that has waited longest.
        following: Consumer | None = max(self.consumers, key=PRIORITY) if self.consumers else None
        self.single_active_consumer = following
        return following

    def total_wait_ms(self) -> int:
        """Return for how many milliseconds messages waited because no consumer had room."""
        if not self.stalled_ms:
            return self.waited_ms
        return self.waited_ms + self.counters.now_ms - self.stalled_ms

    def clear(self) -> None:
        """Remove all consumers."""
        self.consumers = []
        self.active = []
        self.single_active_consumer = None

    def pick(self) -> Consumer | None:
        """Return the next active consumer with room; park those without."""
        if self.has_priorities:
            return self.pick_by_priority()
        consumer: Consumer
        active = self.active
        n = len(active)
        while n:
            if self.next_index >= n:
                self.next_index = 0
            consumer = cython.cast(Consumer, active[self.next_index])  # Nothing else is in there.
            if consumer.can_take():
                self.next_index += 1
                return consumer
            consumer.parked = True
            del active[self.next_index]
            n -= 1
        if self.stalled_ms == 0:
            self.stalled_ms = self.counters.now_ms
        return None

    def pick_by_priority(self) -> Consumer | None:
        """As :meth:`pick`; a higher x-priority goes first while it has room."""
        consumer: Consumer
        active = self.active
        while active:
            last = 1
            while last < len(active) and active[last].priority == active[0].priority:
                last += 1
            if self.next_index >= last:
                self.next_index = 0
            consumer = active[self.next_index]
            if consumer.can_take():
                self.next_index += 1
                return consumer
            consumer.parked = True
            del active[self.next_index]
        if self.stalled_ms == 0:
            self.stalled_ms = self.counters.now_ms
        return None

    def skip(self, consumer: Consumer) -> None:
        """Let another consumer come next, if this one would and there are others."""
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
    """A queue or stream: identity, consumers, and the operations of exchanges and channels."""

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
        "ready",
        "round",
        "sampled",
        "single_active",
        "stopped",
        "store",
        "tally",
        "traced",
        "unacked_bytes",
        "unacked_count",
        "used_ms",
        "vhost",
        "waiters",
        "waking",
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
        self.is_hidden = False  # The broker's own: clients cannot publish to it or bind it.
        self.is_stream = False  # Messages stay after delivery; see model.stream.
        self.access_name = name  # Permission to read the queue of this name is enough to read it.
        self.expires_ms = -1  # Without consumers; set from the arguments.
        self.used_ms = counters.now_ms  # When it was last in use, for x-expires.
        self.deleted = False
        self.ready = NOTHING_READY  # A queue has a list of its own.
        self.round: ConsumerRound | None = None
        self.exclusive_consumer: Consumer | None = None
        self.exclusive_only = False  # At most one consumer at a time (exclusive queue policy).
        self.browse_only = False  # Every consumer browses.
        self.single_active = False  # x-single-active-consumer: only one gets messages.
        self.traced = False  # The virtual host is shown each delivery.
        self.waking = False  # It is drained at the end of this turn.
        self.pace_above = PACE_ABOVE  # Ready messages above which publishers are paced.
        self.stopped = False  # Publishers are paced, until the guard of flow control resumes them.
        self.waiters: dict[PacedPublisher, None] | None = None  # Paced publishers.
        self.tally = QueueTally()
        self.sampled: object = None  # State of a sampler; the model does not use it.
        self.unacked_count = 0
        self.unacked_bytes = 0  # Of bodies.

    @property
    def ready_count(self) -> int:
        """Messages that wait for a consumer."""
        return self.ready.count

    @property
    def ready_bytes(self) -> int:
        """Bytes of the bodies of ready messages."""
        return self.ready.bytes

    @property
    def published(self) -> int:
        """Messages that were routed here."""
        return self.tally.publish

    @property
    def delivered(self) -> int:
        """Messages that were delivered to consumers or got."""
        return self.tally.delivered()

    @property
    def acknowledged(self) -> int:
        """Deliveries that were acknowledged."""
        return self.tally.ack

    @property
    def consumers(self) -> list[Consumer] | None:
        """Consumers other than browsers; None when there are none."""
        return None if self.round is None else self.round.consumers

    @property
    def single_active_consumer(self) -> Consumer | None:
        """The consumer that gets messages, where only one does."""
        return None if self.round is None else self.round.single_active_consumer

    # --- Arrivals ---------------------------------------------------------------------------------

    def ready_consumer(self) -> Consumer | None:
        """Return a consumer that may have the next arrival at once, if no message is ready."""
        return None

    def has_ready_consumer(self) -> bool:
        """Return True if a consumer may have the next arrival at once."""
        return False

    def would_reject(self, body_size: int) -> bool:
        """Return True if the overflow policy rejects the next arrival."""
        return False

    def enqueue(self, message: Message) -> int:
        """Enqueue a message that was routed here; return 1 if the overflow policy rejected it."""
        return 0

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        """Enqueue an arrival that got its position when its transaction was prepared.

        With ``promised`` there was room for it then, and it is not rejected now.
        """
        self.enqueue(message)

    def dispatch_arrival(self, consumer: Consumer, message: Message) -> None:
        """Deliver an arrival to the consumer that :meth:`ready_consumer` returned."""

    def restore(self, message: Message, arrived_ms: int) -> None:
        """Restore a message that the store recovered; in order of seq, before any consumer."""

    # --- Consumers --------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Add a consumer; the caller drains the queue afterwards."""

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; its unacked messages stay unacked."""

    def start_filtering(self, consumer: Consumer) -> None:
        """Let a consumer pass messages over from now on."""

    def set_selective(self, consumer: Consumer, selective: bool) -> None:
        """Ask a consumer before each message, or no longer."""
        if consumer.selective != selective:
            consumer.selective = selective
            if self.round is not None and consumer in self.round.consumers:
                self.round.selective += 1 if selective else -1

    def present(self, consumer: Consumer, message: Message) -> None:
        """Show a message of another queue to a browser of this one."""
        consumer.deliver(message)

    # Keeps 0-9-1/basic.consume#01, 0-9/basic.consume#01, 0-9/message.consume#01,
    # 0-9/file.consume#01, 0-9/stream.consume#01, 0-10/s089, 0-10/s209, 0-10/s240.
    def join(self, consumer: Consumer) -> None:
        """Put a consumer in the round."""
        if self.round is None:
            self.round = ConsumerRound(self.counters)
        self.round.add(consumer, self.single_active)
        if consumer.exclusive or self.exclusive_only:
            self.exclusive_consumer = consumer
        self.activate(consumer)

    def activate(self, consumer: Consumer) -> None:
        """Let a consumer of the round, which may have room, take its turns."""
        if self.round is not None:
            self.round.activate(consumer, self.single_active)

    def deactivate(self, consumer: Consumer) -> None:
        """Park a consumer of the round, which has no room."""
        if self.round is not None:
            self.round.deactivate(consumer)

    def part(self, consumer: Consumer) -> None:
        """Remove a consumer from the round."""
        if self.round is None:
            return
        following = self.round.remove(consumer)
        if consumer is self.exclusive_consumer:
            self.exclusive_consumer = None
        if following is not None:
            self.activate(following)
        if not self.round.consumers:
            self.round = None
        self.used_ms = self.counters.now_ms

    def unpark(self, consumer: Consumer) -> None:
        """Called when a consumer has room again."""

    def drain(self) -> None:
        """Deliver messages while a consumer has room."""

    def go_on(self, now_ms: int) -> int:
        """Drain the queue, called by the scheduler; return 0: not to be called again."""
        self.drain()
        return 0

    def wake(self) -> None:
        """Drain the queue at the end of this turn."""
        if not self.waking:
            self.waking = True
            self.counters.waking.append(self)

    # --- Settlement -------------------------------------------------------------------------------

    def get(self, getter: Consumer) -> Message | None:
        """Return the first message for ``basic.get``; unless ``no_ack`` it is unacked.

        With ``no_ack`` the caller calls :meth:`remove` once it has written the message.
        """
        return None

    def acquire(self, message: Message, consumer: Consumer) -> bool:
        """Acquire a ready message from its position; return False if another was faster."""
        return False

    def settle(self, message: Message) -> None:
        """Settle a message that a consumer accepted."""

    def requeue(self, message: Message) -> None:
        """Requeue a message that a consumer tried; it is marked redelivered.

        The caller drains the queue afterwards, once for all messages that it requeues.
        """

    def release(self, message: Message) -> None:
        """Requeue a message that a consumer did not try."""

    def discard(self, message: Message) -> None:
        """Discard a message that a consumer rejected without requeue."""

    def redeliver(self, message: Message) -> None:
        """Deliver an unacked message to its consumer once more (recover without requeue)."""

    def unconvertible(self, message: Message, consumer: Consumer, text: str) -> None:
        """Handle a message that cannot be converted to a consumer's protocol; ``text`` is why."""

    def remove(self, message: Message) -> None:
        """Remove a message for good, from memory and from the store."""

    def weight(self, message: Message) -> int:
        """Return the bytes of memory that a message counts for."""
        if message.flags & C_PAGED:
            return C_PAGED_WEIGHT
        return message.body_size + (message.header_units << 8) + C_MESSAGE_OVERHEAD

    # --- Publishers that wait ---------------------------------------------------------------------

    def add_waiter(self, publisher: PacedPublisher) -> None:
        """Note a publisher that stopped reading until the queue is shorter."""
        if self.waiters is None:
            self.waiters = {}
        self.waiters[publisher] = None

    def drop_waiter(self, publisher: PacedPublisher) -> None:
        """Forget a publisher that no longer waits."""
        if self.waiters is not None:
            self.waiters.pop(publisher, None)

    # --- The whole --------------------------------------------------------------------------------

    def message_count(self) -> int:
        """Return the number of messages that a declare reports."""
        return self.ready.count

    def consumer_count(self) -> int:
        """Return the number of consumers."""
        return 0 if self.round is None else len(self.round.consumers)

    def purge(self) -> int:
        """Remove every ready message; return their number."""
        return 0

    def destroy(self) -> int:
        """Delete the queue: remove all messages, cancel all consumers.

        Return how many messages were ready.
        """
        return 0


NOTHING_READY = ReadyList()  # The ready messages of every stream.
