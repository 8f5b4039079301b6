# SPDX-License-Identifier: Apache-2.0
"""Policies: settings of queues and exchanges whose names match a pattern.

A policy is a JSON value, as in RabbitMQ::

    {"pattern": "^orders", "definition": {"max-length": 1000}, "priority": 0, "apply-to": "queues"}

Of the policies that match an object, the one with the highest priority applies; of equal
priorities, the first by name. One operator policy, selected by the same rule, applies with it.
If both policies set the same key, the smaller of two limits counts; for any other key the operator
policy counts. The two policies complete the object's own arguments: the smaller of two limits
counts; for any other key the argument counts. For streams, and for the overflow of quorum queues,
the policies replace the arguments: see `KEYS`.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.model.arguments.values import QUEUE_ARGUMENTS, age_ms, number
from headrace.model.errors import InvalidArgument
from headrace.model.policy.name_patterns import NamePattern

if TYPE_CHECKING:
    from headrace.model.policy.parameters import Json

log = logging.getLogger(__name__)

NAME_BYTES_MAX = 255
KEYS_MAX = 64  # Keys of one policy.
KEY_CHARACTERS_MATCHED = 64  # Characters of a misspelt key.
DEFINITION_CHARACTERS_MAX = 65536
POLICIES_MAX = 1024  # Policies of one virtual host, and as many operator policies.
PRIORITY_MAX = (1 << 31) - 1

COMPONENT = "policy"
OPERATOR_COMPONENT = "operator_policy"

CLASSIC, QUORUM, STREAM, EXCHANGE = "classic", "quorum", "stream", "exchange"
QUEUES = frozenset({CLASSIC, QUORUM, STREAM})
APPLY_TO: dict[str, frozenset[str]] = {
    "all": QUEUES | {EXCHANGE},
    "queues": QUEUES,
    "classic_queues": frozenset({CLASSIC}),
    "quorum_queues": frozenset({QUORUM}),
    "streams": frozenset({STREAM}),
    "exchanges": frozenset({EXCHANGE}),
}


class PolicyKey(NamedTuple):
    """A key of a policy's definition and the argument it sets."""

    argument: str
    kinds: frozenset[str]  # Kinds of object it applies to.
    limit: bool = False  # True if the smaller value counts.
    overrides: frozenset[str] = frozenset()  # Kinds whose own argument a policy overrides.


_MESSAGES = frozenset({CLASSIC, QUORUM})
_STREAMS = frozenset({STREAM})

KEYS: dict[str, PolicyKey] = {
    "message-ttl": PolicyKey("x-message-ttl", _MESSAGES, True),
    "expires": PolicyKey("x-expires", _MESSAGES, True),
    "max-length": PolicyKey("x-max-length", _MESSAGES, True),
    "max-length-bytes": PolicyKey("x-max-length-bytes", QUEUES, True, _STREAMS),
    "overflow": PolicyKey("x-overflow", _MESSAGES, False, frozenset({QUORUM})),
    "dead-letter-exchange": PolicyKey("x-dead-letter-exchange", _MESSAGES),
    "dead-letter-routing-key": PolicyKey("x-dead-letter-routing-key", _MESSAGES),
    "dead-letter-strategy": PolicyKey("x-dead-letter-strategy", _MESSAGES),
    "delivery-limit": PolicyKey("x-delivery-limit", _MESSAGES, True),
    "consumer-timeout": PolicyKey("x-consumer-timeout", _MESSAGES, True),
    "delayed-retry-type": PolicyKey("x-delayed-retry-type", _MESSAGES),
    "delayed-retry-min": PolicyKey("x-delayed-retry-min", _MESSAGES),
    "delayed-retry-max": PolicyKey("x-delayed-retry-max", _MESSAGES),
    "delayed-retry-multiplier": PolicyKey("x-delayed-retry-multiplier", _MESSAGES),
    "qpid.flow_stop_count": PolicyKey("qpid.flow_stop_count", _MESSAGES, True),
    "qpid.flow_stop_size": PolicyKey("qpid.flow_stop_size", _MESSAGES, True),
    "qpid.flow_resume_count": PolicyKey("qpid.flow_resume_count", _MESSAGES, True),
    "qpid.flow_resume_size": PolicyKey("qpid.flow_resume_size", _MESSAGES, True),
    "qpid.alert_count": PolicyKey("qpid.alert_count", _MESSAGES, True),
    "qpid.alert_size": PolicyKey("qpid.alert_size", _MESSAGES, True),
    "qpid.alert_repeat_gap": PolicyKey("qpid.alert_repeat_gap", _MESSAGES),
    "qpid-maximum-message-age": PolicyKey("x-qpid-maximum-message-age", _MESSAGES, True),
    "max-age": PolicyKey("x-max-age", _STREAMS, True, _STREAMS),
    "stream-max-segment-size-bytes": PolicyKey(
        "x-stream-max-segment-size-bytes", _STREAMS, False, _STREAMS
    ),
    "local-max-length-bytes": PolicyKey("x-local-max-length-bytes", _STREAMS, True, _STREAMS),
    "local-max-age": PolicyKey("x-local-max-age", _STREAMS, True, _STREAMS),
    "alternate-exchange": PolicyKey("alternate-exchange", frozenset({EXCHANGE})),
}

