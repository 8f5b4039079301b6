# SPDX-License-Identifier: Apache-2.0
"""Exchanges and bindings of a virtual host.

Bindings are indexed by source and by destination, so that the cost of adding and removing one does
not depend on their number. Cached routes are invalid when ``counters.generation`` has changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from headrace.model.arguments.consumer import read_boolean
from headrace.model.arguments.memory_estimate import LIMIT
from headrace.model.arguments.values import assert_same_arguments, assert_same_field
from headrace.model.errors import (
    AccessRefused,
    LimitReached,
    NotAllowed,
    NotFound,
    PreconditionFailed,
)
from headrace.model.events import Events, binding_facts, exchange_facts
from headrace.model.exchange.binding import EXCHANGE, QUEUE, Binding, BindingDestination
from headrace.model.exchange.direct import DefaultExchange
from headrace.model.exchange.exchange import BINDING_ARGUMENTS, EXCLUSIVE_BINDING, Exchange
from headrace.model.exchange.registry import exchange_type, known_arguments, new_exchange
from headrace.model.exchange.super_stream import PARTITION_ORDER
from headrace.model.interceptor.tracer import TRACE
from headrace.model.policy.rules import DEFAULT, NO_RULES, REFUSE, Rules
from headrace.model.policy.unknown_arguments import (
    check_binding_arguments,
    check_exchange_arguments,
)
from headrace.model.tallies import ChannelTally, QueueTally
from headrace.model.vhost import super_stream
from headrace.model.vhost.apply_policies import configure_exchange
from headrace.model.vhost.chunked_list import ChunkedList
from headrace.model.vhost.definitions import BindingRecord, Definitions, ExchangeRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from headrace.model.counters import Counters
    from headrace.model.queue.queue import Queue

RESERVED_PREFIX = "amq."
# Keeps 0-10/s139, 0-10/s140.
PREDECLARED = (
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
    (TRACE, "topic"),
)
NAME_BYTES_MAX = 255
UNINDEXED_AT_ONCE = 512  # Bindings removed from an exchange's index at once.
NO_ARGUMENTS: dict[str, object] = {}  # Shared by all queues without arguments; read only.


class Topology(ABC):
    """The exchanges and bindings of a virtual host; the first of its three classes."""

    # Keeps 0-9-1/exchange#03, 0-9-1/exchange#04, 0-9/exchange#required-instances,
    # 0-9/exchange#default-exchange, 0-10/s139, 0-10/s140, 0-10/s141.
    def __init__(
        self, name: str, counters: Counters, definitions: Definitions, events: Events
    ) -> None:
        self.name = name
        self.counters = counters
        self.definitions = definitions
        self.events = events
        self.rules: Rules = NO_RULES
        self.queues: dict[str, Queue] = {}
        #: Queues in the order of declaration; the list may change while it is iterated.
        self.queues_in_order: ChunkedList[Queue] = ChunkedList()
        self.queues_ended = QueueTally()
        self.channels_ended = ChannelTally()
        self.exchanges: dict[str, Exchange] = {"": DefaultExchange(self.queues)}
        for exchange, kind in PREDECLARED:
            internal = exchange == TRACE
            self.exchanges[exchange] = new_exchange(kind, exchange, durable=True, internal=internal)
        # Bindings by destination.
        self._by_destination: dict[BindingDestination, dict[Binding, None]] = {}
        self._removed_bindings: deque[Binding] = (
            deque()
        )  # Removed, but still in their exchange's index.
        self._alternates: dict[str, int] = {}  # Number of queues and exchanges that name each.
        #: Memory of all definitions in bytes (:mod:`headrace.model.arguments.memory_estimate`).
        self.definition_memory = 0

    @property
    def generation(self) -> int:
        """A counter that changes whenever a route may have changed."""
        return self.counters.generation

    # --- Implemented by the other classes ---------------------------------------------------------

    @abstractmethod
    def find_queue(self, name: str, owner: object = None) -> Queue:
        """Return the queue of that name, if the connection ``owner`` may use it.

        Raises:
            NotFound: the queue does not exist.
            ResourceLocked: the queue is exclusive to another connection.
        """

    @abstractmethod
    def _schedule_unindexing(self) -> None:
        """Schedule :meth:`_unindex_some`."""

    @abstractmethod
    def _check_new_exchange(self, exchange: Exchange) -> None:
        """Refuse an exchange whose arguments cannot be met; called before it is made."""

    @abstractmethod
    def _on_exchange_added(self, exchange: Exchange) -> None:
        """Make the streams and the observer of a new exchange."""

    @abstractmethod
    def _on_exchange_deleted(self, exchange: Exchange) -> None:
        """Remove the observer of a deleted exchange."""

    # --- Exchanges --------------------------------------------------------------------------------

    # Keeps 0-9-1/s102, 0-9-1/s103, 0-9/basic.publish.exchange#01, 0-9/file.publish.exchange#01,
    # 0-9/stream.publish.exchange#01, 0-9/message.transfer.destination#01, 0-10/s077, 0-10/s078,
    # 0-10/s220, 0-10/s247.
    def find_exchange(self, name: str) -> Exchange:
        """Return the exchange of that name; the empty name is the default exchange.

        Raises:
            NotFound: the exchange does not exist.
        """
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no {self._exchange_subject(name)}")
        return exchange

    # Keeps 0-9-1/s104, 0-9-1/s105, 0-9/basic.publish.exchange#02, 0-9/file.publish.exchange#02,
    # 0-9/stream.publish.exchange#02, 0-9/message.transfer.destination#02,
    # 0-9/basic.publish.exchange#03, 0-9/message.transfer.destination#03, 0-10/s078.
    def check_publishable(self, name: str) -> None:
        """Refuse a client's publish to a missing or internal exchange.

        All other exchanges take messages, so that no publish of a message is refused with 540.
        """
        exchange = self.find_exchange(name)
        if exchange.internal:
            raise AccessRefused(f"cannot publish to internal {self._exchange_subject(name)}")

    # Keeps 0-9-1/s040, 0-9-1/s043, 0-9-1/s044, 0-9-1/s039, 0-9-1/s045, 0-9-1/s042,
    # 0-9/exchange.declare.type#typed, 0-9/exchange.declare.durable#sticky,
    # 0-9/exchange.declare.auto-delete#sticky, 0-9/exchange.declare.durable#support,
    # 0-9/exchange.declare.passive#not-found, 0-10/s154.
    def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] | None = None,
        sticky: bool = False,
    ) -> Exchange:
        """Return the exchange of that name, making it if it does not exist.

        With ``passive`` a missing exchange is an error. With ``sticky`` an existing exchange only
        has to have the same type (0-9/exchange.declare).
        """
        self._refuse_default(name)
        existing = self.exchanges.get(name)
        if passive:
            return self.find_exchange(name)
        arguments = arguments or {}
        subject = self._exchange_subject(name)
        if existing is None or not sticky:
            self.check_exchange_arguments(name, kind, arguments)
        if existing is None:
            self._check_name("exchange", name)
            exchange_type(kind).check_arguments(arguments, subject)
            self._require(durable)
            exchange = new_exchange(
                kind,
                name,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            )
            self._check_new_exchange(exchange)
            self.check_definition(exchange.memory(), "exchange '{}'", name)
            self._add_exchange(exchange)
            if durable:
                self.definitions.save_exchange(
                    ExchangeRecord(name, kind, auto_delete, internal, arguments)
                )
            self._on_exchange_added(exchange)
            self._invalidate_routes()
            if self.events.has_listeners:
                self.events.emit("exchange.created", **exchange_facts(exchange, self.name))
            return exchange
        exchange_type(kind)  # Refuses unknown types.
        if sticky:  # 0-8, 0-9 and Qpid's clients: 530 for another type. 0-9-1: 406, see below.
            if existing.type != kind:
                raise NotAllowed(f"{subject} is of type '{existing.type}', not '{kind}'")
            return existing
        assert_same_field(existing.type, kind, "type", subject)
        assert_same_field(existing.durable, durable, "durable", subject)
        assert_same_field(existing.auto_delete, auto_delete, "auto_delete", subject)
        assert_same_field(existing.internal, internal, "internal", subject)
        assert_same_arguments(existing.arguments, arguments, existing.arguments_known, subject)
        return existing

    def check_exchange_arguments(
        self, name: str, kind: str, arguments: Mapping[str, object], *, strict: bool = False
    ) -> None:
        """Refuse, log or ignore the arguments that an exchange of a type does not have.

        Raises:
            NotUnderstood: an argument is refused.
            CommandInvalid: the type does not exist.
        """
        if arguments:
            mode = self._mode(strict)
            check_exchange_arguments(
                arguments, known_arguments(kind, arguments), self._exchange_subject(name), mode
            )

    # Keeps 0-9-1/s047, 0-10/s161.
    def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        """Delete an exchange; a missing one is not an error."""
        self._refuse_default(name)
        exchange = self.exchanges.get(name)
        if name.startswith(RESERVED_PREFIX) or (exchange is not None and exchange.fixed):
            raise AccessRefused(f"deletion of system {self._exchange_subject(name)} not allowed")
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise PreconditionFailed(f"{self._exchange_subject(name)} in use")
        self._require(exchange.durable)
        self._remove_exchange(exchange)

    def _add_exchange(self, exchange: Exchange) -> None:
        configure_exchange(self, exchange)
        self.definition_memory += exchange.memory()
        self.exchanges[exchange.name] = exchange
        self.count_alternate(exchange.alternate, 1)

    def _remove_exchange(self, exchange: Exchange) -> None:
        self._delete_unused(self._drop_exchange(exchange))
        self._invalidate_routes()

    def _drop_exchange(self, exchange: Exchange) -> dict[Exchange, None]:
        """Remove an exchange; return the exchanges that were bound to it."""
        exchange.deleted = True
        del self.exchanges[exchange.name]
        self.definition_memory -= exchange.memory()
        self.count_alternate(exchange.alternate, -1)
        self._remove_bindings(list(exchange.bindings), True)
        sources = self._unbind_destination(exchange)
        self._on_exchange_deleted(exchange)
        if exchange.durable:
            self.definitions.delete_exchange(exchange.name)
        if self.events.has_listeners:
            self.events.emit("exchange.deleted", name=exchange.name, vhost=self.name)
        return sources

    def _delete_unused(self, exchanges: Iterable[Exchange]) -> None:
        """Delete auto-delete exchanges that have just lost their last binding."""
        pending = list(exchanges)
        while pending:
            exchange = pending.pop()
            if exchange.auto_delete and not exchange.bindings and not exchange.deleted:
                pending.extend(self._drop_exchange(exchange))

    # --- Alternates -------------------------------------------------------------------------------

    def serves_as_alternate(self, name: str) -> bool:
        """Return True if a queue or an exchange names this exchange as its alternate."""
        return name in self._alternates

    def count_alternate(self, name: str | None, more: int) -> None:
        """Add ``more`` (1 or -1) to the number of users of an alternate exchange."""
        if name is not None:
            users = self._alternates.pop(name, 0) + more
            if users:
                self._alternates[name] = users

    # --- Bindings ---------------------------------------------------------------------------------

    # Keeps 0-9-1/s066, 0-9-1/s067, 0-9-1/queue.bind#01, 0-9-1/queue.bind#03, 0-9-1/s068,
    # 0-9-1/queue.bind#04, 0-9/queue.bind#duplicates, 0-9/queue.bind.queue#queue-existence,
    # 0-9/queue.bind.exchange#exchange-existence, 0-9/queue.bind#durable-exchange.
    def bind(
        self,
        source: str,
        destination: tuple[str, str],
        routing_key: str = "",
        arguments: Mapping[str, object] | None = None,
        owner: object = None,
        strict: bool = False,
    ) -> None:
        """Bind a destination, (QUEUE or EXCHANGE, name), to an exchange; the binding may exist.

        Every queue is bound to the default exchange by its name, and a client may repeat that
        binding. With ``strict`` unknown arguments are refused, unless the virtual host has a rule
        for them.

        Raises:
            NotFound: the exchange or the destination is missing.
            NotUnderstood: an argument is refused.
        """
        if not source and destination == (QUEUE, routing_key):
            self.find_queue(routing_key, owner)
            return
        binding = self._make_binding(source, destination, routing_key, arguments, owner)
        binding.source.check(routing_key, binding.arguments or NO_ARGUMENTS)
        binding.source.check_destination(binding.destination)
        if arguments and not binding.source.reads_arguments:
            self._check_binding_arguments(binding.source, arguments, strict)
        is_exclusive = arguments is not None and read_boolean(
            arguments, EXCLUSIVE_BINDING, f"a binding of {self._exchange_subject(source)}"
        )
        if binding in binding.source.bindings:
            return
        binding.source.check_room(routing_key)
        self._require(self._is_durable(binding))
        memory = binding.source.binding_memory(binding)
        self.check_definition(memory, "a binding of exchange '{}'", source)
        if self._add_binding(binding, memory):
            if self._is_durable(binding):
                self.definitions.save_binding(self._record(binding))
            if is_exclusive:
                self._remove_other_bindings(binding)
            self._invalidate_routes()
            if self.events.has_listeners:
                self.events.emit("binding.created", **binding_facts(binding, self.name))
            if binding.source.observer is not None:
                binding.source.observer.replay_to(binding)

    def unbind(
        self,
        source: str,
        destination: tuple[str, str],
        routing_key: str = "",
        arguments: Mapping[str, object] | None = None,
        owner: object = None,
    ) -> bool:
        """Remove a binding; return False if it did not exist."""
        binding = self._make_binding(source, destination, routing_key, arguments, owner)
        if binding not in binding.source.bindings:
            return False
        self._require(self._is_durable(binding))
        self._remove_binding(binding)
        self._delete_unused((binding.source,))
        self._invalidate_routes()
        return True

    def bindings_to(self, destination: BindingDestination) -> Iterable[Binding]:
        """Return the bindings that lead to a queue or an exchange."""
        return tuple(self._by_destination.get(destination, ()))

    # Keeps 0-9-1/s066, 0-9-1/s067, 0-9-1/s068, 0-9-1/s074, 0-9/queue.bind.queue#queue-existence,
    # 0-9/queue.bind.exchange#exchange-existence.
    def _make_binding(
        self,
        source: str,
        destination: tuple[str, str],
        routing_key: str,
        arguments: Mapping[str, object] | None,
        owner: object,
    ) -> Binding:
        """Return the binding that a client names; its source and destination must exist.

        The bindings of the default exchange cannot be changed.
        """
        self._refuse_default(source)
        kind, name = destination
        if kind != QUEUE:
            self._refuse_default(name)
        start = self.find_exchange(source)
        end: BindingDestination
        if kind == QUEUE:
            end = self.find_queue(name, owner)
            if end.is_hidden:
                raise AccessRefused(f"{self._queue_subject(name)} is the broker's own")
        else:
            end = self.find_exchange(name)
        return Binding(start, end, routing_key, arguments)

    def _check_binding_arguments(
        self, source: Exchange, arguments: Mapping[str, object], strict: bool
    ) -> None:
        """Refuse, log or ignore arguments that the source of a binding does not read."""
        allowed: Collection[str] = BINDING_ARGUMENTS
        if super_stream.is_super_stream(source):
            allowed = (*allowed, PARTITION_ORDER)
        subject = f"a binding of {self._exchange_subject(source.name)}"
        check_binding_arguments(arguments, allowed, subject, self._mode(strict))

    def _is_durable(self, binding: Binding) -> bool:
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

    def _add_binding(self, binding: Binding, memory: int) -> bool:
        if not binding.source.bind(binding):
            return False
        self.definition_memory += memory
        self._by_destination.setdefault(binding.destination, {})[binding] = None
        return True

    def _remove_binding(self, binding: Binding) -> None:
        if binding.source.unbind(binding):
            self.definition_memory -= binding.source.binding_memory(binding)
        self._forget_binding(binding)
        self._report_unbound(binding)

    def _report_unbound(self, binding: Binding) -> None:
        if self.events.has_listeners:
            self.events.emit("binding.deleted", **binding_facts(binding, self.name))

    def _forget_binding(self, binding: Binding) -> None:
        """Remove a binding from the index by destination and from the store."""
        bound = self._by_destination.get(binding.destination)
        if bound is not None:
            bound.pop(binding, None)
            if not bound:
                del self._by_destination[binding.destination]
        if self._is_durable(binding):
            self.definitions.delete_binding(self._record(binding))

    def _remove_other_bindings(self, binding: Binding) -> None:
        """Remove the other bindings of an exchange with the key of ``binding``."""
        for other in list(binding.source.bindings):
            if other != binding and other.routing_key == binding.routing_key:
                self._remove_binding(other)

    def _unbind_destination(self, destination: BindingDestination) -> dict[Exchange, None]:
        """Remove all bindings to a destination; return their exchanges."""
        bindings = list(self._by_destination.get(destination, ()))
        if len(bindings) > UNINDEXED_AT_ONCE:
            self._by_destination[destination] = dict.fromkeys(bindings[:UNINDEXED_AT_ONCE])
        self._remove_bindings(bindings, self.events.has_listeners or destination.durable)
        return dict.fromkeys([binding.source for binding in bindings])

    def _remove_bindings(self, bindings: list[Binding], unlist: bool) -> None:
        """Remove many bindings at once; with ``unlist`` also from the index by destination.

        They have no effect from now on. Beyond ``UNINDEXED_AT_ONCE``, exchanges remove them from
        their index in later turns; until then :meth:`drop_unbound` filters the index's matches.
        """
        for binding in bindings[:UNINDEXED_AT_ONCE]:
            self._remove_binding(binding)
        for binding in bindings[UNINDEXED_AT_ONCE:]:
            if not binding.source.unindexes_later:
                self._remove_binding(binding)
                continue
            del binding.source.bindings[binding]
            self._removed_bindings.append(binding)
            if unlist:
                self._forget_binding(binding)
                self._report_unbound(binding)
        if self._removed_bindings:
            self._schedule_unindexing()

    def _unindex_some(self, now_ms: int) -> int:
        """Remove some removed bindings from the index of their exchange.

        Return the time of the next call, 0 if none is left.
        """
        for _ in range(min(UNINDEXED_AT_ONCE, len(self._removed_bindings))):
            binding = self._removed_bindings.popleft()
            binding.source.remove_from_index(binding)
            self.definition_memory -= binding.source.binding_memory(binding)
        return now_ms + 1 if self._removed_bindings else 0

    def drop_unbound(self, exchange: Exchange, matched: dict[BindingDestination, None]) -> None:
        """Remove from ``matched`` the destinations that have no binding left."""
        if self._removed_bindings and exchange.name:
            for destination in list(matched):
                if destination not in self._by_destination:
                    del matched[destination]

    # --- Inside -----------------------------------------------------------------------------------

    # Keeps 0-9-1/exchange.declare#01, 0-9-1/queue.declare#02, 0-9-1/queue.bind#05,
    # 0-9/exchange.declare#minimum, 0-9/queue.declare#minimum-queues, 0-9/queue.bind#binding-count,
    # 0-10/s144, 0-10/s165, 0-10/s177.
    def check_definition(self, memory: int, description: str, name: str = "") -> None:
        """Refuse a definition that would use too much memory.

        Exchanges, bindings and the consumers of a queue have no other limit.

        ``description`` is a text such as "queue '{}'", with ``{}`` for the name.

        Raises:
            LimitReached: definitions would use more than they may.
        """
        maximum = self.rules.limits.definitions_size
        if 0 <= maximum < self.definition_memory + memory:
            raise LimitReached(
                f"cannot make {description.format(name)}: the definitions of vhost '{self.name}' "
                f"may hold {maximum} bytes of memory ({LIMIT}), and it needs {memory} beside "
                f"{self.definition_memory}"
            )

    def _require(self, lasting: bool) -> None:
        """Refuse a change that cannot be audited or, if ``lasting``, stored.

        Raises:
            ResourceError: the disk fails.
            AccessRefused: the audit log cannot be written.
        """
        self.events.check_auditable()
        if lasting:
            self.definitions.check_writable()

    def _mode(self, strict: bool) -> str:
        """Return the rule for unknown arguments; ``strict`` applies if the host has no rule."""
        mode = self.rules.unknown_arguments
        return REFUSE if strict and mode == DEFAULT else mode

    def _queue_subject(self, name: str) -> str:
        return f"queue '{name}' in vhost '{self.name}'"

    def _exchange_subject(self, name: str) -> str:
        return f"exchange '{name}' in vhost '{self.name}'"

    # Keeps 0-9-1/exchange#05, 0-9/exchange#default-access, 0-10/s142.
    def _refuse_default(self, name: str) -> None:
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")

    # Keeps 0-9-1/s039, 0-9-1/s051, 0-9/exchange.declare.exchange#reserved.
    def _check_name(self, kind: str, name: str) -> None:
        """Refuse reserved and malformed names."""
        if name.startswith(RESERVED_PREFIX):
            raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
        if not name.isprintable() or len(name.encode()) > NAME_BYTES_MAX:
            raise PreconditionFailed(f"{kind} name {name!r} is not allowed")

    def _invalidate_routes(self) -> None:
        self.counters.generation += 1
