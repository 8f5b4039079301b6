# SPDX-License-Identifier: Apache-2.0
"""Branches of distributed transactions, and the decisions of operators about them.

A decision is a request of :mod:`headrace.gateway.requests`, with the same fields and rights.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from headrace.gateway.requests import transactions
from headrace.gateway.requests.transactions import describe as describe_branch
from headrace.model.exchange.binding import QUEUE
from headrace.server.management.call import list_objects
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.operator_session import authorized_host, run_request
from headrace.user_tags import LOOK, USE

if TYPE_CHECKING:
    from headrace.management_rows import TransactionRow
    from headrace.model.transaction.dtx import Branch
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()

DECISIONS = ("commit", "rollback", "forget")


@operation("list transactions", LOOK, reads=True, fields="`vhost`, `everywhere`")
def list_transactions(call: Call) -> Steps:
    """List the branches of distributed transactions."""
    return list_objects(call, lambda vhost: list(vhost.branches), describe_transaction)


def describe_transaction(vhost: VirtualHost, branch: Branch) -> TransactionRow:
    """Return a branch of a distributed transaction as a row of a list."""
    row = describe_branch(branch)
    return cast("TransactionRow", {"xid": row.pop("xid"), "vhost": vhost.name, **row})


@operation(
    "decide transaction",
    USE,
    fields="`vhost`, `xid`, `what`: `commit`, `rollback` or `forget`; `heuristic`",
    note="configure `amq.headrace.transactions`",
)
async def decide_transaction(call: Call) -> JsonLine:
    """Commit, roll back or forget a branch.

    With ``heuristic``, the operator decides in place of the branch's coordinator.
    """
    decision = call.text("what")
    if decision not in DECISIONS:
        call.refuse("bad-request", f"'what' must be one of {', '.join(DECISIONS)}")
    authorized_host(call).check("configure", QUEUE, transactions.QUEUE)
    xid, heuristic = call.text("xid"), call.flag("heuristic")
    call.log(f"decides the transaction {xid!r} in {call.vhost().name!r}: {decision}")
    return await run_request(
        call, partial(transactions.decide, decision), xid=xid, heuristic=heuristic
    )