#: Texts for operators, by the beginning of an argument's error.
ERROR_TEXTS = {
    "{value_negative": "{} is negative",
    "{value_zero": "0 is too small",
    "{value_too_large": "{} is too large",
    "{max_value_exceeded": "{} is too large",
    '"expected integer': "a whole number is needed, not {!r:.64}",
    "{unacceptable_type": "{!r:.64} is of the wrong type",
}
LOGGED_MAX = 1024  # The most keys without effect that one process logs.
#: Keys without effect here: clusters, federation, memory settings of other brokers.
HARMLESS = frozenset(
    {
        "consumer-disconnected-timeout",
        "federation-upstream",
        "federation-upstream-pattern",
        "federation-upstream-set",
        "ha-mode",
        "ha-params",
        "ha-promote-on-failure",
        "ha-promote-on-shutdown",
        "ha-sync-batch-size",
        "ha-sync-mode",
        "initial-cluster-size",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "queue-leader-locator",
        "queue-master-locator",
        "queue-mode",
        "queue-version",
        "shards-per-node",
        "stream-filter-size-bytes",
        "target-group-size",
    }
)


_logged: set[tuple[str, str]] = set()


class Policy(NamedTuple):
    """A policy; ``arguments`` is its definition as queue or exchange arguments."""

    name: str
    pattern: NamePattern
    priority: int
    kinds: frozenset[str]
    arguments: dict[str, object]


def read_policy(name: str, value: object) -> Policy:
    """Read a policy from JSON.

    Raises:
        InvalidArgument: the policy is malformed, or contradicts itself.
    """
    if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX or not name.isprintable():
        raise InvalidArgument(f"the name of a policy may have at most {NAME_BYTES_MAX} bytes")
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"policy '{name}' is not an object")
    unknown_fields = set(value) - {"pattern", "definition", "priority", "apply-to", "vhost", "name"}
    if unknown_fields:
        raise InvalidArgument(f"policy '{name}' has the unknown field '{min(unknown_fields)}'")
    text = value.get("pattern")
    if not isinstance(text, str):
        raise InvalidArgument(f"policy '{name}' has no pattern")
    priority = value.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > PRIORITY_MAX:
        raise InvalidArgument(
            f"the priority of policy '{name}' must be a whole number of at most {PRIORITY_MAX}, "
            f"not {priority!r:.64}"
        )
    target = value.get("apply-to", "all")
    kinds = APPLY_TO.get(target) if isinstance(target, str) else None
    if kinds is None:
        choices = ", ".join(APPLY_TO)
        raise InvalidArgument(
            f"policy '{name}' applies to {target!r:.64}, which is not one of {choices}"
        )
    definition = value.get("definition")
    if not isinstance(definition, Mapping) or not definition:
        raise InvalidArgument(f"policy '{name}' has no definition")
    if len(definition) > KEYS_MAX:
        raise InvalidArgument(f"policy '{name}' has more than {KEYS_MAX} keys")
    return Policy(name, NamePattern(text), priority, kinds, _arguments(name, definition, kinds))


def _arguments(
    name: str, definition: Mapping[str, object], kinds: frozenset[str]
) -> dict[str, object]:
    """Check a policy's definition, and return it as arguments."""
    arguments: dict[str, object] = {}
    for key, value in definition.items():
        if key in HARMLESS:
            if (name, key) not in _logged and len(_logged) < LOGGED_MAX:  # Log each key once.
                _logged.add((name, key))
                log.warning("policy %r: %r has no effect on this broker", name, key)
            continue
        policy_key = KEYS.get(key)
        if policy_key is None or policy_key.argument not in QUEUE_ARGUMENTS:
            raise InvalidArgument(f"policy '{name}': {unknown_key(str(key))}")
        if not policy_key.kinds & kinds:
            raise InvalidArgument(
                f"policy '{name}': '{key}' has no meaning for what the policy applies to"
            )
        arguments[policy_key.argument] = value
    # A routing key may rely on the queue's own dead-letter exchange.
    context = {"x-dead-letter-exchange": "", **arguments}
    for argument, value in arguments.items():
        error = QUEUE_ARGUMENTS[argument](value, context)
        if error is not None:
            key = next(key for key, policy_key in KEYS.items() if policy_key.argument == argument)
            term = ERROR_TEXTS.get(error.partition(",")[0])
            text = error if term is None else term.format(value)
            raise InvalidArgument(f"policy '{name}': invalid value of '{key}': {text}")
    flaw = contradiction(arguments)
    if flaw:
        raise InvalidArgument(f"policy '{name}': {flaw}")
    return arguments


def unknown_key(name: str) -> str:
    """Return the error text for an unknown policy key, with the closest known key."""
    close = difflib.get_close_matches(name[:KEY_CHARACTERS_MATCHED], KEYS, 1)
    meant = f"; did you mean '{close[0]}'?" if close else ""
    return f"unknown policy key '{name:.255}'{meant}"


