# SPDX-License-Identifier: Apache-2.0
"""What values are to a selector: numbers, strings, booleans, nothing, and others.

Only values of like types compare. Octets that are text are a string, for some clients write all
their strings so; a decimal is an approximate number; a moment is a number of milliseconds. Tables,
lists and other octets are there, but like nothing.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Protocol

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

NUMBER, STRING, BOOLEAN = 1, 2, 3
OTHER = 0

#: The kind of each type that :func:`plain` returns; what is not listed is OTHER.
KINDS: dict[type, int] = {int: NUMBER, float: NUMBER, str: STRING, bool: BOOLEAN}

_PLAIN = frozenset({int, float, str, bool, type(None)})


class Values(Protocol):
    """What a selector sees of a message: a mapping, as far as it needs one."""

    def get(self, name: str, /) -> object:
        """Return a property or header; None when there is none."""


class Other:
    """A value that is like no other."""

    __slots__ = ()


OPAQUE = Other()


def plain(value: object) -> object:
    """Return a value as selectors know it: int, float, str, bool, None or OPAQUE."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):  # A number of an uncommon width.
        return int(value)
    if isinstance(value, (float, Decimal)):
        return float(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return OPAQUE
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    return OPAQUE


def exact(value: int) -> int | None:
    """Return the result of exact arithmetic; None when no long holds it."""
    return value if LONG_MIN <= value <= LONG_MAX else None
