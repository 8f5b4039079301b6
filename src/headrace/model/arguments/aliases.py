# SPDX-License-Identifier: Apache-2.0
"""What other brokers call the arguments of queues that we have too.

An argument under such a name is understood as ours: units and values are brought to what
:mod:`headrace.model.arguments.values` knows. The name that a client gave is kept beside it, so that
it finds what it declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.model.arguments.number import number_of

Read = Callable[[object], object]  # None when the value asks for what every queue does anyway.


class Alias(NamedTuple):
    """Our name, and how a value is read; ``read`` raises ValueError when it is wrong."""

    name: str
    read: Read


def _number(value: object) -> int:
    """A number; the field's address strings have them in quotes."""
    number = number_of(value)
    if number is None:
        raise ValueError("expected a number")
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def _seconds(value: object) -> int | None:
    """Seconds as milliseconds; 0 is none."""
    return _number(value) * 1000 or None


def _deliveries(value: object) -> int | None:
    """How often a message may be delivered, as how often it may come back; 0 is for ever."""
    return _number(value) - 1 if _number(value) else None


_POLICIES = {
    "ring": "drop-head",
    "ring_strict": "ring-strict",
    "self-destruct": "self-destruct",
    "reject": "reject-publish",
    "flow_to_disk": "flow-to-disk",
    "paging": "flow-to-disk",
    "producer_flow_control": "flow-control",
    "none": "none",
}


def _policy(value: object) -> str | None:
    name = value.lower() if isinstance(value, str) else value
    if name not in _POLICIES:
        raise ValueError(f"expected one of {', '.join(_POLICIES)}")
    return _POLICIES[name]


def _same(value: object) -> object:
    return value


#: What an exchange's alternate is called: our name first, which counts where several are given.
ALTERNATES = ("alternate-exchange", "x-alternate-exchange", "alternateExchange")

QUEUE_ALIASES: dict[str, Alias] = {
    "qpid.max_count": Alias("x-max-length", _number),
    "qpid.max_size": Alias("x-max-length-bytes", _number),
    "qpid.policy_type": Alias("x-overflow", _policy),
    "qpid.auto_delete_timeout": Alias("x-expires", _seconds),
    "x-qpid-priorities": Alias("qpid.priorities", _number),
    "x-qpid-maximum-delivery-count": Alias("x-delivery-limit", _deliveries),
    **{f"x-qpid-fairshare-{n}": Alias(f"qpid.fairshare-{n}", _number) for n in range(10)},
    "alternateExchange": Alias("alternate-exchange", _same),
    "x-alternate-exchange": Alias("alternate-exchange", _same),
}


def translated(
    arguments: Mapping[str, object],
    aliases: Mapping[str, Alias],
    wrong: Callable[[str, str], None],
    contradicts: Callable[[str, str], None],
) -> dict[str, object]:
    """Return the arguments with ours for those that have another name.

    ``wrong(name, text)`` is told of values that make no sense, and ``contradicts(name, ours)`` of
    those that another argument contradicts; what they do not refuse is left out.
    """
    found = dict(arguments)
    for name in [name for name in arguments if name in aliases]:
        alias = aliases[name]
        try:
            value = alias.read(arguments[name])
        except ValueError as error:
            wrong(name, str(error))
            continue
        if value is None:
            continue
        known = found.setdefault(alias.name, value)
        if known != value:
            contradicts(name, alias.name)
    return found
