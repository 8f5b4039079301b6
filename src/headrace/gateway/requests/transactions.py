# SPDX-License-Identifier: Apache-2.0
"""Requests that decide transactions, for operators and coordinators without ``dtx.commit``.

The requests to the queue ``amq.headrace.transactions`` (:mod:`.requests`)::

    {"do": "list"}                                      {"transactions": [{"xid": ..., ...}, ...]}
    {"do": "prepare", "xid": "order-17"}                {"status": "xa-ok"}
    {"do": "commit", "xid": ..., "heuristic": true}     {"status": "xa-heurcom"}
    {"do": "rollback", "xid": ...}, {"do": "forget", "xid": ...}
    an error                                            {"error": ..., "code": ...}

``commit`` of an unprepared branch is in one phase. ``heuristic`` decides in place of the branch's
coordinator, which learns of it at its next command. The user needs the permission to configure the
queue's name.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from headrace.gateway.requests.requests import Handler, RequestAnswer, RequestCall, RequestService
from headrace.model.transaction.dtx import Branch, BranchState, XaStatus
from headrace.model.transaction.xid import Xid

if TYPE_CHECKING:
    from headrace.gateway.connection.context import Context
    from headrace.model.vhost.virtual_host import VirtualHost

QUEUE = "amq.headrace.transactions"
REQUEST_BYTES_MAX = 4096


def list_all(call: RequestCall) -> RequestAnswer:
    """Return the branches of the virtual host."""
    return {"transactions": [describe(branch) for branch in call.vhost.branches]}


def decide(outcome: str, call: RequestCall) -> RequestAnswer:
    """Apply an outcome to a branch, and return the status."""
    branches = call.vhost.branches
    text = call.request.get("xid", "")
    if not isinstance(text, str) or not text:
        call.refuse("bad-request", f"{outcome} needs an xid")
    try:
        xid = Xid.parse(text)
    except ValueError as error:
        call.refuse("bad-request", str(error))
    heuristic = bool(call.request.get("heuristic"))
    if outcome == "prepare":
        status = XaStatus(branches.prepare(xid))
    elif outcome == "forget":
        branches.forget(xid)
        status = XaStatus.OK
    elif heuristic:
        status = XaStatus(branches.decide(xid, commit=outcome == "commit"))
    elif outcome == "commit":
        one_phase = branches.find(xid).state is BranchState.ACTIVE
        status = XaStatus(branches.commit(xid, one_phase=one_phase))
    else:
        status = XaStatus(branches.rollback(xid))
    return {"status": status_name(status)}


HANDLERS: dict[str, Handler] = {
    "list": list_all,
    **{
        outcome: partial(decide, outcome) for outcome in ("prepare", "commit", "rollback", "forget")
    },
}


class Coordinator(RequestService):
    """Serves the requests of one virtual host."""

    permission = "configure"

    def __init__(self, context: Context, vhost: VirtualHost) -> None:
        RequestService.__init__(self, context, vhost, QUEUE, HANDLERS, bytes_max=REQUEST_BYTES_MAX)


def describe(branch: Branch) -> dict[str, object]:
    """Return a branch as a JSON object."""
    publishes, settles = branch.size()
    state = branch.state.value
    if branch.state is BranchState.ACTIVE and branch.rollback_reason:
        state = f"rollback only ({status_name(branch.rollback_reason)})"
    elif branch.state is BranchState.COMPLETED:
        state = f"{state} ({status_name(branch.decided)})"
    since = datetime.fromtimestamp(branch.since_ms / 1000, UTC)
    return {
        "xid": str(branch.xid),
        "state": state,
        "since": since.isoformat(timespec="seconds"),
        "publishes": publishes,
        "settles": settles,
        "sessions": len(branch.workers) + len(branch.suspended),
    }


def status_name(status: XaStatus) -> str:
    """Return the standard's name of a status."""
    return f"xa-{status.name.lower()}"
