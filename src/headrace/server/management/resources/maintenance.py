# SPDX-License-Identifier: Apache-2.0
"""Maintenance: the broker goes out of service, and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.management.fields import read_reason
from headrace.server.management.operation_table import OperationTable
from headrace.server.net.drain import CLOSE_S
from headrace.user_tags import ADMINISTER

if TYPE_CHECKING:
    from headrace.server.management.call import Call, JsonLine

operation = OperationTable()

REASON = "the broker goes out of service for maintenance"
REASON_BYTES_MAX = 200
GRACE_S_MAX = 3600
GIVE_S = 30.0  # The time that other brokers have to take this one's virtual hosts.


@operation("drain", ADMINISTER, fields="`grace_s`, `reason`")
async def drain(call: Call) -> JsonLine:
    """Close the ports, wait for clients to disconnect, then confirm and close the remaining ones.

    In a cluster, other brokers take over the virtual hosts first.
    """
    broker = call.broker
    grace_s = call.number("grace_s", 0, maximum=GRACE_S_MAX)
    reason = read_reason(call, REASON, REASON_BYTES_MAX)
    call.log("drains the broker")
    if broker.node is not None:
        await broker.node.give_all(GIVE_S)
    draining = broker.drain
    draining.begin()
    open_before = len(draining.open_transports())
    await call.send({"connections": open_before, "grace_s": grace_s})
    await draining.wait_for_none(grace_s)
    left_count = open_before - len(draining.open_transports())
    closed = await draining.close_clients(reason) if draining.active else 0
    all_closed = await draining.wait_for_none(CLOSE_S)
    synced = await draining.wait_for_disk()
    if not draining.active:
        call.refuse("conflict", "the broker was resumed meanwhile")
    still_open = len(draining.open_transports())
    answer: JsonLine = {
        "left": left_count,
        "closed": closed,
        "open": still_open,
        "all_kept": synced,
    }
    return answer if all_closed else {**answer, "stubborn": still_open}


@operation("resume", ADMINISTER)
def resume(call: Call) -> JsonLine:
    """End a drain: open the ports, and take virtual hosts of the cluster again."""
    if not call.broker.drain.active:
        call.refuse("precondition", "the broker is not drained")
    call.log("resumes the broker")
    call.broker.drain.end()
    if call.broker.node is not None:
        call.broker.node.resume()
    return {"listens": dict(call.broker.addresses)}
