# SPDX-License-Identifier: Apache-2.0
"""Staged batches: messages that Spark queries wrote and have not committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.lookups import named_rows
from headrace.console.broker.lists import STAGED_BATCHES
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Listed
    from headrace.console.http.call import HttpCall

ROUTES = Routes()


@ROUTES.get(
    {
        "/api/headrace/batches": "Sinks with staged batches, and their batches.",
        "/api/headrace/batches/{vhost}": "The staged batches of one virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_batches(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the sinks with their staged batches."""
    return await named_rows(call, STAGED_BATCHES, vhost, "sink")
