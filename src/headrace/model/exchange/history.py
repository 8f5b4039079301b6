# SPDX-License-Identifier: Apache-2.0
"""Fanout exchanges with state: recent history, and the deduplication type.

:mod:`headrace.model.interceptor.exchange_observer` keeps the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.exchange import whole
from headrace.model.exchange.exchange import COMMON_ARGUMENTS, FanoutExchange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.arguments.values import Check

LENGTH = "x-recent-history-length"
LENGTH_DEFAULT = 20
LENGTH_MAX = 10_000  # Messages that an exchange keeps.


class RecentHistoryExchange(FanoutExchange):
    """A fanout exchange that passes its last messages to each new binding."""

    type = "x-recent-history"
    arguments_known: Mapping[str, Check] = {**COMMON_ARGUMENTS, LENGTH: whole(1, LENGTH_MAX)}


class DeduplicationExchange(FanoutExchange):
    """A fanout exchange that drops messages with a known id."""

    type = "x-message-deduplication"

    @property
    def deduplicates(self) -> bool:
        return True
