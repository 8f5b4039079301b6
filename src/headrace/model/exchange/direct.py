# SPDX-License-Identifier: Apache-2.0
"""The direct exchange, and the default exchange: routing by the exact key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from headrace.model.exchange.binding import add_binding, destinations, remove_binding
from headrace.model.exchange.exchange import Exchange, ExchangeProperties, Headers
from headrace.model.exchange.super_stream import SUPER_STREAM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.exchange.binding import Binding, Bound, Destination
    from headrace.model.queue.queue import Queue


# Keeps 0-9-1/s069, 0-9/queue.bind.routing-key#direct-exchange-key-matching.
class DirectExchange(Exchange):
    """Matches bindings whose key equals the routing key."""

    type = "direct"
    hints = (SUPER_STREAM,)
    selects = True
    lingers = True

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self._keys: dict[str, Bound] = {}

    def match(self, routing_key: str, headers: Headers, into: dict[Destination, None]) -> None:
        destinations(self._keys.get(routing_key), into)

    def _index(self, binding: Binding) -> None:
        add_binding(self._keys, binding.routing_key, binding)

    def _forget(self, binding: Binding) -> None:
        remove_binding(self._keys, binding.routing_key, binding)


# Keeps 0-9-1/queue.declare#01, 0-9/queue.declare#default-binding, 0-10/s176.
class DefaultExchange(Exchange):
    """The exchange without a name: the routing key is a queue's name."""

    type = "direct"

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        super().__init__("", durable=True)
        self._queues = queues

    def match(self, routing_key: str, headers: Headers, into: dict[Destination, None]) -> None:
        queue = self._queues.get(routing_key)
        if queue is not None and not queue.is_hidden:
            into[queue] = None

    def _index(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings of its own")

    def _forget(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings of its own")
