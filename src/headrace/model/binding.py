# SPDX-License-Identifier: Apache-2.0
"""A binding: from an exchange to a queue or to another exchange."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from headrace.model.exchange import Exchange
    from headrace.model.queue import Queue

QUEUE = "queue"
EXCHANGE = "exchange"
SHORT_MAX = 255  # Octets of a value that are kept as they are, instead of
DIGEST_SIZE = 16  # a digest of so many.

Destination: TypeAlias = "Queue | Exchange"


def canonical(value: Any) -> Any:
    """Return a hashable form of a table value in which equal values of the wire are equal.

    Numbers of all widths are one class, and so are strings and octets; ``True`` is not 1.
    """
    if isinstance(value, bool):
        return ("b", value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime):
        return ("n", int(value.timestamp()))
    if isinstance(value, bytes) or value is None:
        return value
    if isinstance(value, Mapping):
        return ("t", frozenset((key, canonical(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return ("a", tuple(canonical(item) for item in value))
    return ("n", value)


def short(value: Any) -> Any:
    """Return what stands for a value in memory: its canonical form, or a digest of a long one.

    Whatever a client writes, no more than ``SHORT_MAX`` octets of it are kept.
    """
    plain = canonical(value)
    if isinstance(plain, tuple):
        return plain if plain[0] in "bn" else ("d", digest(plain))
    return plain if plain is None or len(plain) <= SHORT_MAX else ("d", digest(plain))


def digest(plain: Any) -> bytes:
    """Return 16 octets that stand for a canonical value."""
    octets = b"s" + plain if isinstance(plain, bytes) else b"v" + written(plain).encode()
    return hashlib.blake2b(octets, digest_size=DIGEST_SIZE).digest()


def written(plain: Any) -> str:
    """Return the one text of a canonical value; the fields of a table have no order."""
    if isinstance(plain, tuple):
        if plain[0] == "t":
            return "{" + ",".join(sorted([f"{key!r}:{written(v)}" for key, v in plain[1]])) + "}"
        if plain[0] == "n":
            return ratio(plain[1])
        if plain[0] == "a":
            return "[" + ",".join([written(v) for v in plain[1]]) + "]"
    return repr(plain)


def ratio(number: Any) -> str:
    """Return the one text of a number, whichever type it has."""
    try:
        upper, lower = number.as_integer_ratio()
    except (ArithmeticError, ValueError):  # Infinite, or no number at all.
        return f"n{number!r}"
    return f"n{upper}/{lower}"


class Binding:
    """One binding; two are equal when source, destination, routing key and arguments are."""

    __slots__ = ("_hash", "_print", "arguments", "destination", "routing_key", "source")

    def __init__(
        self,
        source: Exchange,
        destination: Destination,
        routing_key: str,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = arguments or None
        # Not the arguments again: of bindings there may be many, and their arguments are long.
        self._print = digest(canonical(arguments)) if arguments else None
        self._hash = hash((id(source), id(destination), routing_key, self._print))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Binding)
            and self.destination is other.destination
            and self.source is other.source
            and self.routing_key == other.routing_key
            and self._print == other._print
        )

    def __repr__(self) -> str:
        return f"<Binding {self.source.name!r} -> {self.destination.name!r} {self.routing_key!r}>"


Held: TypeAlias = "Binding | dict[Binding, None]"


def hold(table: dict[Any, Held], key: Any, binding: Binding) -> None:
    """Add a binding under a key; a key with one binding, the usual case, costs no dict."""
    held = table.get(key)
    if held is None:
        table[key] = binding
    elif isinstance(held, dict):
        held[binding] = None
    elif held != binding:
        table[key] = {held: None, binding: None}


def drop(table: dict[Any, Held], key: Any, binding: Binding) -> None:
    """Remove a binding from under a key; the key goes with its last binding."""
    held = table.get(key)
    if isinstance(held, dict):
        held.pop(binding, None)
        if not held:
            del table[key]
    elif held is not None and held == binding:
        del table[key]


def destinations(held: Held | None, into: dict[Destination, None]) -> None:
    """Add where the bindings under one key lead."""
    if held is None:
        return
    if isinstance(held, dict):
        for binding in held:
            into[binding.destination] = None
    else:
        into[held.destination] = None
