# SPDX-License-Identifier: Apache-2.0
"""Canonical form of table values: equal on the wire means equal in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

SHORT_MAX = 255  # Bytes of a value beyond which :func:`short` returns a digest.
DIGEST_SIZE = 16  # Bytes.


def canonical(value: object) -> object:
    """Return a hashable form of a table value; values that are equal on the wire are equal.

    Numbers of all widths are equal by value, and so are strings and bytes; ``True`` is not 1.
    """
    if isinstance(value, bool):
        return ("b", value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")  # A property may hold any bytes.
    if isinstance(value, datetime):
        return ("n", int(value.timestamp()))
    if isinstance(value, bytes) or value is None:
        return value
    if isinstance(value, Mapping):
        return ("t", frozenset((key, canonical(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return ("a", tuple(canonical(item) for item in value))
    return ("n", value)


def short(value: object) -> object:
    """Return the canonical form of a value, or a digest if it is long.

    At most ``SHORT_MAX`` bytes are kept of any value.
    """
    plain = canonical(value)
    if isinstance(plain, tuple):
        return plain if plain[0] in "bn" else ("d", digest(plain))
    if isinstance(plain, bytes) and len(plain) > SHORT_MAX:
        return ("d", digest(plain))
    return plain


def digest(plain: object) -> bytes:
    """Return a 16-byte digest of a canonical value."""
    data = b"s" + plain if isinstance(plain, bytes) else b"v" + canonical_text(plain).encode()
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE).digest()


def canonical_text(plain: object) -> str:
    """Return the text of a canonical value; the fields of a table are sorted."""
    if isinstance(plain, tuple):
        if plain[0] == "t":
            return (
                "{"
                + ",".join(sorted([f"{key!r}:{canonical_text(v)}" for key, v in plain[1]]))
                + "}"
            )
        if plain[0] == "n":
            return ratio(plain[1])
        if plain[0] == "a":
            return "[" + ",".join([canonical_text(v) for v in plain[1]]) + "]"
    return repr(plain)


def ratio(number: object) -> str:
    """Return the text of a number, the same for equal numbers of all types."""
    if not isinstance(number, (int, float, Decimal)):
        return f"n{number!r}"
    try:
        upper, lower = number.as_integer_ratio()
    except (ArithmeticError, ValueError):  # Infinite, or not a number.
        return f"n{number!r}"
    return f"n{upper}/{lower}"
