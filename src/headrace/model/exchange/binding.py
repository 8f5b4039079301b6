# SPDX-License-Identifier: Apache-2.0
"""A binding from an exchange to a queue or another exchange.

`headrace.model.vhost.topology` adds and removes bindings; ``follow`` of
`headrace.model.vhost.virtual_host` routes through them, from exchange to exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from headrace.model.arguments.canonical import canonical, digest

if TYPE_CHECKING:
    from headrace.model.exchange.exchange import Exchange
    from headrace.model.queue.queue import Queue

QUEUE = "queue"
EXCHANGE = "exchange"

BindingDestination: TypeAlias = "Queue | Exchange"


def arguments_digest(arguments: Mapping[str, object] | None) -> str:
    """Return the digest of a binding's arguments in hexadecimal; "" without arguments."""
    return digest(canonical(arguments)).hex() if arguments else ""


class Binding:
    """A binding; equal if source, destination, routing key and arguments are equal."""

    __slots__ = ("_digest", "_hash", "arguments", "destination", "routing_key", "source")

    def __init__(
        self,
        source: Exchange,
        destination: BindingDestination,
        routing_key: str,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = arguments or None
        # Bindings are compared by digest, since there may be many, with long arguments.
        self._digest = digest(canonical(arguments)) if arguments else None
        self._hash = hash((id(source), id(destination), routing_key, self._digest))

    @property
    def arguments_digest(self) -> str:
        """The digest of the arguments in hexadecimal; "" without arguments."""
        return "" if self._digest is None else self._digest.hex()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Binding)
            and self.destination is other.destination
            and self.source is other.source
            and self.routing_key == other.routing_key
            and self._digest == other._digest
        )

    def __repr__(self) -> str:
        return f"<Binding {self.source.name!r} -> {self.destination.name!r} {self.routing_key!r}>"


BindingKey = TypeVar("BindingKey")
BindingEntry: TypeAlias = "Binding | dict[Binding, None]"


def add_binding(table: dict[BindingKey, BindingEntry], key: BindingKey, binding: Binding) -> None:
    """Add a binding under a key; a key with only one binding needs no dict."""
    entry = table.get(key)
    if entry is None:
        table[key] = binding
    elif isinstance(entry, dict):
        entry[binding] = None
    elif entry != binding:
        table[key] = {entry: None, binding: None}


def remove_binding(
    table: dict[BindingKey, BindingEntry], key: BindingKey, binding: Binding
) -> None:
    """Remove a binding from a key, and the key with its last binding."""
    entry = table.get(key)
    if isinstance(entry, dict):
        entry.pop(binding, None)
        if not entry:
            del table[key]
    elif entry is not None and entry == binding:
        del table[key]


def add_destinations(entry: BindingEntry | None, matched: dict[BindingDestination, None]) -> None:
    """Add the destinations of a key's bindings to ``matched``."""
    if entry is None:
        return
    if isinstance(entry, dict):
        for binding in entry:
            matched[binding.destination] = None
    else:
        matched[entry.destination] = None
