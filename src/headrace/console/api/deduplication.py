# SPDX-License-Identifier: Apache-2.0
"""Deduplication: the queues and exchanges that drop duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.lookups import rows_of
from headrace.console.broker.lists import DEDUPLICATION
from headrace.console.http.answers import Listed
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall

ROUTES = Routes()


@ROUTES.get(
    {
        "/api/headrace/deduplication": "Queues and exchanges that drop duplicates.",
        "/api/headrace/deduplication/{vhost}": "The same, of one virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_deduplication(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the queues and exchanges that drop duplicates, with the numbers of remembered ids."""
    return Listed(await rows_of(call, DEDUPLICATION, vhost), ("vhost", "kind", "name"))
