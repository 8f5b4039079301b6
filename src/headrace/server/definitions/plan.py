# SPDX-License-Identifier: Apache-2.0
"""What taking definitions would change: found out in full before anything is changed.

Of each element one thing is true. It will be *made*; or it is *there* already; or it is there and
will be *changed* (users, permissions, parameters and policies); or it is there, *different*, and
stays as it is (exchanges and queues cannot be changed); or this broker has *no equivalent*. What
refers to something without an equivalent has none either. Anything else is a fault of the file, and
then nothing of it is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.gateway.access import check_permission, check_topic_permission
from headrace.model.arguments import QUEUE_ARGUMENTS, check_queue_arguments
from headrace.model.binding import EXCHANGE, QUEUE
from headrace.model.binding import Binding as Bound
from headrace.model.errors import CommandInvalid, ModelError, NotUnderstood
from headrace.model.exchange_types import known_arguments, new_exchange
from headrace.model.holdings import LIMIT as DEFINITIONS
from headrace.model.holdings import queue_octets
from headrace.model.parameters import EVERYWHERE, Key
from headrace.model.policy import COMPONENT as POLICY
from headrace.model.policy import POLICIES_MAX
from headrace.model.ports import Store
from headrace.model.rules import (
    DEFAULT,
    LIMITS_NAME,
    METADATA,
    METADATA_NAME,
    USER_LIMITS,
    VHOST_LIMITS,
    read_limits,
)
from headrace.model.tally import Tally
from headrace.model.topology import RESERVED_PREFIX
from headrace.model.understood import judge_exchange
from headrace.model.users import AccountError, Permission, TopicPermission
from headrace.model.vhost import VirtualHost
from headrace.server.definitions.document import SECTIONS, DocumentError
from headrace.server.definitions.elements import (
    Binding,
    Element,
    Exchange,
    Queue,
    as_object,
    read_account,
    read_binding,
    read_exchange,
    read_queue,
)
from headrace.server.definitions.rules import (
    COMPONENTS,
    METADATA_FIELDS,
    ONLY_NAMES,
    POLICIES,
    check_rule,
    translate,
    without_effect,
)
from headrace.store.changes import Changes

if TYPE_CHECKING:
    from headrace.model.exchange import Exchange as ModelExchange
    from headrace.server.definitions.target import Target

MADE, THERE, CHANGED, DIFFERENT, NO_EQUIVALENT = (
    *("made", "there", "changed", "different", "no equivalent"),
)
OUTCOMES = (MADE, THERE, CHANGED, DIFFERENT, NO_EQUIVALENT)
VHOST_METADATA = ("description", "tags", "default_queue_type")
NOTHING: tuple[Any, ...] = (None, "", [], "undefined")  # How RabbitMQ writes what nobody said.
PATTERN_OCTETS_MAX = 4096
NO_LIMIT = 1 << 62
BARE = VirtualHost("", store=Store(), tally=Tally())  # The exchanges that every one has.


class Finding(NamedTuple):
    """What becomes of one element; ``text`` says why, where there is something to say."""

    section: str
    path: str
    name: str
    outcome: str
    text: str = ""


class NoEquivalent(Exception):
    """This broker has nothing like an element; the text says why."""


class Plan:
    """What one file would change at one target; made by one element after the other."""

    def __init__(self, target: Target, vhost: str | None = None) -> None:
        """``vhost`` is where elements go that do not name one.

        Raises:
            AccountError: what is there cannot be read.
        """
        self.target = target
        self.changes = Changes()
        self.exchanges: list[Exchange] = []
        self.queues: list[Queue] = []
        self.bindings: list[Binding] = []
        self._vhost = vhost
        self._now = target.snapshot()
        self._rank = 0
        self._paths: dict[tuple[Any, ...], str] = {}  # Where in the file each name is.
        self._left_out: set[tuple[str, str, str]] = set()  # What has no equivalent, by kind.
        self._policies_of: dict[tuple[str, str], int] = {}
        self._room: dict[str, int] = {}  # How many more queues there may be, by virtual host,
        self._free: dict[str, int] = {}  # and how many octets definitions may hold more.
        self._indexed: dict[tuple[str, str], int] = {}  # By what is bound to an exchange.
        # What will be there, as it can be asked about bindings.
        self._new_exchanges: dict[tuple[str, str], ModelExchange] = {}
        self._new_queues: set[tuple[str, str]] = set()

    def add(self, section: str, index: int, value: Any) -> Finding:
        """Take up one element; sections must come in the order of SECTIONS.

        Raises:
            DocumentError: the file cannot be taken.
        """
        rank = SECTIONS.index(section)
        if rank < self._rank:
            raise DocumentError(f"$.{section}[{index}]", "the sections are not in order")
        self._rank = rank
        element = Element(section, index, value, self._vhost)
        name, outcome, text = "", NO_EQUIVALENT, ""
        try:
            name, outcome, text = getattr(self, f"_{section}")(element)
        except NoEquivalent as error:
            name, text = str(error.args[0]), str(error.args[1])
        return Finding(section, element.path, name, outcome, text)

    def release(self) -> Iterator[None]:
        """Forget all, in steps: to let go of a million things at once takes its time, too."""
        for things in (self._paths, self._new_queues, self.queues, self.bindings):
            pop = things.popitem if isinstance(things, dict) else things.pop
            while things:
                pop()
                yield None

    # --- Users, virtual hosts, permissions -----------------------------------------------------

    def _vhosts(self, element: Element) -> tuple[str, str, str]:
        name = element.name("name", "virtual host")
        self._once(element, "name", "vhost", name)
        metadata = {**element.mapping("metadata")}
        for field in VHOST_METADATA:
            if element.value.get(field) not in NOTHING:
                metadata[field] = element.value[field]
        metadata = {field: value for field, value in metadata.items() if value not in NOTHING}
        if metadata.get("default_queue_type") == "classic":
            del metadata["default_queue_type"]  # What holds anyway.
        outcome = THERE
        if name not in self._now.vhosts:
            self.changes.vhosts[name] = None
            outcome = MADE
        if metadata:
            key = Key(name, METADATA, METADATA_NAME)
            before = self._now.parameters.get(key, {})
            known = {field: value for field, value in metadata.items() if field in METADATA_FIELDS}
            self._check_rule(element, key, known)
            after = {**before, **known}
            if after != before:
                self.changes.parameters[key] = after
                outcome = MADE if outcome == MADE else CHANGED
        return name, outcome, ""

    def _users(self, element: Element) -> tuple[str, str, str]:
        account = read_account(element)
        self._once(element, "name", "user", account.name)
        outcome = THERE
        before = self._now.accounts.get(account.name)
        if before is None:
            outcome = MADE
        elif before != account:
            outcome = CHANGED
        if outcome != THERE:
            self.changes.accounts[account.name] = account
        limits = element.mapping("limits")
        if limits:
            key = Key(EVERYWHERE, USER_LIMITS, account.name)
            self._check_rule(element, key, limits)
            if self._parameter(key, limits) != THERE and outcome == THERE:
                outcome = CHANGED
        return account.name, outcome, ""

    def _permissions(self, element: Element) -> tuple[str, str, str]:
        user, vhost = self._user(element), self._known_vhost(element)
        self._once(element, "user", "permission", user, vhost)
        given = Permission(*(self._pattern(element, f) for f in ("configure", "write", "read")))
        try:
            check_permission(given)
        except AccountError as error:
            raise DocumentError(element.path, str(error)) from None
        before = self._now.permissions.get((user, vhost))
        if before == given:
            return f"{user} in {vhost}", THERE, ""
        self.changes.permissions[user, vhost] = given
        return f"{user} in {vhost}", MADE if before is None else CHANGED, ""

    def _topic_permissions(self, element: Element) -> tuple[str, str, str]:
        user, vhost = self._user(element), self._known_vhost(element)
        exchange = element.text("exchange")
        name = f"{user} in {vhost} at {exchange}"
        self._once(element, "exchange", "topic permission", user, vhost, exchange)
        given = TopicPermission(*(self._pattern(element, f) for f in ("write", "read")))
        try:
            check_topic_permission(given)
        except AccountError as error:
            raise DocumentError(element.path, str(error)) from None
        before = self._now.topic_permissions.get((user, vhost, exchange))
        if before == given:
            return name, THERE, ""
        self.changes.topic_permissions[user, vhost, exchange] = given
        return name, MADE if before is None else CHANGED, ""

    @staticmethod
    def _pattern(element: Element, field: str) -> str:
        return element.text(field, octets_max=PATTERN_OCTETS_MAX)

    def _user(self, element: Element) -> str:
        user = element.name("user", "user")
        if user not in self._now.accounts and ("user", user) not in self._paths:
            raise element.fail("user", f"there is no user '{user}', here or in the file")
        return user

    def _known_vhost(self, element: Element) -> str:
        """The virtual host that an element is in, which must be there or in the file."""
        vhost = element.vhost()
        if vhost not in self._now.vhosts and vhost not in self.changes.vhosts:
            raise element.fail("vhost", f"there is no virtual host '{vhost}', here or in the file")
        return vhost

    # --- Parameters and policies ---------------------------------------------------------------

    def _parameters(self, element: Element) -> tuple[str, str, str]:
        component = element.name("component", "component")
        name = element.name("name", component)
        vhost = self._known_vhost(element)
        self._once(element, "name", component, vhost, name)
        if component not in COMPONENTS:
            raise NoEquivalent(name, f"parameters of component '{component}'")
        if name != ONLY_NAMES.get(component, name):
            raise element.fail("name", f"a {component} has the name '{ONLY_NAMES[component]}'")
        if "value" not in element.value:
            raise element.fail("value", "it is missing")
        key = Key(EVERYWHERE if component == USER_LIMITS else vhost, component, name)
        value = as_object(element.value["value"])
        if isinstance(value, Mapping) and "definition" in value:
            value = {**value, "definition": as_object(value["definition"])}
        self._check_rule(element, key, value)
        return name, self._parameter(key, value), self._note(value)

    def _global_parameters(self, element: Element) -> tuple[str, str, str]:
        name = element.name("name", "parameter")
        self._once(element, "name", "global parameter", name)
        raise NoEquivalent(name, "parameters of a whole cluster")

    def _policies(self, element: Element) -> tuple[str, str, str]:
        name, vhost = element.name("name", "policy"), self._known_vhost(element)
        self._once(element, "name", POLICY, vhost, name)
        fields = ("pattern", "definition", "priority", "apply-to")
        value = {
            field: as_object(element.value[field]) for field in fields if field in element.value
        }
        self._check_rule(element, Key(vhost, POLICY, name), value)
        return name, self._parameter(Key(vhost, POLICY, name), value), self._note(value)

    @staticmethod
    def _note(value: Any) -> str:
        """What of a policy is kept, and counts for nothing here."""
        idle = without_effect(value)
        return f"without effect here: {', '.join(idle)}" if idle else ""

    def _check_rule(self, element: Element, key: Key, value: Any) -> None:
        """Refuse a value that cannot count here."""
        try:
            note = check_rule(key, value)
        except ModelError as error:
            raise DocumentError(element.path, error.text) from None
        if note:
            raise NoEquivalent(key.name, note)

    def _parameter(self, key: Key, value: Any) -> str:
        before = self._now.parameters.get(key)
        if before == value:
            return THERE
        if before is None and key.component in POLICIES:
            kind = (key.vhost, key.component)
            if kind not in self._policies_of:
                self._policies_of[kind] = sum(one[:2] == kind for one in self._now.parameters)
            self._policies_of[kind] += 1
            if self._policies_of[kind] > POLICIES_MAX:
                text = f"virtual host '{key.vhost}' has more than {POLICIES_MAX} of these"
                raise DocumentError(f"$.{key.component}.{key.name:.64}", text)
        self.changes.parameters[key] = value
        return MADE if before is None else CHANGED

    # --- Exchanges, queues, bindings -----------------------------------------------------------

    def _exchanges(self, element: Element) -> tuple[str, str, str]:
        found = read_exchange(element)
        vhost = self._known_vhost(element)
        self._once(element, "name", EXCHANGE, vhost, found.name)
        there = self._at(vhost)
        try:
            self._nameable(found.name, "exchange")
            if there is not None and found.name in there.exchanges:
                return found.name, *self._compare_exchange(there, found)
            if found.name.startswith(RESERVED_PREFIX):
                raise NoEquivalent(found.name, "the name is reserved for exchanges of the broker")
            if not self._worth(found.durable):
                raise NoEquivalent(found.name, "what is not durable needs a broker that runs")
            try:
                made = new_exchange(
                    found.type,
                    found.name,
                    durable=found.durable,
                    auto_delete=found.auto_delete,
                    internal=found.internal,
                    arguments=found.arguments,
                )
            except CommandInvalid:
                raise NoEquivalent(found.name, f"exchanges of type '{found.type}'") from None
            self._judge_exchange(found, vhost)
            made.check_arguments(found.arguments, f"exchange '{found.name}' in vhost '{vhost}'")
        except NoEquivalent:
            self._left_out.add((vhost, EXCHANGE, found.name))
            raise
        except ModelError as error:
            raise DocumentError(element.path, error.text) from None
        self._hold(element, vhost, made.octets())
        self._new_exchanges[vhost, found.name] = made
        self.exchanges.append(found)
        return found.name, MADE, ""

    def _judge_exchange(self, found: Exchange, vhost: str) -> None:
        """Leave out what has arguments that the virtual host refuses."""
        known = known_arguments(found.type, found.arguments)
        what = f"exchange '{found.name}' in vhost '{vhost}'"
        try:
            judge_exchange(found.arguments, known, what, self._unknown_arguments(vhost))
        except NotUnderstood as error:
            raise NoEquivalent(found.name, error.text) from None

    def _compare_exchange(self, vhost: VirtualHost, found: Exchange) -> tuple[str, str]:
        if not found.name:
            return THERE, ""
        try:
            vhost.declare_exchange(
                found.name,
                found.type,
                durable=found.durable,
                auto_delete=found.auto_delete,
                internal=found.internal,
                arguments=found.arguments,
            )
        except ModelError as error:
            return DIFFERENT, error.text
        return THERE, ""

    def _queues(self, element: Element) -> tuple[str, str, str]:
        found = read_queue(element)
        vhost = self._known_vhost(element)
        self._once(element, "name", QUEUE, vhost, found.name)
        there = self._at(vhost)
        what = f"queue '{found.name}' in vhost '{vhost}'"
        try:
            self._nameable(found.name, "queue")
            self._check_type(found)
            mode = self._unknown_arguments(vhost)
            arguments, none = translate(found.arguments, what, mode, found.name)
            if none:
                raise NoEquivalent(found.name, none)
            check_queue_arguments(arguments, what)
            if there is not None and found.name in there.queues:
                return found.name, *self._compare_queue(there, found)
            if not self._worth(found.durable):
                raise NoEquivalent(found.name, "what is not durable needs a broker that runs")
        except NoEquivalent:
            self._left_out.add((vhost, QUEUE, found.name))
            raise
        except ModelError as error:
            raise DocumentError(element.path, error.text) from None
        self._count_queue(element, vhost)
        self._hold(element, vhost, queue_octets(found.name, arguments))
        self._new_queues.add((vhost, found.name))
        self.queues.append(found)
        return found.name, MADE, ""

    @staticmethod
    def _check_type(found: Queue) -> None:
        kind = found.arguments.get("x-queue-type", "classic")
        if isinstance(kind, str) and QUEUE_ARGUMENTS["x-queue-type"](kind, found.arguments):
            raise NoEquivalent(found.name, f"queues of type '{kind}'")
        lasting = found.durable and not found.auto_delete
        if kind in ("quorum", "stream") and not lasting:
            raise DocumentError(found.path, f"a queue of type {kind} is durable, and stays")

    def _compare_queue(self, vhost: VirtualHost, found: Queue) -> tuple[str, str]:
        try:
            vhost.declare_queue(
                found.name,
                durable=found.durable,
                auto_delete=found.auto_delete,
                arguments=found.declared(vhost.rules.default_queue_type),
            )
        except ModelError as error:
            return DIFFERENT, error.text
        return THERE, ""

    def _bindings(self, element: Element) -> tuple[str, str, str]:
        found = read_binding(element)
        vhost = self._known_vhost(element)
        name = f"{found.source} -> {found.destination} ({found.routing_key})"
        key = json.dumps(found.arguments, sort_keys=True) if found.arguments else ""
        self._once(element, "source", "binding", vhost, *found[2:6], key)
        source, is_new = self._source(element, vhost, found.source, name)
        destination = self._destination(element, vhost, found.kind, found.destination, name)
        if not found.source and (found.kind, found.destination) == (QUEUE, found.routing_key):
            return name, THERE, ""  # Every queue is bound to the default exchange so.
        if not found.source:
            raise element.fail("source", "nothing can be bound to the default exchange")
        try:
            source.check(found.routing_key, found.arguments)
        except ModelError as error:
            raise DocumentError(element.path, error.text) from None
        bound = Bound(source, destination, found.routing_key, found.arguments)
        if destination is not None and not is_new and bound in source.bindings:
            return name, THERE, ""
        try:
            self._hold(element, vhost, self._weigh(bound, vhost))
        except ModelError as error:
            raise DocumentError(element.path, error.text) from None
        self.bindings.append(found)
        return name, MADE, ""

    def _source(
        self, element: Element, vhost: str, name: str, shown: str
    ) -> tuple[ModelExchange, bool]:
        """The exchange that is bound to, and whether it is still to be made."""
        made = self._new_exchanges.get((vhost, name))
        if made is not None:
            return made, True
        there = self._at(vhost)
        if there is not None and name in there.exchanges:
            return there.exchanges[name], False
        if there is None and (not name or name.startswith(RESERVED_PREFIX)):
            found = BARE.exchanges.get(name)
            if found is not None:
                return found, True
        if (vhost, EXCHANGE, name) in self._left_out:
            raise NoEquivalent(shown, f"exchange '{name}' is left out")
        raise element.fail("source", f"there is no exchange '{name}', here or in the file")

    def _destination(self, element: Element, vhost: str, kind: str, name: str, shown: str) -> Any:
        """What is bound, if it is there already."""
        if (vhost, kind, name) in self._left_out:
            raise NoEquivalent(shown, f"{kind} '{name}' is left out")
        if kind == EXCHANGE and not name:
            raise element.fail("destination", "the default exchange cannot be bound")
        there = self._at(vhost)
        if there is not None:
            where: Mapping[str, Any] = there.queues if kind == QUEUE else there.exchanges
            if name in where:
                return where[name]
        if kind == QUEUE and (vhost, name) in self._new_queues:
            return None
        if kind == EXCHANGE and ((vhost, name) in self._new_exchanges or name in BARE.exchanges):
            return None
        raise element.fail("destination", f"there is no {kind} '{name}', here or in the file")

    # --- Inside --------------------------------------------------------------------------------

    def _once(self, element: Element, field: str, *key: Any) -> None:
        before = self._paths.setdefault(key, element.path)
        if before != element.path:
            raise element.fail(field, f"the same {key[0]} is there already, at {before}")

    def _at(self, vhost: str) -> VirtualHost | None:
        return self.target.vhosts.get(vhost)

    def _worth(self, durable: bool) -> bool:
        return durable or self.target.keeps_transient

    def _unknown_arguments(self, vhost: str) -> str:
        """What becomes of names of arguments that nobody here knows."""
        there = self._at(vhost)
        if there is not None:
            return there.rules.unknown_arguments
        key = Key(vhost, METADATA, METADATA_NAME)
        return str(self.changes.parameters.get(key, {}).get("unknown_arguments") or DEFAULT)

    def _count_queue(self, element: Element, vhost: str) -> None:
        """Refuse more queues than the virtual host may have when all is there."""
        if vhost not in self._room:
            there = self._at(vhost)
            most = read_limits(self._limits(vhost)).queues
            count = there.queue_count() if there is not None else 0
            self._room[vhost] = most - count if most >= 0 else NO_LIMIT
        self._room[vhost] -= 1
        if self._room[vhost] < 0:
            raise DocumentError(
                element.path, f"virtual host '{vhost}' may not have so many queues (max-queues)"
            )

    def _weigh(self, bound: Bound, vhost: str) -> int:
        """At most so much a binding takes: what it shares with others of the file counts twice."""
        source = bound.source
        index = source.index_octets(bound)
        at = (vhost, source.name)
        before = self._indexed.get(at, 0)
        self._indexed[at] = min(before + index, source.index_octets_max)
        return source.weigh(bound) - index + self._indexed[at] - before

    def _hold(self, element: Element, vhost: str, octets: int) -> None:
        """Refuse more memory than definitions of the virtual host may hold when all is there."""
        if vhost not in self._free:
            there = self._at(vhost)
            most = self.target.definitions_size_max
            limits = self._limits(vhost)
            if DEFINITIONS in limits:
                most = read_limits(limits).definitions_size
            held = there.definition_octets if there is not None else 0
            self._free[vhost] = most - held if most >= 0 else NO_LIMIT
        self._free[vhost] -= octets
        if self._free[vhost] < 0:
            raise DocumentError(
                element.path,
                f"the definitions of virtual host '{vhost}' may not hold so much memory "
                f"({DEFINITIONS})",
            )

    def _limits(self, vhost: str) -> Mapping[str, Any]:
        """The limits of a virtual host, as they are when all is there."""
        key = Key(vhost, VHOST_LIMITS, LIMITS_NAME)
        value = self.changes.parameters.get(key, self._now.parameters.get(key, {}))
        return value if isinstance(value, Mapping) else {}

    @staticmethod
    def _nameable(name: str, what: str) -> None:
        if not name.isprintable():
            raise NoEquivalent(name, f"names of a {what} with characters that cannot be printed")
