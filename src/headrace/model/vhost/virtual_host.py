# SPDX-License-Identifier: Apache-2.0
"""A virtual host: a separate namespace of exchanges, queues and bindings.

Its three classes derive from one another: exchanges and bindings in
:mod:`headrace.model.vhost.topology`, queues in :mod:`headrace.model.vhost.queue_registry`, and
here routing, delivery and one object for each feature (leases, dead letters, transactions, …).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.model.arguments import lifetime_policies
from headrace.model.arguments.memory_estimate import LIMIT, consumer_memory
from headrace.model.arguments.no_local import is_local
from headrace.model.arguments.values import check_reader_arguments, queue_type, stores_all
from headrace.model.contents import UnreadableError
from headrace.model.dead_letter_headers import UNCONVERTIBLE
from headrace.model.errors import InvalidArgument
from headrace.model.events import SERVICES, Events, consumer_facts, consumer_name
from headrace.model.exchange.binding import QUEUE, Binding, BindingDestination
from headrace.model.exchange.exchange import Exchange, Headers, Observer
from headrace.model.exchange.registry import new_exchange
from headrace.model.exchange.super_stream import SuperStreamExchange
from headrace.model.host import Route
from headrace.model.interceptor.exchange_observer import (
    KEPT,
    ExchangeObserver,
    is_observed,
    kept_arguments,
)
from headrace.model.interceptor.interception import Interception
from headrace.model.interceptor.stamps import SENT_TIME, Stamps
from headrace.model.interceptor.tracer import FACT as TRACED
from headrace.model.interceptor.tracer import ConnectionLookup, Tracer
from headrace.model.keyvalue import Facts
from headrace.model.lease.lease import Lease
from headrace.model.lease.registry import Leases
from headrace.model.message import KIND_FILE, KIND_MASK, LARGE, PERSISTENT, Message, copy_message
from headrace.model.operations.jobs import Jobs
from headrace.model.ports import Files
from headrace.model.queue.flow_control import must_report_deliveries
from headrace.model.queue_kinds.delayed import Delayed, DelayedQueue
from headrace.model.scheduler import Scheduler
from headrace.model.stream.consumer_groups import ConsumerGroups
from headrace.model.stream.lost_records import LostRecords
from headrace.model.stream.stream import Stream
from headrace.model.transaction.dtx import Branches
from headrace.model.transaction.staged_batch import Sinks
from headrace.model.vhost import super_stream
from headrace.model.vhost.dead_lettering import DeadLetters
from headrace.model.vhost.definitions import Definitions, NoDefinitions, QueueRecord
from headrace.model.vhost.orphans import ENDING_PREFIX, Orphans
from headrace.model.vhost.publishing_ids import PublishingIds
from headrace.model.vhost.queue_registry import QueueRegistry, StreamMaker
from headrace.model.vhost.topology import NO_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.model.contents import Contents
    from headrace.model.counters import Counters
    from headrace.model.ports import Store
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.definitions import BindingRecord

log = logging.getLogger(__name__)

ALTERNATES_MAX = 1 << 30  # No limit in effect, since a route tries each exchange only once.


# Keeps 0-9-1/s019, 0-9-1/s020, 0-9/connection.open.virtual-host#separation, 0-10/s022, 0-10/s023.
class VirtualHost(QueueRegistry):
    """A virtual host with its exchanges, queues and bindings, run on one event loop."""

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        counters: Counters,
        definitions: Definitions | None = None,
        scheduler: Scheduler | None = None,
        contents: Contents | None = None,
        make_stream: StreamMaker | None = None,
        files: Files | None = None,
        events: Events | None = None,
    ) -> None:
        """``contents`` reads and rewrites messages; without it dead letters are dropped.

        ``make_stream`` takes the arguments of :class:`Queue`; without it declaring a stream is
        refused. ``files`` keeps the bodies of file messages. ``events`` receives all events of the
        host.
        """
        QueueRegistry.__init__(
            self,
            name,
            store,
            counters,
            definitions if definitions is not None else NoDefinitions(),
            events if events is not None else Events(counters),
            scheduler if scheduler is not None else Scheduler(),
            make_stream,
        )
        self._consumers: dict[Consumer, int] = {}  # Bytes of memory of each.
        self.contents = contents
        self.files = files if files is not None else Files()
        self.branches = Branches(self)
        self.sinks = Sinks(self)
        self.facts = Facts(store)
        self.leases = Leases(self)
        self.delayed = Delayed(self)
        self.dead_letters = DeadLetters(self)
        self.orphans = Orphans(self)
        self.groups = ConsumerGroups(self.facts)
        self.lost_records = LostRecords(self.facts)
        #: Called with each closed connection or session and the time (ms).
        self.close_listeners: list[Callable[[object, int], None]] = [self.groups.on_holder_end]
        self.publishing_ids = PublishingIds(self.facts, counters)
        self.jobs = Jobs(self)
        self.stamps: Stamps | None = None  # Headers that the broker adds to messages.
        # True while all clients wait, also those that open the virtual host.
        self.is_frozen = False
        self.tracer: Tracer | None = None  # Copies messages to amq.rabbitmq.trace.

    def __repr__(self) -> str:
        return f"<VirtualHost {self.name!r} queues={len(self.queues)}>"

    # Keeps 0-9-1/s055, 0-9-1/queue.bind#04, 0-9/queue.declare.durable#persistence,
    # 0-9/queue.bind#durable-exchange, 0-10/s164, 0-10/s183.
    def load(self) -> None:
        """Load the durable definitions; call once, before anything else."""
        saved = self.definitions.load()
        for saved_exchange in saved.exchanges:
            self._add_exchange(
                new_exchange(
                    saved_exchange.type,
                    saved_exchange.name,
                    durable=True,
                    auto_delete=saved_exchange.auto_delete,
                    internal=saved_exchange.internal,
                    arguments=saved_exchange.arguments,
                )
            )
        for record in saved.queues:
            queue = self._make_queue(
                record.name.removeprefix(ENDING_PREFIX),
                id=record.id,
                durable=True,
                auto_delete=record.auto_delete,
                arguments=dict(record.arguments) or NO_ARGUMENTS,
                exclusive_owner=lifetime_policies.recovered_owner(record.arguments),
            )
            if record.name.startswith(ENDING_PREFIX):
                self.count_alternate(queue.alternate_exchange, 1)
                self.orphans.adopt(queue)
                continue
            queue.is_hidden = queue.is_hidden or record.name.startswith(KEPT)
            self._add_queue(queue, record.user)
            self.lifetimes.restore(queue)
            if isinstance(queue, Lease):
                self.leases.adopt(queue)
            elif isinstance(queue, DelayedQueue):
                self.delayed.adopt(queue)
        for saved_binding in saved.bindings:
            self._load_binding(saved_binding)
        self._invalidate_routes()
        maximum = self.rules.limits.definitions_size
        if 0 <= maximum < self.definition_memory:
            log.warning(
                "vhost %r: its definitions use %d bytes of memory, more than the limit of %d: "
                "no others can be declared until some are deleted or %s is raised",
                *(self.name, self.definition_memory, maximum, LIMIT),
            )

    def _load_binding(self, record: BindingRecord) -> None:
        """Restore a binding; log and omit it if its source or destination is missing."""
        source = self.exchanges.get(record.source)
        destinations: Mapping[str, BindingDestination] = (
            self.queues if record.kind == QUEUE else self.exchanges
        )
        destination = destinations.get(record.destination)
        if source is None or destination is None:
            log.warning(
                "vhost %r: binding %r has no destination and is left out", self.name, record
            )
            return
        try:
            binding = Binding(source, destination, record.routing_key, record.arguments)
            self._add_binding(binding, source.binding_memory(binding))
        except InvalidArgument as error:
            log.error("vhost %r: binding %r is left out: %s", self.name, record, error)

    def resume(self) -> None:
        """Resume deduplication, history and tracing; call once the facts are recovered."""
        for exchange in list(self.exchanges.values()):
            self._add_observer(exchange)

    def durable_queues(self) -> dict[int, Queue]:
        """Return the durable queues by id, deleted ones that still have messages included."""
        queues = {queue.id: queue for queue in self.queues.values() if queue.durable}
        queues.update((queue.id, queue) for queue in self.orphans if queue.durable)
        return queues

    # --- Routing ----------------------------------------------------------------------------------

    # Keeps 0-9-1/queue.bind#02.
    def route(
        self,
        exchange: str,
        routing_key: str,
        headers: Headers,
        alternates: int = ALTERNATES_MAX,
        copies: Sequence[str] = (),
        publisher: int = 0,
    ) -> Route:
        """Return the queues that a message reaches; ``headers`` is called only if needed.

        ``alternates`` bounds how many alternate exchanges in a row are tried. ``copies`` are
        further routing keys (CC, BCC). ``publisher`` is the number of the publishing connection, 0
        for none.

        Raises:
            NotFound: the exchange does not exist.
        """
        queues: dict[Queue, None] = {}
        first = self.find_exchange(exchange)
        observers: dict[Observer, None] = {}
        cacheable = self.follow(
            first, routing_key, headers, queues, alternates, observers, copies, publisher
        )
        if not observers and self.stamps is None and self.tracer is None:
            return Route(tuple(queues), cacheable)
        return Route(tuple(queues), False, Interception(self, tuple(observers), headers))

    # Keeps 0-10/s149, 0-10/s151, 0-10/s152.
    def follow(
        self,
        first: Exchange,
        routing_key: str,
        headers: Headers,
        queues: dict[Queue, None],
        alternates: int = ALTERNATES_MAX,
        observers: dict[Observer, None] | None = None,
        copies: Sequence[str] = (),
        publisher: int = 0,
    ) -> bool:
        """Add the queues that an exchange leads to; return True if the route may be cached.

        Follows exchange-to-exchange bindings and alternate exchanges; each exchange counts once.
        ``observers`` collects the observers of the exchanges passed.
        """
        cacheable = True
        # How many alternate exchanges in a row may follow each exchange.
        seen: dict[Exchange, int] = {first: alternates}
        pending = [first]
        while pending:
            exchange = pending.pop()
            cacheable = cacheable and exchange.cacheable
            if exchange.observer is not None and observers is not None:
                observers[exchange.observer] = None
                if exchange.observer.is_duplicate(headers()):
                    continue
            matched: dict[BindingDestination, None] = {}
            for key in (routing_key, *copies) if copies else (routing_key,):
                exchange.match(key, headers, matched)
                if exchange.filtered is not None and exchange.match_filtered(
                    key, headers, matched, publisher
                ):
                    cacheable = False
            self.drop_unbound(exchange, matched)
            following: list[Exchange] = []
            for destination in matched:
                if isinstance(destination, Exchange):
                    following.append(destination)
                else:
                    queues[destination] = None
            alternates_left = seen[exchange]
            if not matched and exchange.alternate is not None and alternates_left:
                alternate = self.exchanges.get(exchange.alternate)
                if alternate is not None:
                    following.append(alternate)
                    alternates_left -= 1
            for exchange in following:
                if exchange not in seen:
                    seen[exchange] = alternates_left
                    pending.append(exchange)
        if self.no_local:
            for queue in [queue for queue in queues if queue in self.no_local]:
                cacheable = False  # The owner of the queue may change at any time.
                if is_local(queue, publisher):
                    del queues[queue]
        return cacheable

    # --- Publishing by the broker -----------------------------------------------------------------

    def send(
        self,
        message: Message,
        queues: Mapping[Queue, None],
        observers: Mapping[Observer, None],
        headers: Mapping[str, object],
        persistent: bool,
    ) -> None:
        """Deliver a message that the broker publishes, and pass it to its exchanges' observers.

        May be called inside a transaction of the store.
        """
        interception = Interception(self, tuple(observers), lambda: headers)
        if interception.is_duplicate():
            return
        targets = [*queues, *interception.history_queues()]
        if observers:
            message = interception.stamp_for_exchanges(message)
        if targets:
            self.deliver(message, targets, persistent)
            for observer in observers:
                observer.record_id(headers, persistent)

    def replay_kept(
        self,
        message: Message,
        binding: Binding,
        routing_key: str,
        headers: Mapping[str, object],
        persistent: bool,
    ) -> None:
        """Deliver a message from an exchange's history to a new binding."""
        destination = binding.destination
        queues: dict[Queue, None] = {}
        if isinstance(destination, Exchange):
            self.follow(destination, routing_key, lambda: headers, queues)
        else:
            queues[destination] = None
        if queues:
            self.deliver(message, queues, persistent)

    def deliver(
        self,
        message: Message,
        queues: Iterable[Queue],
        persistent: bool,
        *,
        promised: bool = False,
    ) -> int:
        """Enqueue a message that the broker publishes or a transaction commits.

        Return how many queues refused it. With ``promised`` no queue refuses it for its length.
        """
        counters = self.counters
        if message.flags & KIND_MASK >= KIND_FILE:
            # Streams store no files and packets.
            queues = [queue for queue in queues if not queue.is_stream]
        message.seq = counters.next_seq
        counters.next_seq += 1
        position = 0
        if persistent or any(stores_all(queue.arguments) for queue in queues):
            ids = b"".join([q.id_bytes for q in queues if q.durable and not q.is_stream])
            if ids:
                position = self.store.publish_message(message, counters.now_ms, ids)
        queue_messages = []
        for queue in queues:
            queue_message = copy_message(message)
            queue_message.seq = message.seq
            if position and queue.durable and not queue.is_stream:
                queue_message.flags |= PERSISTENT
                queue_message.position = position
            else:
                queue_message.flags &= ~PERSISTENT
            queue_messages.append((queue, queue_message))
        return self.dead_letters.deliver(queue_messages, promised=promised)

    def encode_for_stream(self, message: Message, stream: Queue) -> bool:
        """Convert a message to the form of stream records: class basic, body in one piece.

        Return False, and dead-letter the message, if it cannot be converted.
        """
        if self.contents is None:
            return message.data is not None
        try:
            message.data = self.contents.encode_record(message)
        except UnreadableError as error:
            log.warning("stream %r: a message is not kept: %s", stream.name, error)
            self.dead_letters.dead_letter(message, stream, UNCONVERTIBLE, str(error))
            return False
        message.parts = None
        message.flags &= ~(LARGE | KIND_MASK)
        return True

    # --- Tracing and stamping ---------------------------------------------------------------------

    def trace(self, node: str, lookup: ConnectionLookup) -> None:
        """Start tracing; see :mod:`headrace.model.interceptor.tracer`."""
        if self.tracer is None:
            self.tracer = Tracer(self, node, lookup)
            self.facts.put(TRACED, b"on")
            self._update_traced()

    def stop_tracing(self) -> None:
        """Publish no further copies of messages to the trace exchange, also after a restart."""
        self.tracer = None
        self.facts.put(TRACED, None)
        self._update_traced()

    @property
    def was_traced(self) -> bool:
        """True if tracing was on before the restart."""
        return self.facts.get(TRACED) is not None

    def stamp(self, stamps: Stamps | None) -> None:
        """Set the headers that the broker adds to messages; None adds no headers."""
        self.stamps = stamps or None
        self._update_traced()

    def before_delivery(self, queue: Queue, consumer: Consumer, message: Message) -> None:
        """Stamp and trace a message; called just before its delivery."""
        if queue.guard is not None:
            queue.guard.check_delivery(consumer, message)
        if queue.access_name.startswith(SERVICES):
            return
        if self.stamps is not None and self.stamps.sent_time and self.contents is not None:
            stamped = {SENT_TIME: self.counters.now_ms}
            try:
                message.data = self.contents.stamp(message, stamped, None).data
            except UnreadableError as error:
                log.warning("vhost %r: a message is not stamped: %s", self.name, error)
        if self.tracer is not None:
            self.tracer.trace_delivery(queue, consumer, message)

    def _update_traced(self) -> None:
        """Update whether each queue calls :meth:`before_delivery`."""
        self.reports_deliveries = self.tracer is not None or (
            self.stamps is not None and self.stamps.sent_time
        )
        for queue in self.queues.values():
            queue.reports_deliveries = must_report_deliveries(queue)
        self._invalidate_routes()

    # --- Connections and consumers ----------------------------------------------------------------

    def on_connection_closed(self, owner: object) -> None:
        """Release the groups and exclusive queues of a closed connection."""
        for listener in self.close_listeners:
            listener(owner, self.counters.now_ms)
        self.on_owner_end(owner)

    # Keeps 0-9-1/basic.consume#01, 0-9/basic.consume#01, 0-9/message.consume#01,
    # 0-9/file.consume#01, 0-9/stream.consume#01, 0-10/s089, 0-10/s209, 0-10/s240.
    def check_consumer(self, consumer: Consumer) -> None:
        """Refuse a consumer before it is added to its queue.

        A queue has no maximum number of consumers.

        Raises:
            InvalidArgument: the consumer has arguments of stream readers, and does not browse.
            LimitReached: definitions and consumers would use more memory than they may.
        """
        queue = consumer.queue
        if consumer.arguments and not (queue.is_stream or consumer.is_browser):
            check_reader_arguments(
                consumer.arguments, self._queue_subject(queue.name), queue_type(queue.arguments)
            )
        memory = consumer_memory(consumer.tag, consumer.arguments, consumer.selector)
        self.check_definition(memory, "consumer '{}'", consumer.tag)

    def count_consumer(self, consumer: Consumer) -> None:
        """Count the memory of a consumer until it is removed."""
        if consumer not in self._consumers:
            memory = consumer_memory(consumer.tag, consumer.arguments, consumer.selector)
            self._consumers[consumer] = memory
            self.definition_memory += memory

    def on_consumer_added(self, consumer: Consumer) -> None:
        """Count the memory of a new consumer, and report it."""
        self.count_consumer(consumer)
        if self.events.has_listeners and not consumer.queue.access_name.startswith(SERVICES):
            self.events.emit("consumer.created", **consumer_facts(consumer, self.name))

    def on_consumer_removed(self, consumer: Consumer) -> None:
        """Release the memory of a removed consumer, and report its removal."""
        self.definition_memory -= self._consumers.pop(consumer, 0)
        if self.events.has_listeners and not consumer.queue.access_name.startswith(SERVICES):
            self.events.emit("consumer.deleted", **consumer_name(consumer, self.name))

    # --- Super streams, observers and leases of exchanges and queues ------------------------------

    def _check_new_exchange(self, exchange: Exchange) -> None:
        if exchange.type == SuperStreamExchange.type:
            super_stream.check(self, exchange.name, exchange.durable, exchange.arguments)

    def _on_exchange_added(self, exchange: Exchange) -> None:
        if exchange.type == SuperStreamExchange.type:
            super_stream.make_partitions(self, exchange.name, exchange.arguments)
        self._add_observer(exchange)

    def _add_observer(self, exchange: Exchange) -> None:
        """Make the observer of an exchange, if its arguments require one."""
        if not is_observed(exchange):
            return
        arguments = kept_arguments(exchange)
        kept = None
        if arguments is not None:
            name = KEPT + exchange.name
            kept = self.queues.get(name)
            if kept is None:
                queue_id = 0
                if exchange.durable:
                    record = QueueRecord(0, name, False, arguments)
                    queue_id = self.definitions.save_queue(record)
                kept = self._make_queue(
                    name, id=queue_id, durable=exchange.durable, arguments=arguments
                )
                kept.is_hidden = True
                self._add_queue(kept)
        exchange.observer = ExchangeObserver(self, exchange, kept)

    def _on_exchange_deleted(self, exchange: Exchange) -> None:
        if exchange.observer is not None:
            exchange.observer.clear()
            if exchange.observer.kept is not None:
                self._remove_queue(exchange.observer.kept)

    def _is_leased(self, queue: Queue) -> bool:
        return self.leases.is_in_use(queue)

    def _end_deleted(self, queue: Queue, user: str) -> int:
        if isinstance(queue, Stream):
            self.groups.delete_all(queue)
            self.lost_records.delete_all(queue)
        count: int = queue.message_count()
        if self.orphans.reroute(queue, user):
            self.dead_letters.on_queue_deletion(queue)
        else:
            self.end_queue(queue)
        if queue.durable and not queue.is_hidden:
            self.leases.on_queue_deletion(queue)
        return count

    def end_queue(self, queue: Queue) -> None:
        """Remove the messages and the definition of a deleted queue."""
        queue.destroy()
        self.dead_letters.on_queue_deletion(queue)
        self.count_alternate(queue.alternate_exchange, -1)
        if queue.durable:
            self.definitions.delete_queue(queue.id)
