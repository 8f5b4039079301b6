# SPDX-License-Identifier: Apache-2.0
"""A virtual host: exchanges, queues and bindings by name, and nothing of any other host.

It is made up of three classes, each on top of the one before: exchanges and bindings
(:mod:`headrace.model.vhost.topology`), queues (:mod:`headrace.model.vhost.queue_registry`), and
here the ways that messages take, with everything that goes with a queue or an exchange.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from headrace.model import contents as deadletter
from headrace.model.arguments import queue_lifetime
from headrace.model.arguments.memory_estimate import LIMIT, consumer_octets
from headrace.model.arguments.no_local import is_local
from headrace.model.arguments.values import check_reader_arguments, keeps_all, queue_type
from headrace.model.errors import InvalidArgument
from headrace.model.events import SERVICES, Events, consumer_facts, consumer_name
from headrace.model.exchange.binding import QUEUE, Binding, Destination
from headrace.model.exchange.exchange import Exchange, Headers, SuperStreamExchange
from headrace.model.exchange.registry import new_exchange
from headrace.model.interceptor.exchange_observer import (
    KEPT,
    ExchangeObserver,
    is_observed,
    kept_arguments,
)
from headrace.model.interceptor.interception import Interception
from headrace.model.interceptor.stamps import SENT_TIME, Stamps
from headrace.model.interceptor.tracer import FACT as TRACED
from headrace.model.interceptor.tracer import Tracer, Who
from headrace.model.keyvalue import Facts
from headrace.model.lease.lease import Lease
from headrace.model.lease.registry import Leases
from headrace.model.message import KIND_FILE, KIND_MASK, LARGE, PERSISTENT, Message
from headrace.model.operations.jobs import Errands
from headrace.model.ports import Files
from headrace.model.queue.flow_control import is_traced
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
from headrace.model.vhost.orphans import ENDING, Orphans
from headrace.model.vhost.publishing_ids import PublishingIds
from headrace.model.vhost.queue_registry import QueueRegistry, StreamMaker
from headrace.model.vhost.topology import NO_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.model.counters import Counters
    from headrace.model.ports import Store
    from headrace.model.queue.dispatch import Consumer
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

ALTERNATES_MAX = 1 << 30  # Each exchange is tried once, so this is no limit.


class Routed(NamedTuple):
    """Where a message goes."""

    queues: tuple[Queue, ...]
    cacheable: bool  # Exchange and routing key alone decided.
    interception: Interception | None = None  # Through which it is taken, if not as any other.


class VirtualHost(QueueRegistry):
    """One virtual host."""

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        counters: Counters,
        definitions: Definitions | None = None,
        scheduler: Scheduler | None = None,
        contents: deadletter.Contents | None = None,
        make_stream: StreamMaker | None = None,
        files: Files | None = None,
        events: Events | None = None,
    ) -> None:
        """``contents`` is what reads dead letters; without it they are dropped.

        ``make_stream`` takes the arguments of :class:`Queue`; without it there are no streams.
        ``files`` keeps the bodies of file messages. ``events`` is told what changes.
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
        self._consumers: dict[Consumer, int] = {}  # What each of them holds.
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
        #: Called with each connection or session that is gone, and the time.
        self.watchers: list[Callable[[object, int], None]] = [self.groups.holder_gone]
        self.publishing_ids = PublishingIds(self.facts, counters)
        self.errands = Errands(self)
        self.stamps: Stamps | None = None  # What the broker writes into messages,
        self.tracer: Tracer | None = None  # and who copies them. Both want to see each.

    def __repr__(self) -> str:
        return f"<VirtualHost {self.name!r} queues={len(self.queues)}>"

    def load(self) -> None:
        """Take up what was kept of this virtual host; before anything else happens to it."""
        saved = self.definitions.load()
        for x in saved.exchanges:
            self._add_exchange(
                new_exchange(
                    x.type,
                    x.name,
                    durable=True,
                    auto_delete=x.auto_delete,
                    internal=x.internal,
                    arguments=x.arguments,
                )
            )
        for q in saved.queues:
            queue = self._make_queue(
                q.name.removeprefix(ENDING),
                id=q.id,
                durable=True,
                auto_delete=q.auto_delete,
                arguments=dict(q.arguments) or NO_ARGUMENTS,
                exclusive_owner=queue_lifetime.kept_owner(q.arguments),
            )
            if q.name.startswith(ENDING):
                self.count_alternate(queue.alternate_exchange, 1)
                self.orphans.adopt(queue)
                continue
            self._add_queue(queue, q.user)
            self.lifetimes.restore(queue)
            if isinstance(queue, Lease):
                self.leases.adopt(queue)
            elif isinstance(queue, DelayedQueue):
                self.delayed.adopt(queue)
            queue.is_hidden = queue.is_hidden or q.name.startswith(KEPT)
        for b in saved.bindings:
            source = self.exchanges.get(b.source)
            where: Mapping[str, Destination] = self.queues if b.kind == QUEUE else self.exchanges
            destination = where.get(b.destination)
            if source is None or destination is None:
                log.warning("vhost %r: binding %r leads nowhere and is left out", self.name, b)
                continue
            try:
                binding = Binding(source, destination, b.routing_key, b.arguments)
                self._tie(binding, source.weigh(binding))
            except InvalidArgument as error:
                log.error("vhost %r: binding %r is left out: %s", self.name, b, error)
        self._changed()
        most = self.rules.limits.definitions_size
        if 0 <= most < self.definition_octets:
            log.warning(
                "vhost %r: its definitions hold %d octets of memory, more than the %d that they "
                "may: no others can be made before some are deleted, or %s is raised",
                *(self.name, self.definition_octets, most, LIMIT),
            )

    def restored(self) -> None:
        """The facts are there again: exchanges go on where they were, and so does tracing."""
        for exchange in list(self.exchanges.values()):
            self._watch(exchange)

    def durable_queues(self) -> dict[int, Queue]:
        """Return the queues that the store knows, by id; those that are ending, too."""
        known = {queue.id: queue for queue in self.queues.values() if queue.durable}
        known.update((queue.id, queue) for queue in self.orphans if queue.durable)
        return known

    # --- Routing ----------------------------------------------------------------------------------

    def route(
        self,
        exchange: str,
        routing_key: str,
        headers: Headers,
        alternates: int = ALTERNATES_MAX,
        copies: Sequence[str] = (),
        publisher: int = 0,
    ) -> Routed:
        """Return the queues that a message reaches; ``headers`` is called when they matter.

        ``alternates`` is how many alternate exchanges in a row may be tried. ``copies`` are further
        routing keys: an exchange gives the message to whatever is bound for one of them.
        ``publisher`` is the number of the connection that publishes, 0 for none.

        Raises:
            NotFound: there is no such exchange.
        """
        found: dict[Queue, None] = {}
        first = self.find_exchange(exchange)
        observers: dict[ExchangeObserver, None] = {}
        cacheable = self.follow(
            first, routing_key, headers, found, alternates, observers, copies, publisher
        )
        if not observers and self.stamps is None and self.tracer is None:
            return Routed(tuple(found), cacheable)
        return Routed(tuple(found), False, Interception(self, tuple(observers), headers))

    def follow(
        self,
        first: Exchange,
        routing_key: str,
        headers: Headers,
        found: dict[Queue, None],
        alternates: int = ALTERNATES_MAX,
        observers: dict[ExchangeObserver, None] | None = None,
        copies: Sequence[str] = (),
        publisher: int = 0,
    ) -> bool:
        """Collect queues over exchange-to-exchange bindings; each exchange is passed once.

        ``observers`` collects those of the exchanges that look at each message.
        """
        cacheable = True
        seen: dict[Exchange, int] = {first: alternates}  # What is left of them from there on.
        pending = [first]
        while pending:
            exchange = pending.pop()
            cacheable = cacheable and exchange.cacheable
            if exchange.observer is not None and observers is not None:
                observers[exchange.observer] = None
                if exchange.observer.is_duplicate(headers()):
                    continue
            matched: dict[Destination, None] = {}
            for key in (routing_key, *copies) if copies else (routing_key,):
                exchange.match(key, headers, matched)
                if exchange.chosen is not None and exchange.match_chosen(
                    key, headers, matched, publisher
                ):
                    cacheable = False
            self.living(exchange, matched)
            following: list[Exchange] = []
            for destination in matched:
                if isinstance(destination, Exchange):
                    following.append(destination)
                else:
                    found[destination] = None
            left = seen[exchange]
            if not matched and exchange.alternate is not None and left:
                alternate = self.exchanges.get(exchange.alternate)
                if alternate is not None:
                    following.append(alternate)
                    left -= 1
            for exchange in following:
                if exchange not in seen:
                    seen[exchange] = left
                    pending.append(exchange)
        for queue in [each for each in found if each in self.no_local] if self.no_local else ():
            cacheable = False  # Whose own it is may change at any time.
            if is_local(queue, publisher):
                del found[queue]
        return cacheable

    # --- What the broker publishes ----------------------------------------------------------------

    def send(
        self,
        message: Message,
        queues: Mapping[Queue, None],
        observers: Mapping[ExchangeObserver, None],
        headers: Mapping[str, object],
        persistent: bool,
    ) -> None:
        """Deliver what the broker itself publishes, past the exchanges that look at it.

        It may be in the middle of a transaction of the store.
        """
        interception = Interception(self, tuple(observers), lambda: headers)
        if interception.is_duplicate():
            return
        everybody = [*queues, *interception.keepers()]
        if observers:
            message = interception.watched(message)
        if everybody:
            self.deliver(message, everybody, persistent)
            for observer in observers:
                observer.note(headers, persistent)

    def send_kept(
        self,
        message: Message,
        binding: Binding,
        routing_key: str,
        headers: Mapping[str, object],
        persistent: bool,
    ) -> None:
        """Give a message that an exchange kept to what was bound to it."""
        destination = binding.destination
        found: dict[Queue, None] = {}
        if isinstance(destination, Exchange):
            self.follow(destination, routing_key, lambda: headers, found)
        else:
            found[destination] = None
        if found:
            self.deliver(message, found, persistent)

    def deliver(
        self,
        message: Message,
        queues: Iterable[Queue],
        persistent: bool,
        *,
        promised: bool = False,
    ) -> int:
        """Give a message to queues: what the broker itself publishes, and transactions.

        Return how many refused it; with ``promised`` none does for want of room.
        """
        counters = self.counters
        if message.flags & KIND_MASK >= KIND_FILE:
            queues = [queue for queue in queues if not queue.is_stream]  # They keep messages only.
        message.seq = counters.next_seq
        counters.next_seq += 1
        position = 0
        if persistent or any(keeps_all(queue.arguments) for queue in queues):
            ids = b"".join([q.id_bytes for q in queues if q.durable and not q.is_stream])
            if ids:
                position = self.store.publish_message(message, counters.now_ms, ids)
        twins = []
        for queue in queues:
            twin = message.copy()
            twin.seq = message.seq
            if position and queue.durable and not queue.is_stream:
                twin.flags |= PERSISTENT
                twin.position = position
            else:
                twin.flags &= ~PERSISTENT
            twins.append((queue, twin))
        return self.dead_letters.hand_out(twins, promised=promised)

    def join(self, message: Message, stream: Queue) -> bool:
        """Make a message what streams keep: class basic, in one piece; False when it cannot be."""
        if self.contents is None:
            return message.data is not None
        try:
            message.data = self.contents.joined(message)
        except deadletter.UnreadableError as error:
            log.warning("stream %r: a message is not kept: %s", stream.name, error)
            self.dead_letters.dead_letter(message, stream, deadletter.UNCONVERTIBLE, str(error))
            return False
        message.parts = None
        message.flags &= ~(LARGE | KIND_MASK)
        return True

    # --- Who is shown messages --------------------------------------------------------------------

    def trace(self, node: str, who: Who) -> None:
        """Copy what is published and delivered from now on; see

        :mod:`headrace.model.interceptor.tracer`.
        """
        if self.tracer is None:
            self.tracer = Tracer(self, node, who)
            self.facts.put(TRACED, b"on")
            self._observe()

    def trace_no_more(self) -> None:
        """Copy nothing any longer."""
        self.tracer = None
        self.facts.put(TRACED, None)
        self._observe()

    @property
    def was_traced(self) -> bool:
        """Whether it was traced before the restart."""
        return self.facts.get(TRACED) is not None

    def stamp(self, stamps: Stamps | None) -> None:
        """Write this into messages from now on; None is nothing."""
        self.stamps = stamps or None
        self._observe()

    def delivering(self, queue: Queue, consumer: Consumer, message: Message) -> None:
        """A message is about to be handed to a consumer."""
        if queue.guard is not None:
            queue.guard.see(consumer, message)
        if queue.access_name.startswith(SERVICES):
            return
        if self.stamps is not None and self.stamps.sent_time and self.contents is not None:
            stamped = {SENT_TIME: self.counters.now_ms}
            try:
                message.data = self.contents.stamped(message, stamped, None).data
            except deadletter.UnreadableError as error:
                log.warning("vhost %r: a message is not stamped: %s", self.name, error)
        if self.tracer is not None:
            self.tracer.delivered(queue, consumer, message)

    def _observe(self) -> None:
        """Have deliveries shown to us, or not."""
        self.traced = self.tracer is not None or (self.stamps is not None and self.stamps.sent_time)
        for queue in self.queues.values():
            queue.traced = is_traced(queue)
        self._changed()

    # --- Connections and consumers ----------------------------------------------------------------

    def connection_closed(self, owner: object) -> None:
        """An owner is gone, with what was its own."""
        for watcher in self.watchers:
            watcher(owner, self.counters.now_ms)
        self.owner_gone(owner)

    def check_consumer(self, consumer: Consumer) -> None:
        """Refuse a consumer that is on no queue yet, if it would hold more than there may be.

        Raises:
            InvalidArgument: it would take, and asks for what readers of streams may ask for.
            LimitReached: definitions and consumers hold too much memory.
        """
        queue = consumer.queue
        if consumer.arguments and not (queue.is_stream or consumer.browses):
            check_reader_arguments(
                consumer.arguments, self._queue(queue.name), queue_type(queue.arguments)
            )
        octets = consumer_octets(consumer.tag, consumer.arguments, consumer.selector)
        self.check_definition(octets, "consumer '{}'", consumer.tag)

    def count_consumer(self, consumer: Consumer) -> None:
        """Count what a consumer holds, until it is removed."""
        if consumer not in self._consumers:
            octets = consumer_octets(consumer.tag, consumer.arguments, consumer.selector)
            self._consumers[consumer] = octets
            self.definition_octets += octets

    def consumer_added(self, consumer: Consumer) -> None:
        """A queue has a new consumer."""
        self.count_consumer(consumer)
        if self.events.heard and not consumer.queue.access_name.startswith(SERVICES):
            self.events.tell("consumer.created", **consumer_facts(consumer, self.name))

    def consumer_removed(self, consumer: Consumer) -> None:
        """A queue has lost a consumer."""
        self.definition_octets -= self._consumers.pop(consumer, 0)
        if self.events.heard and not consumer.queue.access_name.startswith(SERVICES):
            self.events.tell("consumer.deleted", **consumer_name(consumer, self.name))

    # --- What goes with exchanges and queues ------------------------------------------------------

    def _exchange_comes(self, exchange: Exchange) -> None:
        if exchange.type == SuperStreamExchange.type:
            super_stream.check(self, exchange.name, exchange.durable, exchange.arguments)

    def _exchange_made(self, exchange: Exchange) -> None:
        if exchange.type == SuperStreamExchange.type:
            super_stream.make_partitions(self, exchange.name, exchange.arguments)
        self._watch(exchange)

    def _watch(self, exchange: Exchange) -> None:
        """Let an exchange look at each message, if it is one that does."""
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

    def _exchange_gone(self, exchange: Exchange) -> None:
        if exchange.observer is not None:
            exchange.observer.clear()
            if exchange.observer.kept is not None:
                self._remove_queue(exchange.observer.kept)

    def _is_leased(self, queue: Queue) -> bool:
        return self.leases.in_use(queue)

    def _end(self, queue: Queue, user: str) -> int:
        if isinstance(queue, Stream):
            self.groups.forget(queue)
            self.lost_records.forget(queue)
        count: int = queue.message_count()
        if self.orphans.take(queue, user):
            self.dead_letters.queue_gone(queue)
        else:
            self.end_queue(queue)
        if queue.durable and not queue.is_hidden:
            self.leases.queue_gone(queue)
        return count

    def end_queue(self, queue: Queue) -> None:
        """Nothing is left of a queue that was deleted."""
        queue.destroy()
        self.dead_letters.queue_gone(queue)
        self.count_alternate(queue.alternate_exchange, -1)
        if queue.durable:
            self.definitions.delete_queue(queue.id)
