# SPDX-License-Identifier: Apache-2.0
"""The direct exchange, and the default exchange: routing by the exact key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from headrace.model.exchange.binding import add_binding, add_destinations, remove_binding
from headrace.model.exchange.exchange import Exchange, ExchangeProperties, Headers
from headrace.model.exchange.super_stream import SUPER_STREAM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.exchange.binding import Binding, BindingDestination, BindingEntry
    from headrace.model.queue.queue import Queue


# Keeps 0-9-1/s069, 0-9/queue.bind.routing-key#direct-exchange-key-matching.
class DirectExchange(Exchange):
    """Matches bindings whose key equals the routing key."""

    type = "direct"
    ignored_arguments = (SUPER_STREAM,)
    supports_selectors = True
    unindexes_later = True

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self._keys: dict[str, BindingEntry] = {}

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        add_destinations(self._keys.get(routing_key), matched)

    def _add_to_index(self, binding: Binding) -> None:
        add_binding(self._keys, binding.routing_key, binding)

    def _remove_from_index(self, binding: Binding) -> None:
        remove_binding(self._keys, binding.routing_key, binding)


# Keeps 0-9-1/queue.declare#01, 0-9/queue.declare#default-binding, 0-10/s176.
class DefaultExchange(Exchange):
    """The exchange without a name: the routing key is a queue's name."""

    type = "direct"

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        super().__init__("", durable=True)
        self._queues = queues

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        queue = self._queues.get(routing_key)
        if queue is not None and not queue.is_hidden:
            matched[queue] = None

    def _add_to_index(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings of its own")

    def _remove_from_index(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings of its own")