def contradiction(arguments: Mapping[str, object]) -> str:
    """Return the error text for settings that contradict each other; "" if none do."""
    if (
        arguments.get("x-dead-letter-strategy") == "at-least-once"
        and arguments.get("x-overflow") == "drop-head"
    ):
        return "at-least-once dead-lettering contradicts overflow drop-head, which loses messages"
    low, high = arguments.get("x-delayed-retry-min"), arguments.get("x-delayed-retry-max")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        return "delayed-retry-min is greater than delayed-retry-max"
    for measure in ("count", "size"):
        stop = number(arguments.get(f"qpid.flow_stop_{measure}", 0))
        if stop and number(arguments.get(f"qpid.flow_resume_{measure}", 0)) > stop:
            return f"qpid.flow_resume_{measure} is greater than qpid.flow_stop_{measure}"
    return ""


_LIMITS = frozenset(policy_key.argument for policy_key in KEYS.values() if policy_key.limit)
_THRESHOLDS = frozenset(
    policy_key.argument
    for name, policy_key in KEYS.items()
    if policy_key.limit and name.startswith("qpid")
)


def _stricter(argument: str, limit: object, other_limit: object) -> object:
    """Return the stricter of two limits; a negative limit means no limit."""
    is_age = argument in ("x-max-age", "x-local-max-age")
    first, second = [(age_ms(str(v)) or -1) if is_age else number(v) for v in (limit, other_limit)]
    if argument in _THRESHOLDS:  # 0 means no limit for a threshold.
        first, second = first or -1, second or -1
    if first < 0 or second < 0:
        return other_limit if first < 0 else limit
    return limit if first <= second else other_limit


def merge(weaker: Mapping[str, object], stronger: Mapping[str, object]) -> dict[str, object]:
    """Return the union: the smaller of two limits, and ``stronger``'s value of any other key."""
    union = {**weaker, **stronger}
    for argument in _LIMITS & weaker.keys() & stronger.keys():
        union[argument] = _stricter(argument, weaker[argument], stronger[argument])
    return union


def complete(
    kind: str, settings: Mapping[str, object], arguments: Mapping[str, object]
) -> dict[str, object]:
    """Return the arguments of an object of this kind, completed by the settings of policies."""
    arguments_set = merge(settings, arguments)
    for argument in _OVERRIDDEN.get(kind, frozenset()) & settings.keys():
        arguments_set[argument] = settings[argument]
    return arguments_set


class Policies:
    """The policies and operator policies of one virtual host."""

    def __init__(
        self,
        policies: Mapping[str, Json] | None = None,
        operator: Mapping[str, Json] | None = None,
    ) -> None:
        """Read JSON values by name; malformed ones are logged and omitted."""
        #: The policies and operator policies by name, as users wrote them.
        self.values = (dict(policies or {}), dict(operator or {}))
        self.policies = _sorted_policies(policies or {}, "policy")
        self.operator = _sorted_policies(operator or {}, "operator policy")

    def __bool__(self) -> bool:
        return bool(self.policies or self.operator)

    def same(self, other: Policies) -> bool:
        """Return True if both have the same definitions."""
        return self.values == other.values

    def matching(self, kind: str, name: str) -> tuple[Policy | None, Policy | None]:
        """Return the policy and operator policy that apply to an object."""
        return _first_match(self.policies, kind, name), _first_match(self.operator, kind, name)

    def settings(self, kind: str, name: str) -> dict[str, object]:
        """Return the settings of the policies for an object, as arguments."""
        policy, operator = self.matching(kind, name)
        settings = merge(
            policy.arguments if policy is not None else {},
            operator.arguments if operator is not None else {},
        )
        return {
            argument: value
            for argument, value in settings.items()
            if kind in _KINDS_BY_ARGUMENT[argument]
        }


_KINDS_BY_ARGUMENT = {policy_key.argument: policy_key.kinds for policy_key in KEYS.values()}
_OVERRIDDEN = {
    kind: frozenset(
        policy_key.argument for policy_key in KEYS.values() if kind in policy_key.overrides
    )
    for kind in QUEUES
}


def _sorted_policies(values: Mapping[str, object], kind: str) -> tuple[Policy, ...]:
    policies = []
    for name, value in list(values.items())[:POLICIES_MAX]:
        try:
            policies.append(read_policy(name, value))
        except InvalidArgument as error:
            log.error("%s", error.text)
    if len(values) > POLICIES_MAX:
        log.error(
            "%d of %s are more than %d: the rest is ignored",
            len(values),
            kind,
            POLICIES_MAX,
        )
    return tuple(sorted(policies, key=lambda policy: (-policy.priority, policy.name)))


def _first_match(policies: tuple[Policy, ...], kind: str, name: str) -> Policy | None:
    for policy in policies:
        if kind in policy.kinds and policy.pattern.matches(name):
            return policy
    return None
