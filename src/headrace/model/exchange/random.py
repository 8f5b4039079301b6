# SPDX-License-Identifier: Apache-2.0
"""Exchanges that pick one destination at random."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Unpack

from headrace.model.arguments.memory_estimate import EXCHANGE
from headrace.model.errors import InvalidArgument
from headrace.model.exchange.exchange import Exchange, ExchangeProperties, Headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.exchange.binding import Binding, BindingDestination


class RandomExchange(Exchange):
    """Picks any of its bindings, whatever the routing key."""

    type = "x-random"
    cacheable = False
    own_memory = EXCHANGE + 2800  # Includes the state of the random generator.

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self.random = random.Random()  # noqa: S311 - it spreads load, and protects nothing
        self._list: list[Binding] | None = None

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        if self._list is None:
            self._list = list(self.bindings)
        if self._list:
            matched[self._list[self.random.randrange(len(self._list))].destination] = None

    def _add_to_index(self, binding: Binding) -> None:
        self._list = None

    def _remove_from_index(self, binding: Binding) -> None:
        self._list = None


class LocalRandomExchange(RandomExchange):
    """A random exchange of classic queues bound with an empty key.

    All queues of a virtual host are at its owner, and so are local.
    """

    type = "x-local-random"

    def check(self, routing_key: str, arguments: Mapping[str, object]) -> None:
        if routing_key:
            raise InvalidArgument(f"Non empty binding '{routing_key}' key not permitted")

    def check_destination(self, destination: BindingDestination) -> None:
        if isinstance(destination, Exchange):
            raise InvalidArgument("Destination not found")
        kind = destination.arguments.get("x-queue-type", "classic")
        if kind != "classic":
            raise InvalidArgument(
                f"Queue type rabbit_{kind}_queue not valid for this exchange type"
            )
