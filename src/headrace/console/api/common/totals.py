# SPDX-License-Identifier: Apache-2.0
"""Sums of the broker: what came and went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.api.common.samples import NO_RATE, NODE, counted, window
from headrace.console.state.table import Tracked

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.state.state import Kind
    from headrace.untyped import JsonObject

#: What came and went, by the columns of the totals.
CHURN: Mapping[str, tuple[str, ...]] = {
    "channel_closed": ("channels_closed",),
    "channel_created": ("channels_opened",),
    "connection_closed": ("connections_closed",),
    "connection_created": ("connections_opened",),
    "queue_created": ("queues_created",),
    "queue_declared": ("queues_declared",),
    "queue_deleted": ("queues_deleted",),
}


def every(kind: Kind) -> list[Tracked]:
    """Return the objects of a kind."""
    table = kind.table
    return [Tracked(table, slot) for slot in table.ordered()]


def churn(call: HttpCall) -> JsonObject:
    """Return what came and went; users that do not see everything see none of it."""
    if not call.identity.sees_all:
        return {**dict.fromkeys(CHURN, 0), **{f"{name}_details": NO_RATE for name in CHURN}}
    (one,) = every(call.state.totals)
    return counted(one, CHURN, window(call.query, NODE))
