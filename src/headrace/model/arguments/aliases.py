# SPDX-License-Identifier: Apache-2.0
"""Queue arguments that other brokers name differently.

An alias is translated to Headrace's argument, with the units and values of
:mod:`headrace.model.arguments.values`. The client's argument is also stored, so that a second
declaration matches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.model.arguments.values import parse_integer

Read = Callable[[object], object]  # Converts a value; returns None for the default.


class Alias(NamedTuple):
    """Headrace's name of an argument; ``read`` converts a value, or raises ValueError."""

    name: str
    read: Read


def _number(value: object) -> int:
    """Return a number; Qpid's address strings quote numbers."""
    number = parse_integer(value)
    if number is None:
        raise ValueError("expected a number")
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def _seconds(value: object) -> int | None:
    """Convert seconds to milliseconds; 0 becomes None."""
    return _number(value) * 1000 or None


def _deliveries(value: object) -> int | None:
    """Convert a maximum of deliveries to a limit of redeliveries; 0 (no limit) becomes None."""
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


#: Names of an exchange's alternate; the first name that is present counts.
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


def translate_aliases(
    arguments: Mapping[str, object],
    aliases: Mapping[str, Alias],
    refuse_malformed: Callable[[str, str], None],
    refuse_contradiction: Callable[[str, str], None],
) -> dict[str, object]:
    """Return the arguments with Headrace's argument added for each alias.

    ``refuse_malformed(name, text)`` is called for malformed values, and
    ``refuse_contradiction(name, ours)`` for values that another argument contradicts. If they do
    not raise, the alias is omitted.
    """
    all_arguments = dict(arguments)
    for name in [name for name in arguments if name in aliases]:
        alias = aliases[name]
        try:
            value = alias.read(arguments[name])
        except ValueError as error:
            refuse_malformed(name, str(error))
            continue
        if value is None:
            continue
        current = all_arguments.setdefault(alias.name, value)
        if current != value:
            refuse_contradiction(name, alias.name)
    return all_arguments
