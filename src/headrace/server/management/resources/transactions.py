# SPDX-License-Identifier: Apache-2.0
"""Operations that decide for others: transactions in doubt, leases, positions of groups.

They are the requests of :mod:`headrace.gateway.requests`, with the same fields and the same rights.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from headrace.gateway.requests import groups, leases, transactions
from headrace.gateway.requests.requests import RefusedRequest
from headrace.model.exchange.binding import QUEUE
from headrace.server.management.call import Refused
from headrace.server.management.operation_table import READ_QUEUE, Need, OperationTable
from headrace.server.management.operator_session import OperatorSession, host_of
from headrace.server.management.resources.jobs import attempt
from headrace.user_tags import USE

if TYPE_CHECKING:
    from collections.abc import Generator

    from headrace.gateway.requests.requests import Handler, RequestAnswer
    from headrace.server.management.call import Answered, Call

operation = OperationTable()

READ_STREAM = Need("read", "queue", "stream")
DECISIONS = ("commit", "rollback", "forget")


async def run(call: Call, handler: Handler, **fields: object) -> Answered:
    """Run a request, in slices where it is long; answer when its changes are durable."""
    request = OperatorSession(call).request(fields)
    call.broker.events.require()
    try:
        with call.acting():
            begun = handler(request)
    except RefusedRequest as error:
        raise Refused(error.code, error.text) from None
    answer = begun if isinstance(begun, dict) else await finish(call, begun)
    if not await call.durable(request.vhost.name):
        call.refuse("precondition", "the journal cannot be written")
    return answer


async def finish(call: Call, steps: Generator[None, None, RequestAnswer]) -> RequestAnswer:
    """Return the answer of a request in slices."""
    while True:
        with call.acting():
            try:
                attempt(lambda: next(steps))
            except StopIteration as end:
                return dict(end.value)
        await asyncio.sleep(0)


@operation(
    "decide transaction",
    USE,
    fields="`vhost`, `xid`, `what`: `commit`, `rollback` or `forget`; `heuristic`",
    note="configure `amq.headrace.transactions`",
)
async def decide_transaction(call: Call) -> Answered:
    """Commit, roll back or forget a branch; ``heuristic``: in place of its coordinator."""
    what = call.text("what")
    if what not in DECISIONS:
        call.refuse("bad-request", f"'what' must be one of {', '.join(DECISIONS)}")
    host_of(call).check("configure", QUEUE, transactions.QUEUE)
    xid, heuristic = call.text("xid"), call.flag("heuristic")
    call.log(f"decides the transaction {xid!r} in {call.vhost().name!r}: {what}")
    return await run(call, partial(transactions.decide, what), xid=xid, heuristic=heuristic)


@operation("release lease", USE, READ_QUEUE, fields="`vhost`, `queue`, `group`, `force`, `forget`")
async def release_lease(call: Call) -> Answered:
    """Return the unsettled messages of a lease to their queue."""
    fields = {name: call.text(name) for name in ("queue", "group")}
    flags = {name: call.flag(name) for name in ("force", "forget")}
    return await run(call, leases.release, owner=call.text("owner", ""), **fields, **flags)


@operation(
    "set group",
    USE,
    READ_STREAM,
    fields="`vhost`, `stream`, `group`, `position`: an offset, `first`, `last` or `next`",
)
async def set_group(call: Call) -> Answered:
    """Set the position of a group, even an owned one: an offset, "first", "last" or "next"."""
    fields = {name: call.text(name) for name in ("stream", "group")}
    return await run(
        call, groups.commit, **fields, position=call.request.get("position"), force=True
    )


@operation("delete group", USE, READ_STREAM, fields="`vhost`, `stream`, `group`, `force`")
async def delete_group(call: Call) -> Answered:
    """Forget the position of a group."""
    fields = {name: call.text(name) for name in ("stream", "group")}
    return await run(call, groups.delete, **fields, force=call.flag("force"))
