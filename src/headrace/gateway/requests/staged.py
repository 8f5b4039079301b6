# SPDX-License-Identifier: Apache-2.0
"""Requests about staged batches (:mod:`headrace.model.transaction.staged_batch`).

A user needs the permission to write to the sink's name, and to configure it for ``sink.discard``.
"""

from headrace.gateway.requests.requests import Handler, RequestAnswer, RequestCall, Steps
from headrace.model.transaction.dtx import BranchState
from headrace.model.transaction.staged_batch import (
    BATCH_MAX,
    SINK_BYTES_MAX,
    STAGE_BYTES_MAX,
    Stage,
    read_xid,
)

OWNER_BYTES_MAX = 255
STAGES_MAX = 20_000  # Attempts that one commit may name.
SHOWN_MAX = 1000  # The maximum branches that `show` returns.


def read_sink(call: RequestCall, permission: str = "write") -> str:
    """Return the sink that a request names."""
    name = call.text("sink", bytes_max=SINK_BYTES_MAX)
    call.allow(permission, name)
    return name


def begin(call: RequestCall) -> Steps:
    """Claim a sink for an owner."""
    name = read_sink(call)
    owner = call.text("owner", bytes_max=OWNER_BYTES_MAX)
    run = call.text("run", "", bytes_max=OWNER_BYTES_MAX)
    answer: RequestAnswer = yield from call.vhost.sinks.begin(
        name, owner, run, force=call.flag("force")
    )
    return answer


def release(call: RequestCall) -> RequestAnswer:
    """Release the owner's claim on a sink."""
    owner = call.text("owner", bytes_max=OWNER_BYTES_MAX)
    answer: RequestAnswer = call.vhost.sinks.release(read_sink(call), owner)
    return answer


def last(call: RequestCall) -> RequestAnswer:
    """Return the last committed batch of a sink."""
    answer: RequestAnswer = call.vhost.sinks.describe(read_sink(call, "write"))
    return answer


def prepare(call: RequestCall) -> RequestAnswer:
    """Prepare staged work: it survives until it is committed or rolled back."""
    is_new = call.vhost.sinks.prepare(
        read_sink(call),
        read_epoch(call),
        call.number("batch", maximum=BATCH_MAX),
        call.text("branch", bytes_max=STAGE_BYTES_MAX),
        call.number("count"),
    )
    return {"already": not is_new}


def commit(call: RequestCall) -> Steps:
    """Commit a batch, which makes it visible."""
    name = read_sink(call)
    texts = call.request.get("branches", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        call.refuse("bad-request", "'branches' is not a list of strings")
    if len(texts) > STAGES_MAX:
        call.refuse("limit", f"a batch may have at most {STAGES_MAX} attempts")
    stages = [Stage.parse(text) for text in texts]
    batch = call.number("batch", maximum=BATCH_MAX)
    answer: RequestAnswer = yield from call.vhost.sinks.commit(
        name, read_epoch(call), batch, stages
    )
    return answer


def abort(call: RequestCall) -> Steps:
    """Roll back the staged branches of a batch."""
    batch = call.number("batch", maximum=BATCH_MAX)
    answer: RequestAnswer = yield from call.vhost.sinks.abort(
        read_sink(call), read_epoch(call), batch
    )
    return answer


def discard(call: RequestCall) -> Steps:
    """Forget a sink."""
    answer: RequestAnswer = yield from call.vhost.sinks.discard(read_sink(call, "configure"))
    return answer


def list_sinks(call: RequestCall) -> RequestAnswer:
    """Return the sinks that the user may write to."""
    vhost = call.vhost
    sinks = []
    for name, _ in vhost.sinks:
        if call.context.access.allowed(call.user, vhost.name, "write", name):
            branches = vhost.sinks.undecided_branches(name)
            sinks.append(
                {
                    **vhost.sinks.describe(name),
                    "branches": len(branches),
                    "messages": sum(branch.size()[0] for branch in branches),
                }
            )
    return {"sinks": sinks}


def show(call: RequestCall) -> RequestAnswer:
    """Return a sink with its undecided branches."""
    name = read_sink(call)
    branches = call.vhost.sinks.undecided_branches(name)
    shown = []
    for branch in branches[:SHOWN_MAX]:
        _, batch, part = read_xid(branch.xid)
        shown.append(
            {
                "batch": batch,
                "branch": part,
                "state": branch.state.value,
                "since_ms": branch.since_ms,
                "messages": branch.size()[0],
            }
        )
    return {
        **call.vhost.sinks.describe(name),
        "branches": len(branches),
        "messages": sum(branch.size()[0] for branch in branches),
        "prepared": sum(branch.state is BranchState.PREPARED for branch in branches),
        "staged": shown,
    }


def read_epoch(call: RequestCall) -> int:
    """Return the epoch of a request; 0 is the present one."""
    return call.number("epoch", 0)


HANDLERS: dict[str, Handler] = {
    "sink.list": list_sinks,
    "sink.show": show,
    "sink.discard": discard,
    "batch.begin": begin,
    "batch.release": release,
    "batch.last": last,
    "batch.prepare": prepare,
    "batch.commit": commit,
    "batch.abort": abort,
}
