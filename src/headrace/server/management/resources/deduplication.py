# SPDX-License-Identifier: Apache-2.0
"""Lists of what keeps messages from coming twice: staged batches, and remembered ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.exchange.deduplication import CACHE_TTL, HEADER
from headrace.model.queue_kinds.deduplicating import DeduplicatingQueue
from headrace.model.transaction.dtx import BranchState
from headrace.model.transaction.staged_batch import read_xid
from headrace.model.transaction.xid import STAGED
from headrace.server.config.json_values import as_json
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import LOOK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.exchange.deduplication import Ids
    from headrace.model.transaction.dtx import Branch
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Answered, Call, Steps

operation = OperationTable()

UNDECIDED = (BranchState.ACTIVE, BranchState.PREPARED)


@operation("list batches", LOOK, fields="`vhost`")
def list_batches(call: Call) -> Steps:
    """List the sinks of staged batches, each with what is staged and not decided."""
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


def describe_sink(vhost: VirtualHost, name: str, staged: list[Branch]) -> Answered:
    """Return a sink as a row of a list; ``last`` is the last committed batch, None for none."""
    return {
        **vhost.sinks.describe(name),
        "vhost": vhost.name,
        "batches": sorted({read_xid(branch.xid)[1] for branch in staged}),
        "branches": len(staged),
        "prepared": sum(branch.state is BranchState.PREPARED for branch in staged),
        "messages": sum(branch.size()[0] for branch in staged),
    }


@operation("list deduplication", LOOK, fields="`vhost`")
def list_deduplication(call: Call) -> Steps:
    """List the queues and exchanges that drop messages whose id they know."""
    count = 0
    for vhost in call.vhosts():
        for queue in list(vhost.queues.values()):
            row = None
            if isinstance(queue, DeduplicatingQueue):
                count += 1
                row = {
                    **describe(vhost, "queue", queue.name, queue.arguments, queue.cache()),
                    "held": queue.held_ids,
                    "duplicates": queue.duplicates,
                }
            yield row
        for exchange in list(vhost.exchanges.values()):
            row = None
            if exchange.observer is not None and exchange.deduplicates:
                count += 1
                ids = exchange.observer.ids
                row = {
                    **describe(vhost, "exchange", exchange.name, exchange.arguments, ids),
                    "held": 0,
                    "duplicates": None,  # Counted by queues alone.
                }
            yield row
    return {"items": count}


def describe(
    vhost: VirtualHost, kind: str, name: str, arguments: Mapping[str, object], ids: Ids | None
) -> Answered:
    """Return what a queue or an exchange remembers; ``held`` is beside ``remembered``."""
    return {
        "kind": kind,
        "name": name,
        "vhost": vhost.name,
        "header": str(arguments.get(HEADER, HEADER)),
        "remembered": 0 if ids is None else len(ids),
        "remembered_max": 0 if ids is None else ids.size_max,
        "cache_ttl_ms": as_json(arguments.get(CACHE_TTL)),
    }
