# SPDX-License-Identifier: Apache-2.0
"""The fanout exchange, and two types that route like it: recent history and deduplication.

`headrace.model.interceptor.exchange_observer` keeps the state of the latter two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from headrace.model.arguments.exchange import whole_number
from headrace.model.exchange.exchange import COMMON_ARGUMENTS, Exchange, ExchangeProperties, Headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.arguments.values import Check
    from headrace.model.exchange.binding import Binding, BindingDestination

LENGTH = "x-recent-history-length"
LENGTH_DEFAULT = 20
LENGTH_MAX = 10_000  # The most messages that an exchange keeps.


class FanoutExchange(Exchange):
    """Matches every binding."""

    type = "fanout"
    supports_selectors = True
    unindexes_later = True

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self._all: dict[Binding, None] = {}

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        for binding in self._all:
            matched[binding.destination] = None

    def _add_to_index(self, binding: Binding) -> None:
        self._all[binding] = None

    def _remove_from_index(self, binding: Binding) -> None:
        del self._all[binding]


class RecentHistoryExchange(FanoutExchange):
    """A fanout exchange that passes its last messages to each new binding."""

    type = "x-recent-history"
    arguments_known: Mapping[str, Check] = {**COMMON_ARGUMENTS, LENGTH: whole_number(1, LENGTH_MAX)}


class DeduplicationExchange(FanoutExchange):
    """A fanout exchange that drops messages with a known id."""

    type = "x-message-deduplication"

    @property
    def deduplicates(self) -> bool:
        return True
