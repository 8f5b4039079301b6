# SPDX-License-Identifier: Apache-2.0
"""The types of values in selectors: numbers, strings, booleans, null, others.

Only values of the same type compare. Bytes in UTF-8 count as a string, since some clients send all
strings as bytes. A decimal is a float, and a timestamp is a number of milliseconds. Tables, arrays
and other bytes exist, but equal no value.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Protocol

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

NUMBER, STRING, BOOLEAN = 1, 2, 3
OTHER = 0

#: The selector type of each Python type that :func:`plain` returns; all others are OTHER.
KINDS: dict[type, int] = {int: NUMBER, float: NUMBER, str: STRING, bool: BOOLEAN}

_PLAIN = frozenset({int, float, str, bool, type(None)})


class Values(Protocol):
    """The values of a message as a selector reads them: the ``get`` of a mapping."""

    def get(self, name: str, /) -> object:
        """Return a property or header; None if there is none."""


class OpaqueValue:
    """A value that equals no other."""

    __slots__ = ()


OPAQUE = OpaqueValue()


def plain(value: object) -> object:
    """Return a value as selectors compare it: int, float, str, bool, None or OPAQUE."""
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
    """Return the result of integer arithmetic; None if it overflows a long."""
    return value if LONG_MIN <= value <= LONG_MAX else None
