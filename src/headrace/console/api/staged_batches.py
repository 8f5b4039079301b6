# SPDX-License-Identifier: Apache-2.0
"""Staged batches: messages that Spark queries wrote and have not committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.lookups import read_named_rows
from headrace.console.api.common.schemas import (
    TEXT,
    WHOLE,
    WHOLE_OR_NONE,
    array,
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
    batches=array(WHOLE),
    branches=WHOLE,
    prepared=WHOLE,
    messages=WHOLE,
)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/headrace/batches": "Sinks with staged batches, and their batches.",
        "/api/headrace/batches/{vhost}": "The staged batches of one virtual host.",
    },
    rows=SINK_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_batches(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the sinks with their staged batches."""
    return await read_named_rows(call, STAGED_BATCHES, vhost, "sink")
