# SPDX-License-Identifier: Apache-2.0
"""Sums of the broker: what came and went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.api.common.samples import NO_RATE, NODE, counted, window
from headrace.console.state.table import SampledObject
from headrace.measures import CHURN

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.state.broker_mirror import ObjectTable
    from headrace.untyped import JsonObject

#: The columns of what came and went, by the name of the API.
CHURNED: Mapping[str, tuple[str, ...]] = {measure.api: (measure.column,) for measure in CHURN}


def every(kind: ObjectTable) -> list[SampledObject]:
    """Return the objects of a kind."""
    table = kind.table
    return [SampledObject(table, slot) for slot in table.ordered()]


def churn(call: HttpCall) -> JsonObject:
    """Return what came and went; users that do not see everything see none of it."""
    if not call.identity.sees_all:
        return {**dict.fromkeys(CHURNED, 0), **{f"{name}_details": NO_RATE for name in CHURNED}}
    (totals,) = every(call.state.totals)
    return counted(totals, CHURNED, window(call.query, NODE))
