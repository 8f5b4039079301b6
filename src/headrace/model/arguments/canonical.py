# SPDX-License-Identifier: Apache-2.0
"""The canonical form of table values: values that are equal on the wire are equal in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

PLAIN_BYTES_MAX = 255  # A longer value is replaced by its digest.
DIGEST_SIZE = 16  # Bytes.

# The first item of a canonical tuple. The values are part of stored digests.
BOOLEAN = "b"
NUMBER = "n"
TABLE = "t"
ARRAY = "a"
DIGEST = "d"


def canonical(value: object) -> object:
    """Return a hashable form of a table value; values that are equal on the wire are equal.

    Numbers of all widths are equal by value, and so are strings and bytes; ``True`` is not 1.
    """
    if isinstance(value, bool):
        return (BOOLEAN, value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")  # A property may hold any bytes.
    if isinstance(value, datetime):
        return (NUMBER, int(value.timestamp()))
    if isinstance(value, bytes) or value is None:
        return value
    if isinstance(value, Mapping):
        return (TABLE, frozenset((key, canonical(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return (ARRAY, tuple(canonical(item) for item in value))
    return (NUMBER, value)


def canonical_or_digest(value: object) -> object:
    """Return the canonical form of a value, or a digest if that has over ``PLAIN_BYTES_MAX`` bytes.

    Tables and arrays always become digests.
    """
    plain = canonical(value)
    if isinstance(plain, tuple):
        return plain if plain[0] in (BOOLEAN, NUMBER) else (DIGEST, digest(plain))
    if isinstance(plain, bytes) and len(plain) > PLAIN_BYTES_MAX:
        return (DIGEST, digest(plain))
    return plain


def digest(plain: object) -> bytes:
    """Return a 16-byte digest of a canonical value."""
    data = b"s" + plain if isinstance(plain, bytes) else b"v" + canonical_text(plain).encode()
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE).digest()


def canonical_text(plain: object) -> str:
    """Return the text of a canonical value; the fields of a table are sorted."""
    if isinstance(plain, tuple):
        if plain[0] == TABLE:
            fields = sorted([f"{name!r}:{canonical_text(item)}" for name, item in plain[1]])
            return "{" + ",".join(fields) + "}"
        if plain[0] == NUMBER:
            return format_ratio(plain[1])
        if plain[0] == ARRAY:
            return "[" + ",".join([canonical_text(item) for item in plain[1]]) + "]"
    return repr(plain)


def format_ratio(number: object) -> str:
    """Return the text of a number, the same for equal numbers of all types."""
    if not isinstance(number, (int, float, Decimal)):
        return f"n{number!r}"
    try:
        numerator, denominator = number.as_integer_ratio()
    except (ArithmeticError, ValueError):  # Infinite, or not a number.
        return f"n{number!r}"
    return f"n{numerator}/{denominator}"
