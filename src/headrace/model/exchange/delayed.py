# SPDX-License-Identifier: Apache-2.0
"""The exchange type ``x-delayed-message``, which routes as the type in its argument.

It adds no delay itself: a message with the header ``x-delay`` waits whatever exchange it was
published to (:mod:`headrace.model.queue_kinds.delayed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Unpack

from headrace.model.arguments.exchange import anything
from headrace.model.errors import PreconditionFailed
from headrace.model.exchange.exchange import Exchange, ExchangeProperties, Headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.exchange.binding import Binding, Destination

ROUTES_AS = "x-delayed-type"

Kind = type[Exchange]


class DelayedExchange(Exchange):
    """Delegates routing to an exchange of another type."""

    type = "x-delayed-message"
    types: ClassVar[Mapping[str, Kind]] = {}  # Types that it may route as.

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self._inner = self.routes_as(self.arguments)(name, **properties)
        self.cacheable = self._inner.cacheable
        self.reads_arguments = self._inner.reads_arguments
        self.selects = self._inner.selects

    @classmethod
    def join(cls, types: Mapping[str, Kind]) -> None:
        """Allow routing as these types, and accept their arguments."""
        cls.types = {name: kind for name, kind in types.items() if kind is not cls}
        cls.arguments_known = {ROUTES_AS: anything}
        for kind in cls.types.values():
            cls.arguments_known = {**cls.arguments_known, **kind.arguments_known}

    @classmethod
    def routes_as(cls, arguments: Mapping[str, object]) -> Kind:
        """Return the type that the arguments name.

        Raises:
            PreconditionFailed: the arguments name no exchange type.
        """
        name = arguments.get(ROUTES_AS)
        kind = cls.types.get(name) if isinstance(name, str) else None
        if kind is None:
            raise PreconditionFailed(
                f"Invalid argument, '{ROUTES_AS}' must be an existing exchange type"
            )
        return kind

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, object], subject: str) -> None:
        """Check the arguments of the type that is routed as."""
        cls.routes_as(arguments).check_arguments(arguments, subject)

    def check(self, routing_key: str, arguments: Mapping[str, object]) -> None:
        self._inner.check(routing_key, arguments)

    def check_destination(self, destination: Destination) -> None:
        self._inner.check_destination(destination)

    def match(self, routing_key: str, headers: Headers, into: dict[Destination, None]) -> None:
        self._inner.match(routing_key, headers, into)

    def index_memory(self, binding: Binding) -> int:
        return self._inner.binding_memory(binding)

    def _index(self, binding: Binding) -> None:
        self._inner.bind(binding)

    def _forget(self, binding: Binding) -> None:
        self._inner.unbind(binding)
