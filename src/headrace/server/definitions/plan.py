# SPDX-License-Identifier: Apache-2.0
"""The plan of an import, which is complete before the import changes anything.

Each element has one outcome (:mod:`.outcomes`). An element that refers to an element without an
equivalent has no equivalent, too. Any other fault is an error, and nothing is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, cast

from headrace.definition_file import SECTIONS
from headrace.model.arguments.memory_estimate import LIMIT as DEFINITIONS
from headrace.model.arguments.memory_estimate import queue_memory
from headrace.model.arguments.values import QUEUE_ARGUMENTS, check_queue_arguments
from headrace.model.counters import Counters
from headrace.model.errors import CommandInvalid, ModelError, NotUnderstood, ResourceError
from headrace.model.exchange.binding import EXCHANGE, QUEUE, arguments_digest
from headrace.model.exchange.binding import Binding as Bound
from headrace.model.exchange.registry import known_arguments, new_exchange
from headrace.model.policy.parameters import Key
from headrace.model.policy.rules import (
    DEFAULT,
    LIMITS_NAME,
    VHOST_LIMITS,
    metadata_key,
    read_limits,
)
from headrace.model.policy.unknown_arguments import check_exchange_arguments
from headrace.model.ports import Store
from headrace.model.vhost.topology import RESERVED_PREFIX
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.server.definitions.account_plan import AccountPlan
from headrace.server.definitions.document import DocumentError
from headrace.server.definitions.elements import (
    Binding,
    Element,
    Exchange,
    Queue,
    read_binding,
    read_exchange,
    read_queue,
)
from headrace.server.definitions.outcomes import (
    CREATED,
    DIFFERENT,
    NO_EQUIVALENT,
    UNCHANGED,
    Duplicate,
    ElementOutcome,
    Finding,
    NoEquivalent,
)
from headrace.server.definitions.rules import translate

if TYPE_CHECKING:
    from headrace.model.exchange.exchange import Exchange as ModelExchange
    from headrace.model.queue.queue import Queue as ModelQueue
    from headrace.server.definitions.target import Target

NO_LIMIT = 1 << 62
# A new virtual host, with the exchanges that every virtual host has.
BARE_VHOST = VirtualHost("", store=Store(), counters=Counters())


class Plan(AccountPlan):
    """The changes that a file makes to a target, built element by element."""

    def __init__(self, target: Target, vhost: str | None = None, *, exact: bool = False) -> None:
        """``vhost`` is the virtual host of elements that name none.

        ``exact`` refuses expressions with forms that RE2 lacks.

        Raises:
            AccountError: the current accounts cannot be read.
        """
        super().__init__(target, vhost, exact=exact)
        self.exchanges: list[Exchange] = []
        self.queues: list[Queue] = []
        self.bindings: list[Binding] = []
        self._rank = 0  # The index in SECTIONS of the latest element's section.
        # The names and reasons of elements without an equivalent, by path.
        self._no_equivalents: dict[str, tuple[str, str]] = {}
        # Exchanges and queues without an equivalent: virtual host, kind and name.
        self._left_out: set[tuple[str, str, str]] = set()
        # What each virtual host may add below its limits: queues, and bytes of definitions.
        self._queues_left: dict[str, int] = {}
        self._memory_left: dict[str, int] = {}
        # The memory of the indexes of new bindings, by virtual host and exchange.
        self._indexed: dict[tuple[str, str], int] = {}
        # New exchanges, which check the bindings to them.
        self._new_exchanges: dict[tuple[str, str], ModelExchange] = {}
        self._new_queues: set[tuple[str, str]] = set()

    def add(self, section: str, index: int, value: object) -> Finding:
        """Add one element to the plan; sections must be in the order of SECTIONS.

        Raises:
            DocumentError: the file cannot be imported.
        """
        rank = SECTIONS.index(section)
        if rank < self._rank:
            raise DocumentError(f"$.{section}[{index}]", "the sections are not in order")
        self._rank = rank
        element = Element(section, index, value, self._vhost)
        name, outcome, text = "", NO_EQUIVALENT, ""
        try:
            name, outcome, text = _PLANNERS[section](self, element)
        except NoEquivalent as error:
            name, text = str(error.args[0]), str(error.args[1])
            self._no_equivalents[element.path] = name, text
        except Duplicate as error:
            name, text = self._no_equivalents.get(error.path, ("", ""))
            outcome = NO_EQUIVALENT if text else UNCHANGED
        return Finding(section, element.path, name, outcome, text)

    def release(self) -> Iterator[None]:
        """Release the plan in steps: freeing a million objects at once would block the loop."""
        for parts in (self._seen, self._new_queues, self.queues, self.bindings):
            pop = parts.popitem if isinstance(parts, dict) else parts.pop
            while parts:
                pop()
                yield None

    # --- Exchanges, queues, bindings -----------------------------------------------------------

    def _plan_exchange(self, element: Element) -> ElementOutcome:
        exchange = read_exchange(element)
        vhost = self._served_vhost(element)
        self._record_once(element, "name", exchange[1:], EXCHANGE, vhost, exchange.name)
        existing = self._existing_vhost(vhost)
        try:
            self._check_printable(exchange.name, "exchange")
            if existing is not None and exchange.name in existing.exchanges:
                return exchange.name, *self._compare_exchange(existing, exchange)
            if exchange.name.startswith(RESERVED_PREFIX):
                raise NoEquivalent(
                    exchange.name, "the name is reserved for exchanges of the broker"
                )
            if not self._may_create(exchange.durable):
                raise NoEquivalent(exchange.name, "transient objects need a running broker")
            try:
                exchange_model = new_exchange(
                    exchange.type,
                    exchange.name,
                    durable=exchange.durable,
                    auto_delete=exchange.auto_delete,
                    internal=exchange.internal,
                    arguments=exchange.arguments,
                )
            except CommandInvalid:
                raise NoEquivalent(
                    exchange.name, f"unknown exchange type '{exchange.type}'"
                ) from None
            self._judge_exchange(exchange, vhost)
            exchange_model.check_arguments(
                exchange.arguments, f"exchange '{exchange.name}' in vhost '{vhost}'"
            )
        except NoEquivalent:
            self._left_out.add((vhost, EXCHANGE, exchange.name))
            raise
        except ModelError as error:
            raise DocumentError(element.path, error.text) from None
        self._reserve_memory(element, vhost, exchange_model.memory())
        self._new_exchanges[vhost, exchange.name] = exchange_model
        self.exchanges.append(exchange)
        return exchange.name, CREATED, ""

    def _judge_exchange(self, exchange: Exchange, vhost: str) -> None:
        """Check the arguments of an exchange by the rule of its virtual host for unknown ones.

        Raises:
            NoEquivalent: the rule refuses an argument.
        """
        recognized = known_arguments(exchange.type, exchange.arguments)
        named_exchange = f"exchange '{exchange.name}' in vhost '{vhost}'"
        try:
            check_exchange_arguments(
                exchange.arguments, recognized, named_exchange, self._unknown_arguments(vhost)
            )
        except NotUnderstood as error:
            raise NoEquivalent(exchange.name, error.text) from None

    def _compare_exchange(self, vhost: VirtualHost, exchange: Exchange) -> tuple[str, str]:
        if not exchange.name:
            return UNCHANGED, ""
        try:
            vhost.declare_exchange(
                exchange.name,
                exchange.type,
                durable=exchange.durable,
                auto_delete=exchange.auto_delete,
                internal=exchange.internal,
                arguments=exchange.arguments,
            )
        except ModelError as error:
            return DIFFERENT, error.text
        return UNCHANGED, ""

    def _plan_queue(self, element: Element) -> ElementOutcome:
        queue = read_queue(element)
        vhost = self._served_vhost(element)
        self._record_once(element, "name", queue[1:], QUEUE, vhost, queue.name)
        existing = self._existing_vhost(vhost)
        named_queue = f"queue '{queue.name}' in vhost '{vhost}'"
        try:
            self._check_printable(queue.name, "queue")
            self._check_type(queue)
            mode = self._unknown_arguments(vhost)
            arguments, problem = translate(queue.arguments, named_queue, mode, queue.name)
            if problem:
                raise NoEquivalent(queue.name, problem)
            check_queue_arguments(arguments, named_queue)
            if existing is not None and queue.name in existing.queues:
                return queue.name, *self._compare_queue(existing, queue)
            if not self._may_create(queue.durable):
                raise NoEquivalent(queue.name, "transient objects need a running broker")
        except NoEquivalent:
            self._left_out.add((vhost, QUEUE, queue.name))
            raise
        except ModelError as error:
            raise DocumentError(element.path, error.text) from None
        self._count_queue(element, vhost)
        self._reserve_memory(element, vhost, queue_memory(queue.name, arguments))
        self._new_queues.add((vhost, queue.name))
        self.queues.append(queue)
        return queue.name, CREATED, ""

    @staticmethod
    def _check_type(queue: Queue) -> None:
        kind = queue.arguments.get("x-queue-type", "classic")
        if isinstance(kind, str) and QUEUE_ARGUMENTS["x-queue-type"](kind, queue.arguments):
            raise NoEquivalent(queue.name, f"unknown queue type '{kind}'")
        is_permanent = queue.durable and not queue.auto_delete
        if kind in ("quorum", "stream") and not is_permanent:
            raise DocumentError(queue.path, f"a queue of type {kind} is durable, and stays")

    def _compare_queue(self, vhost: VirtualHost, queue: Queue) -> tuple[str, str]:
        try:
            vhost.declare_queue(
                queue.name,
                durable=queue.durable,
                auto_delete=queue.auto_delete,
                arguments=queue.declare_arguments(vhost.rules.default_queue_type),
            )
        except ModelError as error:
            return DIFFERENT, error.text
        return UNCHANGED, ""

    def _plan_binding(self, element: Element) -> ElementOutcome:
        binding = read_binding(element)
        vhost = self._served_vhost(element)
        name = f"{binding.source} -> {binding.destination} ({binding.routing_key})"
        key = arguments_digest(binding.arguments)
        self._record_once(element, "source", None, "binding", vhost, *binding[2:6], key)
        source, is_new = self._find_source(element, vhost, binding.source, name)
        destination = self._find_destination(
            element, vhost, binding.kind, binding.destination, name
        )
        if not binding.source and (binding.kind, binding.destination) == (
            QUEUE,
            binding.routing_key,
        ):
            return name, UNCHANGED, ""  # Every queue has this binding to the default exchange.
        if not binding.source:
            raise element.fail("source", "nothing can be bound to the default exchange")
        try:
            source.check(binding.routing_key, binding.arguments)
        except ModelError as error:
            raise DocumentError(element.path, error.text) from None
        # The destination may be None, if the import creates it: the size does not depend on it.
        target = cast("ModelQueue | ModelExchange", destination)
        bound = Bound(source, target, binding.routing_key, binding.arguments)
        if destination is not None and not is_new and bound in source.bindings:
            return name, UNCHANGED, ""
        try:
            source.check_room(binding.routing_key)
            self._reserve_memory(element, vhost, self._new_binding_memory(bound, vhost))
        except ModelError as error:
            raise DocumentError(element.path, error.text) from None
        self.bindings.append(binding)
        return name, CREATED, ""

    def _find_source(
        self, element: Element, vhost: str, name: str, binding_name: str
    ) -> tuple[ModelExchange, bool]:
        """Return the source of a binding, and True if the import creates it."""
        exchange_model = self._new_exchanges.get((vhost, name))
        if exchange_model is not None:
            return exchange_model, True
        existing = self._existing_vhost(vhost)
        if existing is not None and name in existing.exchanges:
            return existing.exchanges[name], False
        if existing is None and (not name or name.startswith(RESERVED_PREFIX)):
            exchange = BARE_VHOST.exchanges.get(name)
            if exchange is not None:
                return exchange, True
        if (vhost, EXCHANGE, name) in self._left_out:
            raise NoEquivalent(binding_name, f"exchange '{name}' is left out")
        raise element.fail("source", f"there is no exchange '{name}', here or in the file")

    def _find_destination(
        self, element: Element, vhost: str, kind: str, name: str, binding_name: str
    ) -> ModelQueue | ModelExchange | None:
        """Return the destination of a binding; None if the import creates it."""
        if (vhost, kind, name) in self._left_out:
            raise NoEquivalent(binding_name, f"{kind} '{name}' is left out")
        if kind == EXCHANGE and not name:
            raise element.fail("destination", "the default exchange cannot be bound")
        existing = self._existing_vhost(vhost)
        if existing is not None:
            present = existing.queues.get(name) if kind == QUEUE else existing.exchanges.get(name)
            if present is not None:
                return present
        if kind == QUEUE and (vhost, name) in self._new_queues:
            return None
        if kind == EXCHANGE and (
            (vhost, name) in self._new_exchanges or name in BARE_VHOST.exchanges
        ):
            return None
        raise element.fail("destination", f"there is no {kind} '{name}', here or in the file")

    # --- Checks of elements --------------------------------------------------------------------

    def _served_vhost(self, element: Element) -> str:
        """Return the virtual host of an exchange, queue or binding.

        Raises:
            DocumentError: this broker does not run it, and the import does not create it.
        """
        vhost = self._known_vhost(element)
        if vhost in self._current.vhosts and self._existing_vhost(vhost) is None:
            try:
                self.target.vhost(vhost)
            except ResourceError as error:
                raise element.fail("vhost", error.text) from None
        return vhost

    def _existing_vhost(self, vhost: str) -> VirtualHost | None:
        return self.target.vhosts.get(vhost)

    def _may_create(self, durable: bool) -> bool:
        return durable or self.target.keeps_transient

    def _unknown_arguments(self, vhost: str) -> str:
        """Return the rule of a virtual host for unknown arguments, after the import."""
        existing = self._existing_vhost(vhost)
        if existing is not None:
            return existing.rules.unknown_arguments
        key = metadata_key(vhost)
        return str(self.changes.parameters.get(key, {}).get("unknown_arguments") or DEFAULT)

    def _count_queue(self, element: Element, vhost: str) -> None:
        """Count a new queue.

        Raises:
            DocumentError: the virtual host would have more queues than its limit.
        """
        if vhost not in self._queues_left:
            existing = self._existing_vhost(vhost)
            limit = read_limits(self._read_limits(vhost)).queues
            count = existing.queue_count() if existing is not None else 0
            self._queues_left[vhost] = limit - count if limit >= 0 else NO_LIMIT
        self._queues_left[vhost] -= 1
        if self._queues_left[vhost] < 0:
            raise DocumentError(
                element.path,
                f"virtual host '{vhost}' would have more queues than its limit max-queues",
            )

    def _new_binding_memory(self, bound: Bound, vhost: str) -> int:
        """Return an upper bound of the memory that a new binding adds, in bytes."""
        source = bound.source
        index = source.index_memory(bound)
        index_key = (vhost, source.name)
        previous_memory = self._indexed.get(index_key, 0)
        self._indexed[index_key] = min(previous_memory + index, source.index_memory_max)
        return source.binding_memory(bound) - index + self._indexed[index_key] - previous_memory

    def _reserve_memory(self, element: Element, vhost: str, size: int) -> None:
        """Count the memory of a new definition, ``size`` bytes.

        Raises:
            DocumentError: the definitions of the virtual host would exceed their limit.
        """
        if vhost not in self._memory_left:
            existing = self._existing_vhost(vhost)
            limit = self.target.definitions_size_max
            limits = self._read_limits(vhost)
            if DEFINITIONS in limits:
                limit = read_limits(limits).definitions_size
            used_memory = existing.definition_memory if existing is not None else 0
            self._memory_left[vhost] = limit - used_memory if limit >= 0 else NO_LIMIT
        self._memory_left[vhost] -= size
        if self._memory_left[vhost] < 0:
            raise DocumentError(
                element.path,
                f"the definitions of virtual host '{vhost}' may not hold so much memory "
                f"({DEFINITIONS})",
            )

    def _read_limits(self, vhost: str) -> Mapping[str, object]:
        """Return the limits of a virtual host after the import."""
        key = Key(vhost, VHOST_LIMITS, LIMITS_NAME)
        value = self.changes.parameters.get(key, self._current.parameters.get(key, {}))
        return value if isinstance(value, Mapping) else {}

    @staticmethod
    def _check_printable(name: str, kind: str) -> None:
        if not name.isprintable():
            raise NoEquivalent(name, f"names of a {kind} with characters that cannot be printed")


_PLANNERS: dict[str, Callable[[Plan, Element], ElementOutcome]] = {
    "vhosts": Plan._plan_vhost,
    "users": Plan._plan_user,
    "permissions": Plan._plan_permission,
    "topic_permissions": Plan._plan_topic_permission,
    "parameters": Plan._plan_parameter,
    "global_parameters": Plan._plan_global_parameter,
    "policies": Plan._plan_policy,
    "exchanges": Plan._plan_exchange,
    "queues": Plan._plan_queue,
    "bindings": Plan._plan_binding,
}
