# SPDX-License-Identifier: Apache-2.0
"""Deduplication: the queues and exchanges that drop duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.lookups import read_rows
from headrace.console.api.common.schemas import TEXT, WHOLE, WHOLE_OR_NONE, record
from headrace.console.broker.lists import DEDUPLICATION
from headrace.console.http.answers import RowList
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall

DEDUPLICATION_SCHEMA = record(
    kind={"enum": ["queue", "exchange"]},
    name=TEXT,
    vhost=TEXT,
    header=TEXT,
    remembered=WHOLE,
    remembered_max=WHOLE,
    cache_ttl_ms=WHOLE_OR_NONE,
    held=WHOLE,
    duplicates=WHOLE_OR_NONE,
)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/headrace/deduplication": "Queues and exchanges that drop duplicates.",
        "/api/headrace/deduplication/{vhost}": "The same, of one virtual host.",
    },
    rows=DEDUPLICATION_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_deduplication(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the queues and exchanges that drop duplicates, with the numbers of remembered ids."""
    return RowList(await read_rows(call, DEDUPLICATION, vhost), ("vhost", "kind", "name"))
