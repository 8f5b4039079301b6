# SPDX-License-Identifier: Apache-2.0
"""Staged batches: the sinks of exactly-once writes, and their undecided batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.transaction.dtx import BranchState
from headrace.model.transaction.staged_batch import read_xid
from headrace.model.transaction.xid import STAGED
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import LOOK

if TYPE_CHECKING:
    from headrace.management_rows import StagedBatchRow
    from headrace.model.transaction.dtx import Branch
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, Steps

operation = OperationTable()

UNDECIDED = (BranchState.ACTIVE, BranchState.PREPARED)


@operation("list batches", LOOK, reads=True, fields="`vhost`, `everywhere`")
def list_batches(call: Call) -> Steps:
    """List the sinks of staged batches, each with its staged, undecided batch."""
    count = 0
    for vhost in call.vhosts():
        staged: dict[str, list[Branch]] = {}
        for branch in list(vhost.branches):
            if branch.xid.format == STAGED and branch.state in UNDECIDED:
                staged.setdefault(read_xid(branch.xid)[0], []).append(branch)
            yield None
        for name, _ in list(vhost.sinks):
            count += 1
            yield describe_sink(vhost, name, staged.get(name, []))
    return {"items": count}


def describe_sink(vhost: VirtualHost, name: str, staged: list[Branch]) -> StagedBatchRow:
    """Return a sink as a row of a list; ``last`` is the last committed batch, None for none."""
    sink = vhost.sinks.find(name)
    return {
        "sink": name,
        "owner": sink.owner,
        "epoch": sink.epoch,
        "last": None if sink.last < 0 else sink.last,
        "at_ms": sink.at_ms,
        "vhost": vhost.name,
        "batches": sorted({read_xid(branch.xid)[1] for branch in staged}),
        "branches": len(staged),
        "prepared": sum(branch.state is BranchState.PREPARED for branch in staged),
        "messages": sum(branch.size()[0] for branch in staged),
    }
