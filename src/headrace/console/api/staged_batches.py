# SPDX-License-Identifier: Apache-2.0
"""Staged batches: messages that Spark queries wrote and have not committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.lookups import named_rows
from headrace.console.api.common.schemas import (
    TEXT,
    WHOLE,
    WHOLE_OR_NONE,
    array_of,
    list_or_page_of,
    record,
)
from headrace.console.broker.lists import STAGED_BATCHES
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import RowList
    from headrace.console.http.call import HttpCall

SINK_SCHEMA = record(
    name=TEXT,
    sink=TEXT,
    vhost=TEXT,
    owner=TEXT,
    epoch=WHOLE,
    last=WHOLE_OR_NONE,
    at_ms=WHOLE,
    batches=array_of(WHOLE),
    branches=WHOLE,
    prepared=WHOLE,
    messages=WHOLE,
)
ROUTES = Routes()


@ROUTES.get(
    {
        "/api/headrace/batches": "Sinks with staged batches, and their batches.",
        "/api/headrace/batches/{vhost}": "The staged batches of one virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
    answer=list_or_page_of(SINK_SCHEMA),
)
async def list_batches(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the sinks with their staged batches."""
    return await named_rows(call, STAGED_BATCHES, vhost, "sink")
