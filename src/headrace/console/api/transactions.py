# SPDX-License-Identifier: Apache-2.0
"""Branches of distributed transactions, and decisions on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import BOOLEAN, Body, schema
from headrace.console.api.common.lookups import read_named_rows
from headrace.console.api.common.schemas import TEXT, TIME, WHOLE, record
from headrace.console.broker.lists import TRANSACTIONS
from headrace.console.http.answers import Answer, RowList
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

TRANSACTION_SCHEMA = record(
    name=TEXT,
    xid=TEXT,
    vhost=TEXT,
    state=TEXT,
    since=TIME,
    publishes=WHOLE,
    settles=WHOLE,
    sessions=WHOLE,
)
DECISION_SCHEMA = record(status=TEXT)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/headrace/transactions": "Branches of distributed transactions.",
        "/api/headrace/transactions/{vhost}": "The transactions of one virtual host.",
    },
    rows=TRANSACTION_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_transactions(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the branches of distributed transactions."""
    return await read_named_rows(call, TRANSACTIONS, vhost, "xid")


@ROUTES.post(
    {
        "/api/headrace/transactions/{vhost}/{xid}": "Decide a transaction: commit, rollback or "
        "forget."
    },
    tag=MANAGEMENT,
    permission="configure on amq.headrace.transactions",
    body=schema(("what",), what=TEXT, heuristic=BOOLEAN),
    answer=DECISION_SCHEMA,
)
async def post_decision(call: HttpCall, vhost: str, xid: str) -> Answer:
    """Commit, roll back or forget a branch of a transaction."""
    body = await Body.read(call)
    decision, heuristic = body.text("what"), body.flag("heuristic")
    return Answer(
        200, await decide_transaction(call, vhost, xid, decision=decision, heuristic=heuristic)
    )


async def decide_transaction(
    call: HttpCall, vhost: str, xid: str, *, decision: str, heuristic: bool | None
) -> JsonObject:
    """Commit, roll back or forget a branch of a transaction; ``decision`` is one of these."""
    return await call.broker.ask(
        "decide transaction", vhost=vhost, xid=xid, what=decision, heuristic=heuristic
    )
