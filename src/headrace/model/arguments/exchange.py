# SPDX-License-Identifier: Apache-2.0
"""Checks of exchange arguments; each returns the error of a value, or None."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.values import Check, parse_integer, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def anything(value: object, arguments: Mapping[str, object]) -> str | None:
    """Accept any value: the exchange checks it."""
    return None


def string(value: object, arguments: Mapping[str, object]) -> str | None:
    """Accept a string."""
    return None if isinstance(value, str) else f"{{unacceptable_type,{type_name(value)}}}"


def one_of(values: Iterable[str], otherwise: str) -> Check:
    """Accept one of ``values``; ``otherwise`` is the error, with ``{}`` for the value."""
    allowed = frozenset(values)

    def check(value: object, arguments: Mapping[str, object]) -> str | None:
        error = string(value, arguments)
        return otherwise.format(value) if error is None and value not in allowed else error

    return check


def switch(value: object, arguments: Mapping[str, object]) -> str | None:
    """Accept a boolean, 0 or 1."""
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return None
    return f"{{unacceptable_type,{type_name(value)}}}"


def whole_number(low: int, high: int) -> Check:
    """Accept an integer within bounds; some clients send it as text."""

    def check(value: object, arguments: Mapping[str, object]) -> str | None:
        number = parse_integer(value)
        if number is None:
            return f'"expected integer, got {type_name(value)}"'
        if number < low:
            return f"{{value_too_small,{number}}}"
        return f"{{max_value_exceeded,{number}}}" if number > high else None

    return check
