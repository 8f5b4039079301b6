# SPDX-License-Identifier: Apache-2.0
"""Definitions for RabbitMQ, without elements that have no equivalent there.

RabbitMQ refuses a whole file because of one unknown limit, policy key or exchange type. So elements
that it would refuse are left out. Arguments that it accepts and ignores are kept. A remark names
both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from headrace.model.arguments.aliases import QUEUE_ALIASES
from headrace.model.arguments.consumer import SELECTORS
from headrace.model.exchange.binding import EXCHANGE, QUEUE
from headrace.model.exchange.exchange import EXCLUSIVE_BINDING
from headrace.model.policy.policy import OPERATOR_COMPONENT
from headrace.model.policy.rules import USER_LIMITS, VHOST_LIMITS
from headrace.server.definitions.typed_arguments import TYPED

Value = dict[str, Any]  # An exported element, made by :mod:`.export`.
Sections = dict[str, list[Value]]
Note = Callable[[str, str], None]

NAMED_MAX = 5  # Elements that a remark names; more are counted.


class Reader(NamedTuple):
    """The RabbitMQ for which a file is made."""

    version: tuple[int, int]
    plugins: bool  # True if it has the exchange types of plugins.


READERS = {"rabbitmq": Reader((4, 3), True), "rabbitmq-3.10": Reader((3, 10), False)}

LIMITS = {
    VHOST_LIMITS: frozenset({"max-connections", "max-queues"}),
    USER_LIMITS: frozenset({"max-connections", "max-channels"}),
}
# The versions of RabbitMQ that introduced these values, if later than the oldest supported reader.
APPLY_TO_SINCE = {
    "classic_queues": (3, 12),
    "quorum_queues": (3, 12),
    "streams": (3, 12),
}
KEYS_SINCE = {
    "consumer-timeout": (3, 12),
    "delayed-retry-type": (4, 3),
    "delayed-retry-min": (4, 3),
    "delayed-retry-max": (4, 3),
    "delayed-retry-multiplier": (99, 0),
}
OPERATOR_KEYS = frozenset(
    {"expires", "message-ttl", "max-length", "max-length-bytes", "delivery-limit"}
)
EXCHANGE_TYPES = ("direct", "fanout", "topic", "headers")
EXCHANGE_SINCE = {"x-local-random": (4, 0), "x-modulus-hash": (4, 3)}
EXCHANGE_PLUGINS = {
    "x-consistent-hash": "rabbitmq_consistent_hash_exchange",
    "x-random": "rabbitmq_random_exchange",
    "x-recent-history": "rabbitmq_recent_history_exchange",
    "x-delayed-message": "rabbitmq_delayed_message_exchange",
    "x-message-deduplication": "rabbitmq_message_deduplication",
}
_ANY = ("x-queue-type", "x-max-length-bytes", "x-queue-leader-locator")
_MESSAGES = (
    *(*_ANY, "x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key"),
    *("x-max-length", "x-overflow", "x-single-active-consumer", "x-consumer-timeout"),
)
# The arguments of each type of queue. RabbitMQ refuses those of other types; it ignores unknown
# ones.
ARGUMENTS = {
    "classic": frozenset({*_MESSAGES, "x-max-priority", "x-queue-mode", "x-queue-version"}),
    "quorum": frozenset(
        {
            *(*_MESSAGES, "x-delivery-limit", "x-dead-letter-strategy", "x-max-in-memory-length"),
            *("x-max-in-memory-bytes", "x-quorum-initial-group-size", "x-quorum-target-group-size"),
            *("x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"),
        }
    ),
    "stream": frozenset(
        {*_ANY, "x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size"}
    ),
}
CATALOGUE = frozenset().union(*ARGUMENTS.values())
OVERFLOWS = {
    "classic": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "quorum": ("drop-head", "reject-publish"),
    "stream": (),
}
# The arguments of exchanges that RabbitMQ has, too.
EXCHANGE_ARGUMENTS = frozenset(
    {
        *("alternate-exchange", "hash-header", "hash-property", "x-delayed-type"),
        *("x-recent-history-length", "x-cache-size", "x-cache-ttl", "x-cache-persistence"),
    }
)
BINDING_ARGUMENTS = frozenset({*SELECTORS, EXCLUSIVE_BINDING})  # RabbitMQ ignores them.


def adapt(sections: Mapping[str, list[Value]], reader: Reader) -> tuple[Sections, list[str]]:
    """Return the definitions for a RabbitMQ, and a remark about each kind of loss."""
    notes: dict[str, list[str]] = {}

    def note(text: str, name: str) -> None:
        notes.setdefault(text, []).append(name)

    missing: set[tuple[str | None, str]] = set()  # Exchanges that are left out.
    kept: Sections = {}
    for section, values in sections.items():
        if section == "exchanges":
            kept[section] = list(_adapt_exchanges(values, reader, note, missing))
        elif section == "bindings":
            continue
        elif section in ADAPTED:
            kept[section] = [ADAPTED[section](value, note) for value in values]
        elif section in RULES:
            rules = (RULES[section](value, reader, note) for value in values)
            kept[section] = [value for value in rules if value is not None]
        else:
            kept[section] = values
    kept["bindings"] = list(_adapt_bindings(sections.get("bindings", []), note, missing))
    for section in ("exchanges", "queues", "bindings"):
        for value in kept.get(section, []):
            if TYPED in value:
                note("types of arguments become texts", value.get("name") or value["destination"])
        kept[section] = [_drop_typed(value) for value in kept.get(section, [])]
    return kept, [_format_remark(text, names) for text, names in notes.items()]


def _drop_typed(value: Value) -> Value:
    """Return an element without its typed arguments, which RabbitMQ does not read."""
    return {field: item for field, item in value.items() if field != TYPED}


def _format_remark(text: str, names: list[str]) -> str:
    """Return a remark with the names of the first elements that it is about."""
    shown = ", ".join(names[:NAMED_MAX])
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{text}: {shown}{more}"


def _adapt_vhost(value: Value, note: Note) -> Value:
    metadata = dict(value.get("metadata", {}))
    if metadata.pop("unknown_arguments", None) is not None:
        note("left out: unknown_arguments of virtual hosts", value["name"])
    return {**value, "metadata": metadata}


def _adapt_user(value: Value, note: Note) -> Value:
    limits = _adapt_limits(USER_LIMITS, value.get("limits", {}), value["name"], note)
    return {**value, "limits": limits}


def _adapt_limits(component: str, limits: Value, name: str, note: Note) -> Value:
    names = LIMITS[component]
    for limit in limits.keys() - names:
        note(f"left out: {limit} of {component.partition('-')[0]}s", name)
    return {limit: value for limit, value in limits.items() if limit in names}


def _adapt_parameter(value: Value, reader: Reader, note: Note) -> Value | None:
    component = value["component"]
    if component == VHOST_LIMITS:
        limits = _adapt_limits(component, value["value"], value.get("vhost", ""), note)
        return {**value, "value": limits} if limits else None
    if component == OPERATOR_COMPONENT:
        return _adapt_rule(value, value["value"], "value", reader, note)
    return value


def _adapt_policy(value: Value, reader: Reader, note: Note) -> Value | None:
    return _adapt_rule(value, value, "", reader, note)


def _adapt_rule(value: Value, rule: Value, field: str, reader: Reader, note: Note) -> Value | None:
    """Return an element with the keys of its policy that RabbitMQ has; None if none is left.

    ``rule`` is the policy: the element itself, or with ``field`` the value of a parameter, which is
    an operator policy.
    """
    name, target = value["name"], rule.get("apply-to", "all")
    kind = "operator policies" if field else "policies"
    if APPLY_TO_SINCE.get(target, (0, 0)) > reader.version:
        note(f"left out: {kind} for {target}, which it does not know", name)
        return None
    definition = {}
    for key, setting in rule["definition"].items():
        if KEYS_SINCE.get(key, (0, 0)) > reader.version or (field and key not in OPERATOR_KEYS):
            note(f"left out: {key} of {kind}", name)
        elif key == "overflow" and setting not in OVERFLOWS["classic"]:
            note(f"left out: overflow {setting} of {kind}", name)
        else:
            definition[key] = setting
    if not definition:
        return None
    policy = {**rule, "definition": definition}
    return {**value, field: policy} if field else policy


def _adapt_exchanges(
    values: list[Value], reader: Reader, note: Note, missing: set[tuple[str | None, str]]
) -> Iterator[Value]:
    for value in values:
        name, kind = value["name"], value["type"]
        plugin = EXCHANGE_PLUGINS.get(kind)
        since = EXCHANGE_SINCE.get(kind)
        is_type = kind in EXCHANGE_TYPES or plugin is not None or since is not None
        if not is_type or (plugin and not reader.plugins) or (since or (0, 0)) > reader.version:
            note(f"left out: exchanges of type {kind}", name)
            missing.add((value.get("vhost"), name))
            continue
        if plugin is not None:
            note(f"needs the plugin {plugin} there", name)
        for argument in sorted(value["arguments"].keys() - EXCHANGE_ARGUMENTS):
            note(f"without effect there: {argument} of exchanges", name)
        yield value


def _adapt_queue(value: Value, note: Note) -> Value:
    name, arguments = value["name"], dict(value["arguments"])
    kind = str(arguments.get("x-queue-type") or value.get("type", "classic"))
    for argument in sorted(arguments):
        if argument in ARGUMENTS[kind]:
            continue
        if argument in CATALOGUE:
            del arguments[argument]
            note(f"left out: {argument} of {kind} queues", name)
        elif argument not in QUEUE_ALIASES:  # The file has the argument of an alias, too.
            note(f"without effect there: {argument} of queues", name)
    overflow = arguments.get("x-overflow")
    if overflow is not None and overflow not in OVERFLOWS[kind]:
        del arguments["x-overflow"]
        note(f"left out: x-overflow {overflow} of {kind} queues", name)
    return {**value, "arguments": arguments}


def _adapt_bindings(
    values: list[Value], note: Note, missing: set[tuple[str | None, str]]
) -> Iterator[Value]:
    for value in values:
        vhost, source, destination = value.get("vhost"), value["source"], value["destination"]
        name = f"{source} -> {destination}"
        ends = {(vhost, source)}
        if value["destination_type"] == EXCHANGE:
            ends.add((vhost, destination))
        if ends & missing:
            note("left out: bindings of exchanges that are left out", name)
            continue
        assert value["destination_type"] in (EXCHANGE, QUEUE)
        for argument in sorted(value["arguments"].keys() & BINDING_ARGUMENTS):
            note(f"without effect there: {argument} of bindings", name)
        yield value


ADAPTED = {"vhosts": _adapt_vhost, "users": _adapt_user, "queues": _adapt_queue}
RULES = {"parameters": _adapt_parameter, "policies": _adapt_policy}
