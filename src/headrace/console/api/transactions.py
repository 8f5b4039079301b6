# SPDX-License-Identifier: Apache-2.0
"""Branches of distributed transactions, and decisions on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import BOOLEAN, Body, schema
from headrace.console.api.common.lookups import named_rows
from headrace.console.api.schemas.parts import TEXT
from headrace.console.broker.lists import TRANSACTIONS
from headrace.console.http.answers import Answer, Listed
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

ROUTES = Routes()


@ROUTES.get(
    {
        "/api/headrace/transactions": "Branches of distributed transactions.",
        "/api/headrace/transactions/{vhost}": "The transactions of one virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_transactions(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the branches of distributed transactions."""
    return await named_rows(call, TRANSACTIONS, vhost, "xid")


@ROUTES.post(
    {
        "/api/headrace/transactions/{vhost}/{xid}": "Decide a transaction: commit, rollback or "
        "forget."
    },
    tag=MANAGEMENT,
    permission="configure on amq.headrace.transactions",
    body=schema(("what",), what=TEXT, heuristic=BOOLEAN),
)
async def post_decision(call: HttpCall, vhost: str, xid: str) -> Answer:
    """Commit, roll back or forget a branch of a transaction."""
    body = await Body.of(call)
    decision, heuristic = body.text("what"), body.flag("heuristic")
    return Answer(200, await decide(call, vhost, xid, decision=decision, heuristic=heuristic))


async def decide(
    call: HttpCall, vhost: str, xid: str, *, decision: str, heuristic: bool | None
) -> JsonObject:
    """Commit, roll back or forget a branch of a transaction, as ``decision`` says."""
    return await call.ask(
        "decide transaction", vhost=vhost, xid=xid, what=decision, heuristic=heuristic
    )
