# SPDX-License-Identifier: Apache-2.0
"""Fanout exchanges with a memory: recent history, and deduplication as a type of its own.

What they remember is looked after by :mod:`headrace.model.interceptor.exchange_observer`.
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
    """A fanout exchange whose last messages go to each queue that is newly bound."""

    type = "x-recent-history"
    arguments_known: Mapping[str, Check] = {**COMMON_ARGUMENTS, LENGTH: whole(1, LENGTH_MAX)}


class DeduplicationExchange(FanoutExchange):
    """A fanout exchange that drops messages whose id it has seen."""

    type = "x-message-deduplication"

    @property
    def deduplicates(self) -> bool:
        return True
