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

    from headrace.model.exchange.binding import Binding, BindingDestination

INNER_TYPE = "x-delayed-type"

Kind = type[Exchange]


class DelayedExchange(Exchange):
    """Delegates routing to an exchange of another type."""

    type = "x-delayed-message"
    types: ClassVar[Mapping[str, Kind]] = {}  # Types that it may delegate to.

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self._inner = self.inner_type(self.arguments)(name, **properties)
        self.cacheable = self._inner.cacheable
        self.reads_arguments = self._inner.reads_arguments
        self.supports_selectors = self._inner.supports_selectors

    @classmethod
    def register_types(cls, types: Mapping[str, Kind]) -> None:
        """Register the types that may route, and accept their arguments."""
        cls.types = {name: kind for name, kind in types.items() if kind is not cls}
        cls.arguments_known = {INNER_TYPE: anything}
        for kind in cls.types.values():
            cls.arguments_known = {**cls.arguments_known, **kind.arguments_known}

    @classmethod
    def inner_type(cls, arguments: Mapping[str, object]) -> Kind:
        """Return the type that the arguments name.

        Raises:
            PreconditionFailed: the arguments name no exchange type.
        """
        name = arguments.get(INNER_TYPE)
        kind = cls.types.get(name) if isinstance(name, str) else None
        if kind is None:
            raise PreconditionFailed(
                f"Invalid argument, '{INNER_TYPE}' must be an existing exchange type"
            )
        return kind

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, object], subject: str) -> None:
        """Check the arguments against those of the inner type."""
        cls.inner_type(arguments).check_arguments(arguments, subject)

    def check(self, routing_key: str, arguments: Mapping[str, object]) -> None:
        self._inner.check(routing_key, arguments)

    def check_room(self, routing_key: str) -> None:
        self._inner.check_room(routing_key)

    def check_destination(self, destination: BindingDestination) -> None:
        self._inner.check_destination(destination)

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        self._inner.match(routing_key, headers, matched)

    def index_memory(self, binding: Binding) -> int:
        return self._inner.binding_memory(binding)

    def _add_to_index(self, binding: Binding) -> None:
        self._inner.bind(binding)

    def _remove_from_index(self, binding: Binding) -> None:
        self._inner.unbind(binding)
