# SPDX-License-Identifier: Apache-2.0
"""A virtual host: exchanges, queues and bindings by name, and nothing of any other host.

The cost of declaring, binding and deleting does not depend on how much else there is: bindings are
found from both of their ends. Whoever remembers routes forgets them when ``tally.generation`` has
moved on.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.model import deadletter, kinds, lifetime, super_stream
from headrace.model.agenda import Agenda
from headrace.model.arguments import (
    QUEUE_ARGUMENTS,
    assert_same_arguments,
    assert_same_field,
    check_queue_arguments,
    keeps_all,
    queue_type,
)
from headrace.model.attentive import AttentiveQueue
from headrace.model.binding import EXCHANGE, QUEUE, Binding, Destination
from headrace.model.branch import Branches
from headrace.model.configure import (
    configure,
    configure_exchange,
    effective,
    is_own,
    reconfigure,
    watch_age,
    watch_use,
)
from headrace.model.deduplicating_queue import DeduplicatingQueue
from headrace.model.deduplication import ARGUMENT as DEDUPLICATION
from headrace.model.definitions import (
    BindingRecord,
    Definitions,
    ExchangeRecord,
    NoDefinitions,
    QueueRecord,
)
from headrace.model.delayed import NAME as DELAYED
from headrace.model.delayed import Delayed, DelayedQueue
from headrace.model.errors import (
    AccessRefused,
    InvalidArgument,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from headrace.model.events import (
    SERVICES,
    Events,
    binding_facts,
    consumer_facts,
    consumer_name,
    exchange_facts,
    queue_facts,
)
from headrace.model.exchange import (
    EXCLUSIVE,
    DefaultExchange,
    Exchange,
    Headers,
    SuperStreamExchange,
)
from headrace.model.exchange_types import exchange_type, known_arguments, new_exchange
from headrace.model.facts import Facts
from headrace.model.gaps import Gaps
from headrace.model.groups import Groups
from headrace.model.lanes import lane_of
from headrace.model.lease import Lease
from headrace.model.leases import Leases
from headrace.model.letters import Letters
from headrace.model.message import KIND_FILE, KIND_MASK, LARGE, PERSISTENT, Message
from headrace.model.passage import Passage
from headrace.model.ports import Files
from headrace.model.publishers import Publishers
from headrace.model.queue import Queue
from headrace.model.rules import DEFAULT, NO_RULES, REFUSE, Rules
from headrace.model.staged import Sinks
from headrace.model.stamps import SENT_TIME, Stamps
from headrace.model.stream import Stream
from headrace.model.trace import FACT as TRACED
from headrace.model.trace import TRACE, Tracer, Who
from headrace.model.understood import DEAD_LETTERS, dead_letter_queue, judge_exchange, understand
from headrace.model.watch import KEPT, Watch, is_watched, kept_arguments

if TYPE_CHECKING:
    from headrace.model.ports import Store
    from headrace.model.served import Consumer
    from headrace.model.tally import Tally

log = logging.getLogger(__name__)

RESERVED_PREFIX = "amq."
PREDECLARED = (
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
    (TRACE, "topic"),
)
NAME_OCTETS_MAX = 255
ALTERNATES_MAX = 1 << 30  # Each exchange is tried once, so this is no limit.
LINGER = "qpid.auto_delete_timeout"  # Seconds for which an auto-delete queue stays unused.
NO_ARGUMENTS: dict[str, Any] = {}  # Shared by all queues without arguments; never changed.

StreamMaker = Callable[..., Queue]


class Routed(NamedTuple):
    """Where a message goes."""

    queues: tuple[Queue, ...]
    cacheable: bool  # Exchange and routing key alone decided.
    passage: Passage | None = None  # Through which it is taken, if not as any other.


class VirtualHost:
    """One virtual host."""

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        tally: Tally,
        definitions: Definitions | None = None,
        agenda: Agenda | None = None,
        contents: deadletter.Contents | None = None,
        make_stream: StreamMaker | None = None,
        files: Files | None = None,
        events: Events | None = None,
    ) -> None:
        """``contents`` is what reads dead letters; without it they are dropped.

        ``make_stream`` takes the arguments of :class:`Queue`; without it there are no streams.
        ``files`` keeps the bodies of file messages. ``events`` is told what changes.
        """
        self.name = name
        self.store = store
        self.tally = tally
        self.definitions: Definitions = definitions if definitions is not None else NoDefinitions()
        self.agenda = agenda if agenda is not None else Agenda()
        self.contents = contents
        self.make_stream = make_stream
        self.files = files if files is not None else Files()
        self.events = events if events is not None else Events(tally)
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, Exchange] = {"": DefaultExchange(self.queues)}
        for exchange, kind in PREDECLARED:
            internal = exchange == TRACE
            self.exchanges[exchange] = new_exchange(kind, exchange, durable=True, internal=internal)
        self._bound: dict[Destination, dict[Binding, None]] = {}  # By destination.
        self._owned: dict[object, dict[Queue, None]] = {}  # Exclusive queues by connection.
        self._kept: set[Queue] = set()  # Exclusive ones that outlive their owners.
        self._alternates: dict[str, int] = {}  # How many queues and exchanges name each.
        self._durable_exclusive: set[Queue] = set()  # Declared durable, which changes nothing.
        self._letters: deque[tuple[Queue, Message]] = deque()
        self._delivering = False
        self._deadline_hook = self._on_deadline
        self.rules: Rules = NO_RULES
        self.declared_by: dict[Queue, str] = {}  # Users.
        self.queues_of: dict[str, int] = {}  # How many queues each user declared.
        self.lives = lifetime.Lives(self)
        self.branches = Branches(self)
        self.sinks = Sinks(self)
        self.facts = Facts(store)
        self.leases = Leases(self)
        self.delayed = Delayed(self)
        self.letters = Letters(self)
        self.groups = Groups(self.facts)
        self.gaps = Gaps(self.facts)
        #: Called with each connection or session that is gone, and the time.
        self.watchers: list[Callable[[object, int], None]] = [self.groups.holder_gone]
        self.publishers = Publishers(self.facts, tally)
        self.stamps: Stamps | None = None  # What the broker writes into messages,
        self.tracer: Tracer | None = None  # and who copies them. Both want to see each.
        #: Called with a queue when it is said anew how long its consumers may hold deliveries.
        self.retime: Callable[[Queue], None] | None = None

    def __repr__(self) -> str:
        return f"<VirtualHost {self.name!r} queues={len(self.queues)}>"

    @property
    def generation(self) -> int:
        """Moves on whenever a route may have changed."""
        return self.tally.generation

    def load(self) -> None:
        """Take up what was kept of this virtual host; before anything else happens to it."""
        saved = self.definitions.load(self.name)
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
                q.name,
                id=q.id,
                durable=True,
                auto_delete=q.auto_delete,
                arguments=dict(q.arguments) or NO_ARGUMENTS,
                exclusive_owner=lifetime.kept_owner(q.arguments),
            )
            self._add_queue(queue, q.user)
            self.lives.restore(queue)
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
                self._tie(Binding(source, destination, b.routing_key, b.arguments))
            except InvalidArgument as error:
                log.error("vhost %r: binding %r is left out: %s", self.name, b, error)
        self._changed()

    # --- Exchanges ----------------------------------------------------------------------------

    def find_exchange(self, name: str) -> Exchange:
        """Return the exchange of that name.

        Raises:
            NotFound: there is none.
        """
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no {self._exchange(name)}")
        return exchange

    def check_publishable(self, name: str) -> None:
        """Refuse a client's publish to a missing or an internal exchange."""
        exchange = self.find_exchange(name)
        if exchange.internal:
            raise AccessRefused(f"cannot publish to internal {self._exchange(name)}")

    def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
        sticky: bool = False,
    ) -> Exchange:
        """Return the exchange, made unless it is there.

        With ``sticky`` one that is there stays as it is: whatever else is asked for is ignored, but
        another type (0-9/exchange.declare).
        """
        self._not_default(name)
        existing = self.exchanges.get(name)
        if passive:
            return self.find_exchange(name)
        arguments = arguments or {}
        what = self._exchange(name)
        if existing is None or not sticky:
            self.judge_exchange(name, kind, arguments)
        if existing is None:
            self._check_name("exchange", name)
            exchange_type(kind).check_arguments(arguments, what)
            exchange = new_exchange(
                kind,
                name,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            )
            if kind == SuperStreamExchange.type:
                super_stream.check(self, name, durable, arguments)
            self._add_exchange(exchange)
            if durable:
                self.definitions.save_exchange(
                    self.name, ExchangeRecord(name, kind, auto_delete, internal, arguments)
                )
            if kind == SuperStreamExchange.type:
                super_stream.make_partitions(self, name, arguments)
            self._watch(exchange)
            self._changed()
            if self.events.heard:
                self.events.tell("exchange.created", **exchange_facts(exchange, self.name))
            return exchange
        exchange_type(kind)  # Refuses unknown types.
        if sticky:
            if existing.type != kind:
                raise NotAllowed(f"{what} is of type '{existing.type}', not '{kind}'")
            return existing
        assert_same_field(existing.type, kind, "type", what)
        assert_same_field(existing.durable, durable, "durable", what)
        assert_same_field(existing.auto_delete, auto_delete, "auto_delete", what)
        assert_same_field(existing.internal, internal, "internal", what)
        assert_same_arguments(existing.arguments, arguments, existing.arguments_known, what)
        return existing

    def judge_exchange(
        self, name: str, kind: str, arguments: Mapping[str, Any], *, strict: bool = False
    ) -> None:
        """Refuse, log or ignore arguments that an exchange of a type does not know.

        Raises:
            NotUnderstood: one is refused.
            CommandInvalid: there is no such type.
        """
        if arguments:
            mode = self._mode(strict)
            judge_exchange(arguments, known_arguments(kind, arguments), self._exchange(name), mode)

    def _mode(self, strict: bool) -> str:
        """What becomes of unknown names; ``strict`` counts where there is no rule for them."""
        mode = self.rules.unknown_arguments
        return REFUSE if strict and mode == DEFAULT else mode

    def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        """Delete an exchange; it is no error when there is none."""
        self._not_default(name)
        if name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"deletion of system {self._exchange(name)} not allowed")
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise PreconditionFailed(f"{self._exchange(name)} in use")
        self._remove_exchange(exchange)

    def serves_as_alternate(self, name: str) -> bool:
        """Tell whether a queue or an exchange has this exchange as its alternate."""
        return name in self._alternates

    # --- Queues -------------------------------------------------------------------------------

    def find_queue(self, name: str, owner: object = None) -> Queue:
        """Return the queue of that name, if the connection ``owner`` may use it.

        Raises:
            NotFound: there is none.
            ResourceLocked: it is exclusive to another connection.
        """
        queue = self.queues.get(name)
        if queue is None or isinstance(queue, DelayedQueue):
            raise NotFound(f"no {self._queue(name)}")
        if queue.is_hidden and not queue.is_stream:
            raise AccessRefused(f"{self._queue(name)} is the broker's own")
        holder = queue.exclusive_owner
        if holder is not None and holder is not owner and not lifetime.admits(holder, owner):
            raise self._locked(name)
        return queue

    def declare_queue(
        self,
        name: str = "",
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        owner: object = None,
        fresh_name: str = "",
        kept: bool = False,
        sticky: bool = False,
        user: str = "",
        session: object = None,
    ) -> Queue:
        """Return the queue, made unless it is there. An empty name gets a new one.

        ``owner`` is the connection that asks, or the session where sessions own queues; ``session``
        is the channel of a connection.

        ``kept`` makes an exclusive queue outlive its owner, unless it is an auto-delete queue: the
        next who asks for it may own it. With ``sticky`` a queue that is there stays as it is,
        whatever is asked for (0-9/queue.declare). ``user`` is who asks.
        """
        if passive:
            return self.find_queue(name, owner)
        existing = self.queues.get(name) if name else None
        if not arguments:
            arguments = NO_ARGUMENTS
        elif existing is None or not sticky:
            arguments = self.understand(arguments, name)
        if existing is not None:
            if sticky:
                self.find_queue(name, owner)
                if exclusive and existing.exclusive_owner is None:
                    raise self._locked(name)
            else:
                self._check_same(existing, durable, exclusive, auto_delete, arguments, owner)
            existing.used_ms = self.tally.now_ms
            return existing
        if name:
            self._check_name("queue", name)
        else:
            name = fresh_name or self._fresh_name()
        default_type = self.rules.default_queue_type
        plain = durable and not exclusive and not auto_delete
        if default_type != "classic" and plain and "x-queue-type" not in arguments:
            arguments = {**arguments, "x-queue-type": default_type}
        check_queue_arguments(arguments, self._queue(name))
        kinds.check(arguments, self._queue(name))
        if queue_type(arguments) != "classic":
            self._check_lasting(name, durable, exclusive, auto_delete)
            self._check_stream(name, arguments)
        self._check_room(name)
        plan = lifetime.Plan(arguments, exclusive, auto_delete, self._queue(name))
        holder, arguments = plan.owner(owner, session, arguments)
        auto_delete = plan.auto_delete
        queue_id = 0
        lasting = durable and (kept or not exclusive) and not plan.life.scope
        if lasting:
            record = QueueRecord(0, name, auto_delete, arguments, user)
            queue_id = self.definitions.save_queue(self.name, record)
        queue = self._make_queue(
            name,
            id=queue_id,
            durable=lasting,
            auto_delete=auto_delete,
            exclusive_owner=holder,
            arguments=arguments,
        )
        self._add_queue(queue, user)
        self.lives.begin(queue, plan, owner, session)
        if plan.life.scope and durable:
            self._durable_exclusive.add(queue)
        if plan.limited:
            self._owned.setdefault(lifetime.key_of(holder), {})[queue] = None
            self._kept.add(queue)
        elif exclusive:
            self._owned.setdefault(owner, {})[queue] = None
            if kept:
                self._kept.add(queue)
            elif durable:
                self._durable_exclusive.add(queue)
        if arguments.get(DEAD_LETTERS) == 1 and dead_letter_queue(name) not in self.queues:
            self.declare_queue(dead_letter_queue(name), durable=durable, user=user)
        self._changed()
        if self.events.heard:
            self.events.tell("queue.created", **queue_facts(queue, self.name))
        return queue

    def lock_queue(self, queue: Queue, owner: object) -> None:
        """Make a queue that nobody else uses the owner's own, until the owner goes.

        Raises:
            ResourceLocked: another owns it or consumes from it.
        """
        holder = queue.exclusive_owner
        if holder is owner or (holder is not None and lifetime.admits(holder, owner)):
            return
        if queue.exclusive_owner is not None or queue.consumer_count():
            raise self._locked(queue.name)
        queue.exclusive_owner = owner
        self._owned.setdefault(owner, {})[queue] = None
        self._kept.add(queue)

    def delete_queue(
        self,
        name: str,
        if_unused: bool = False,
        if_empty: bool = False,
        owner: object = None,
    ) -> int:
        """Delete a queue, if there is one; return how many ready messages went with it."""
        if name not in self.queues:
            return 0
        queue = self.find_queue(name, owner)
        if queue.is_hidden:
            raise AccessRefused(f"{self._queue(name)} is the broker's own")
        if if_unused and queue.consumer_count():
            raise PreconditionFailed(f"{self._queue(name)} in use")
        if if_empty and (queue.ready_count or queue.lanes_ready()):
            raise PreconditionFailed(f"{self._queue(name)} not empty")
        return self._remove_queue(queue)

    def effective(self, queue: Queue) -> dict[str, Any]:
        """Return what holds for a queue: its own arguments, completed and restricted by others'."""
        return effective(self.rules, queue)

    def policies_of(self, queue: Queue) -> tuple[str, str]:
        """Return the names of the policy and the operator policy of a queue; empty for none."""
        found = self.rules.policies.of(queue_type(queue.arguments), queue.name)
        return found[0].name if found[0] else "", found[1].name if found[1] else ""

    def take_rules(self, rules: Rules) -> None:
        """Let other rules count from now on, for what is there too."""
        before, self.rules = self.rules, rules
        if before.policies.same(rules.policies):
            return
        reconfigure(self, before, rules)
        self._changed()

    def understand(self, arguments: Mapping[str, Any], name: str, *, strict: bool = False) -> Any:
        """Return the arguments of a queue in our terms.

        With ``strict`` every name that has no meaning here is refused, unless the virtual host has
        a rule of its own for them.

        Raises:
            InvalidArgument: one is refused.
        """
        return understand(arguments, self._queue(name), self._mode(strict), name)

    def configure(self, queue: Queue) -> None:
        """Set a queue's attributes from its effective arguments; it may be in use."""
        configure(self, queue)

    def make_hidden(self, name: str, arguments: Mapping[str, Any]) -> Queue:
        """Make a durable stream of the broker's own, to which nobody publishes.

        Raises:
            InvalidArgument: streams are not served.
        """
        if self.make_stream is None:
            raise InvalidArgument(f"{self._queue(name)} cannot be: streams are not served")
        queue_id = self.definitions.save_queue(self.name, QueueRecord(0, name, False, arguments))
        queue = self._make_queue(name, id=queue_id, durable=True, arguments=dict(arguments))
        self._add_queue(queue)
        self._changed()
        return queue

    def make_delayed(self, name: str) -> Queue:
        """Make the durable queue of the broker's own in which delayed messages wait."""
        queue_id = self.definitions.save_queue(self.name, QueueRecord(0, name, False, NO_ARGUMENTS))
        queue = self._make_queue(name, id=queue_id, durable=True, arguments=NO_ARGUMENTS)
        self._add_queue(queue)
        return queue

    def remove_hidden(self, queue: Queue) -> None:
        """Delete what :meth:`make_hidden` made."""
        self._remove_queue(queue)

    def destruct(self, queue: Queue) -> None:
        """A queue goes because its own policy has it so."""
        if self.queues.get(queue.name) is queue:
            self._remove_queue(queue)

    def queue_unused(self, queue: Queue) -> None:
        """The last consumer of an auto-delete queue has gone."""
        if LINGER in queue.arguments and queue.expires_ms >= 0:
            return  # It goes once it was unused for that long.
        if self.queues.get(queue.name) is queue and not self.lives.stays(queue):
            self._remove_queue(queue)

    def connection_closed(self, owner: object) -> None:
        """An owner is gone: its exclusive queues go, or are nobody's."""
        for watcher in self.watchers:
            watcher(owner, self.tally.now_ms)
        for queue in self._owned.pop(owner, ()):
            if queue in self._kept and not queue.auto_delete:
                self._kept.discard(queue)
                queue.exclusive_owner = None
            elif self.queues.get(queue.name) is queue:
                self._remove_queue(queue)
        self.session_ended(owner)

    def session_ended(self, owner: object) -> None:
        """A connection, a session or a channel is gone: so are the queues that live with it."""
        for queue in self.lives.end(owner):
            if self.queues.get(queue.name) is queue:
                self._remove_queue(queue)

    def consumer_added(self, consumer: Consumer) -> None:
        """A queue has a new consumer."""
        if self.events.heard and not consumer.queue.access_name.startswith(SERVICES):
            self.events.tell("consumer.created", **consumer_facts(consumer, self.name))

    def consumer_removed(self, consumer: Consumer) -> None:
        """A queue has lost a consumer."""
        if self.events.heard and not consumer.queue.access_name.startswith(SERVICES):
            self.events.tell("consumer.deleted", **consumer_name(consumer, self.name))

    # --- Bindings -----------------------------------------------------------------------------

    def bind(
        self,
        source: str,
        destination: tuple[str, str],
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        owner: object = None,
    ) -> None:
        """Bind a destination, given as (kind, name), to an exchange; again is no error.

        Every queue is bound to the default exchange by its name, and may be so again.
        """
        if not source and destination == (QUEUE, routing_key):
            self.find_queue(routing_key, owner)
            return
        binding = self._binding(source, destination, routing_key, arguments, owner)
        binding.source.check(routing_key, binding.arguments or NO_ARGUMENTS)
        binding.source.check_destination(binding.destination)
        if self._tie(binding):
            if self._lasting(binding):
                self.definitions.save_binding(self.name, self._record(binding))
            if binding.arguments and binding.arguments.get(EXCLUSIVE):
                self._untie_others(binding)
            self._changed()
            if self.events.heard:
                self.events.tell("binding.created", **binding_facts(binding, self.name))
            if binding.source.watch is not None:
                binding.source.watch.bound(binding)

    def unbind(
        self,
        source: str,
        destination: tuple[str, str],
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        owner: object = None,
    ) -> bool:
        """Undo a binding; it is no error when there is none: tell whether there was one."""
        binding = self._binding(source, destination, routing_key, arguments, owner)
        if binding not in binding.source.bindings:
            return False
        self._untie(binding)
        self._leave_unused((binding.source,))
        self._changed()
        return True

    def bindings_to(self, destination: Destination) -> Iterable[Binding]:
        """The bindings that lead to a queue or an exchange."""
        return tuple(self._bound.get(destination, ()))

    # --- Routing ------------------------------------------------------------------------------

    def route(
        self, exchange: str, routing_key: str, headers: Headers, alternates: int = ALTERNATES_MAX
    ) -> Routed:
        """Return the queues that a message reaches; ``headers`` is called when they matter.

        ``alternates`` is how many alternate exchanges in a row may be tried.

        Raises:
            NotFound: there is no such exchange.
        """
        found: dict[Queue, None] = {}
        first = self.find_exchange(exchange)
        watches: dict[Watch, None] = {}
        cacheable = self.follow(first, routing_key, headers, found, alternates, watches)
        if not watches and self.stamps is None and self.tracer is None:
            return Routed(tuple(found), cacheable)
        return Routed(tuple(found), False, Passage(self, tuple(watches), headers))

    def follow(
        self,
        first: Exchange,
        routing_key: str,
        headers: Headers,
        found: dict[Queue, None],
        alternates: int = ALTERNATES_MAX,
        watches: dict[Watch, None] | None = None,
    ) -> bool:
        """Collect queues over exchange-to-exchange bindings; each exchange is passed once.

        ``watches`` collects those of the exchanges that look at each message.
        """
        cacheable = True
        seen: dict[Exchange, int] = {first: alternates}  # What is left of them from there on.
        pending = [first]
        while pending:
            exchange = pending.pop()
            cacheable = cacheable and exchange.cacheable
            if exchange.watch is not None and watches is not None:
                watches[exchange.watch] = None
                if exchange.watch.is_duplicate(headers()):
                    continue
            matched: dict[Destination, None] = {}
            exchange.match(routing_key, headers, matched)
            if exchange.chosen is not None and exchange.match_chosen(routing_key, headers, matched):
                cacheable = False
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
        return cacheable

    # --- What the broker publishes --------------------------------------------------------------

    def send(
        self,
        message: Message,
        queues: Mapping[Queue, None],
        watches: Mapping[Watch, None],
        headers: Mapping[str, Any],
        persistent: bool,
    ) -> None:
        """Deliver what the broker itself publishes, past the exchanges that look at it.

        It may be in the middle of a transaction of the store.
        """
        passage = Passage(self, tuple(watches), lambda: headers)
        if passage.is_duplicate():
            return
        everybody = [*queues, *passage.keepers()]
        if watches:
            message = passage.watched(message)
        if everybody:
            self.deliver(message, everybody, persistent)
            for watch in watches:
                watch.note(headers, persistent)

    def hand_kept(
        self,
        message: Message,
        binding: Binding,
        routing_key: str,
        headers: Mapping[str, Any],
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

    def deliver(self, message: Message, queues: Iterable[Queue], persistent: bool) -> None:
        """Give a message to queues: what the broker itself publishes."""
        tally = self.tally
        if message.flags & KIND_MASK >= KIND_FILE:
            queues = [queue for queue in queues if not queue.is_stream]  # They keep messages only.
        message.seq = tally.next_seq
        tally.next_seq += 1
        position = 0
        if persistent or any(keeps_all(queue.arguments) for queue in queues):
            ids = b"".join([q.id_bytes for q in queues if q.durable and not q.is_stream])
            if ids:
                position = self.store.publish_message(message, tally.now_ms, ids)
        for queue in queues:
            twin = message.copy()
            twin.seq = message.seq
            if position and queue.durable and not queue.is_stream:
                twin.flags |= PERSISTENT
                twin.position = position
            else:
                twin.flags &= ~PERSISTENT
            self._letters.append((queue, twin))
        if self._delivering:
            return  # A letter that died on arrival: the loop below, further out, sees to it.
        self._delivering = True
        try:
            while self._letters:
                queue, twin = self._letters.popleft()
                if not queue.deleted:
                    lane_of(queue, twin.flags & KIND_MASK).offer(twin)
        finally:
            self._delivering = False

    def join(self, message: Message, stream: Queue) -> bool:
        """Make a message what streams keep: class basic, in one piece; False when it cannot be."""
        if self.contents is None:
            return message.data is not None
        try:
            message.data = self.contents.joined(message)
        except deadletter.UnreadableError as error:
            log.warning("stream %r: a message is not kept: %s", stream.name, error)
            self.letters.dead_letter(message, stream, deadletter.UNCONVERTIBLE, str(error))
            return False
        message.parts = None
        message.flags &= ~(LARGE | KIND_MASK)
        return True

    # --- Time ---------------------------------------------------------------------------------

    def _on_deadline(self, queue: Queue, deadline_ms: int) -> None:
        """The earliest deadline of a queue's messages became earlier."""
        self.agenda.put(queue, deadline_ms, queue.expire)

    def expire_queue(self, queue: Queue, now_ms: int) -> int:
        """Delete a queue that was not used for its x-expires; return when to look again."""
        if queue.deleted:
            return 0
        if queue.consumer_count() or self.leases.in_use(queue):
            return now_ms + queue.expires_ms
        due = queue.used_ms + queue.expires_ms
        if due > now_ms:
            return due
        self._remove_queue(queue)
        return 0

    # --- Inside -------------------------------------------------------------------------------

    def _queue(self, name: str) -> str:
        return f"queue '{name}' in vhost '{self.name}'"

    def _exchange(self, name: str) -> str:
        return f"exchange '{name}' in vhost '{self.name}'"

    def _locked(self, name: str) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked {self._queue(name)}. It could be "
            "originally declared on another connection or the exclusive property value does not "
            "match that of the original declaration."
        )

    def _not_default(self, name: str) -> None:
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")

    def _check_name(self, kind: str, name: str) -> None:
        """Refuse names that a client may not give."""
        if name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
        if not name.isprintable() or len(name.encode()) > NAME_OCTETS_MAX:
            raise PreconditionFailed(f"{kind} name {name!r} is not allowed")

    def _fresh_name(self) -> str:
        while True:
            name = f"amq.gen-{secrets.token_urlsafe(16)}"
            if name not in self.queues:
                return name

    def _check_same(
        self,
        queue: Queue,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Mapping[str, Any],
        owner: object,
    ) -> None:
        """Refuse to declare a queue that is there with other properties."""
        what = self._queue(queue.name)
        plan = lifetime.Plan(arguments, exclusive, auto_delete, what)
        if not plan.is_same_owner(queue.exclusive_owner, owner):
            raise self._locked(queue.name)
        auto_delete = plan.auto_delete
        was_durable = queue.durable or queue in self._durable_exclusive
        assert_same_field(was_durable, durable, "durable", what)
        assert_same_field(queue.auto_delete, auto_delete, "auto_delete", what)
        check_queue_arguments(arguments, what)
        assert_same_arguments(
            queue.arguments, arguments, QUEUE_ARGUMENTS, what, self.rules.default_queue_type
        )

    def _check_lasting(self, name: str, durable: bool, exclusive: bool, auto_delete: bool) -> None:
        """Refuse what a queue of type quorum or stream cannot be."""
        for wrong, flaw in (
            (not durable, "non-durable"),
            (exclusive, "exclusive-owner"),
            (auto_delete, "auto-delete"),
        ):
            if wrong:
                raise PreconditionFailed(f"invalid property '{flaw}' for {self._queue(name)}")

    def _check_stream(self, name: str, arguments: Mapping[str, Any]) -> None:
        if queue_type(arguments) == "stream" and self.make_stream is None:
            raise InvalidArgument(
                f"invalid arg 'x-queue-type' for {self._queue(name)}: streams are not served"
            )

    def _check_room(self, name: str) -> None:
        """Refuse one more queue than the virtual host may have."""
        most = self.rules.limits.queues
        # Counting takes its time, and is for those that may be too many only.
        if 0 <= most <= len(self.queues) and most <= self.queue_count() and not is_own(name):
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({most}) is "
                "reached"
            )

    def queue_count(self) -> int:
        """How many queues there are that clients declared."""
        return sum(not (queue.is_hidden or is_own(name)) for name, queue in self.queues.items())

    def _make_queue(self, name: str, **properties: Any) -> Queue:
        arguments = properties["arguments"]
        make: StreamMaker = kinds.kind_of(arguments) if arguments else Queue
        if queue_type(arguments) == "stream" and self.make_stream is not None:
            make = self.make_stream
        elif name == DELAYED:
            make = DelayedQueue
        elif arguments.get(DEDUPLICATION):
            make = DeduplicatingQueue
        queue = make(name, store=self.store, tally=self.tally, vhost=self, **properties)
        if isinstance(queue, AttentiveQueue):
            queue.shape(arguments)
        self.configure(queue)
        queue.on_deadline = self._deadline_hook
        queue.observed = self._observed()
        return queue

    def _add_exchange(self, exchange: Exchange) -> None:
        configure_exchange(self, exchange)
        self.exchanges[exchange.name] = exchange
        self.count_alternate(exchange.alternate, 1)

    def _watch(self, exchange: Exchange) -> None:
        """Let an exchange look at each message, if it is one that does."""
        if not is_watched(exchange):
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
                    queue_id = self.definitions.save_queue(self.name, record)
                kept = self._make_queue(
                    name, id=queue_id, durable=exchange.durable, arguments=arguments
                )
                kept.is_hidden = True
                self._add_queue(kept)
        exchange.watch = Watch(self, exchange, kept)

    def restored(self) -> None:
        """The facts are there again: exchanges go on where they were, and so does tracing."""
        for exchange in list(self.exchanges.values()):
            self._watch(exchange)

    def trace(self, node: str, who: Who) -> None:
        """Copy what is published and delivered from now on; see :mod:`headrace.model.trace`."""
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

    def _observe(self) -> None:
        """Have deliveries shown to us, or not."""
        observed = self._observed()
        for queue in self.queues.values():
            queue.observed = observed
        self._changed()

    def _observed(self) -> bool:
        return self.tracer is not None or (self.stamps is not None and self.stamps.sent_time)

    def delivering(self, queue: Queue, consumer: Consumer, message: Message) -> None:
        """A message is about to be handed to a consumer."""
        if queue.access_name.startswith(SERVICES):
            return
        if self.stamps is not None and self.stamps.sent_time and self.contents is not None:
            stamped = {SENT_TIME: self.tally.now_ms}
            try:
                message.data = self.contents.stamped(message, stamped, None).data
            except deadletter.UnreadableError as error:
                log.warning("vhost %r: a message is not stamped: %s", self.name, error)
        if self.tracer is not None:
            self.tracer.delivered(queue, consumer, message)

    def count_alternate(self, name: str | None, more: int) -> None:
        """One more, or one less, queue or exchange has this exchange as its alternate."""
        if name is not None:
            users = self._alternates.pop(name, 0) + more
            if users:
                self._alternates[name] = users

    def _add_queue(self, queue: Queue, user: str = "") -> None:
        if user:
            self.declared_by[queue] = user
            self.queues_of[user] = self.queues_of.get(user, 0) + 1
        self.queues[queue.name] = queue
        self.count_alternate(queue.alternate_exchange, 1)
        queue.used_ms = self.tally.now_ms
        watch_use(self, queue)
        watch_age(self, queue)

    def _binding(
        self,
        source: str,
        destination: tuple[str, str],
        routing_key: str,
        arguments: Mapping[str, Any] | None,
        owner: object,
    ) -> Binding:
        """Return the binding that is meant; it need not exist, but its ends must."""
        self._not_default(source)
        kind, name = destination
        if kind != QUEUE:
            self._not_default(name)
        start = self.find_exchange(source)
        end: Destination
        if kind == QUEUE:
            end = self.find_queue(name, owner)
            if end.is_hidden:
                raise AccessRefused(f"{self._queue(name)} is the broker's own")
        else:
            end = self.find_exchange(name)
        return Binding(start, end, routing_key, arguments)

    def _lasting(self, binding: Binding) -> bool:
        return binding.source.durable and binding.destination.durable

    def _record(self, binding: Binding) -> BindingRecord:
        kind = EXCHANGE if isinstance(binding.destination, Exchange) else QUEUE
        return BindingRecord(
            binding.source.name,
            kind,
            binding.destination.name,
            binding.routing_key,
            binding.arguments or NO_ARGUMENTS,
        )

    def _tie(self, binding: Binding) -> bool:
        if not binding.source.bind(binding):
            return False
        self._bound.setdefault(binding.destination, {})[binding] = None
        return True

    def _untie(self, binding: Binding) -> None:
        binding.source.unbind(binding)
        bound = self._bound.get(binding.destination)
        if bound is not None:
            bound.pop(binding, None)
            if not bound:
                del self._bound[binding.destination]
        if self._lasting(binding):
            self.definitions.delete_binding(self.name, self._record(binding))
        if self.events.heard:
            self.events.tell("binding.deleted", **binding_facts(binding, self.name))

    def _untie_others(self, binding: Binding) -> None:
        """Undo the other bindings of an exchange that have the key of this one."""
        for other in list(binding.source.bindings):
            if other != binding and other.routing_key == binding.routing_key:
                self._untie(other)

    def _untie_destination(self, destination: Destination) -> dict[Exchange, None]:
        """Undo all bindings to what goes; return the exchanges they came from."""
        sources: dict[Exchange, None] = {}
        for binding in list(self._bound.get(destination, ())):
            self._untie(binding)
            sources[binding.source] = None
        return sources

    def _leave_unused(self, exchanges: Iterable[Exchange]) -> None:
        """Delete auto-delete exchanges that just lost their last binding."""
        pending = list(exchanges)
        while pending:
            exchange = pending.pop()
            if exchange.auto_delete and not exchange.bindings and not exchange.deleted:
                pending.extend(self._drop_exchange(exchange))

    def _remove_exchange(self, exchange: Exchange) -> None:
        self._leave_unused(self._drop_exchange(exchange))
        self._changed()

    def _drop_exchange(self, exchange: Exchange) -> dict[Exchange, None]:
        """Take an exchange out; return those that were bound to it."""
        exchange.deleted = True
        del self.exchanges[exchange.name]
        self.count_alternate(exchange.alternate, -1)
        for binding in list(exchange.bindings):
            self._untie(binding)
        sources = self._untie_destination(exchange)
        if exchange.watch is not None:
            exchange.watch.clear()
            if exchange.watch.kept is not None:
                self._remove_queue(exchange.watch.kept)
        if exchange.durable:
            self.definitions.delete_exchange(self.name, exchange.name)
        if self.events.heard:
            self.events.tell("exchange.deleted", name=exchange.name, vhost=self.name)
        return sources

    def _remove_queue(self, queue: Queue) -> int:
        user = self.declared_by.pop(queue, "")
        if user:
            left = self.queues_of.pop(user) - 1
            if left:
                self.queues_of[user] = left
        del self.queues[queue.name]
        self.count_alternate(queue.alternate_exchange, -1)
        holder = lifetime.key_of(queue.exclusive_owner)
        owned = self._owned.get(holder)
        if owned is not None:
            owned.pop(queue, None)
            if not owned:
                del self._owned[holder]
        self.lives.forget(queue)
        self._durable_exclusive.discard(queue)
        self._kept.discard(queue)
        sources = self._untie_destination(queue)
        if queue.durable:
            self.definitions.delete_queue(self.name, queue.id)
        self.agenda.remove(queue)
        self.agenda.remove((queue,))
        self.agenda.remove(("age", queue))
        for lane in (queue.lanes or {}).values():
            self.agenda.remove(lane)
        self._changed()
        self._leave_unused(sources)
        if isinstance(queue, Stream):
            self.groups.forget(queue)
            self.gaps.forget(queue)
        count = queue.destroy()
        self.letters.queue_gone(queue)
        if queue.durable and not queue.is_hidden:
            self.leases.queue_gone(queue)
        if self.events.heard and not queue.is_hidden:
            self.events.tell("queue.deleted", name=queue.name, vhost=self.name)
        return count

    def _changed(self) -> None:
        self.tally.generation += 1
