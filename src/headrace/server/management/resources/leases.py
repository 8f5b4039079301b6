# SPDX-License-Identifier: Apache-2.0
"""Leases of the messages of a queue by groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.requests import leases
from headrace.server.management.call import list_objects
from headrace.server.management.operation_table import READ_QUEUE, OperationTable
from headrace.server.management.operator_session import run_request
from headrace.user_tags import LOOK, USE

if TYPE_CHECKING:
    from headrace.management_rows import LeaseRow
    from headrace.model.lease.lease import Lease
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()


@operation("list leases", LOOK, reads=True, fields="`vhost`, `everywhere`")
def list_leases(call: Call) -> Steps:
    """List the leases."""
    return list_objects(call, lambda vhost: list(vhost.leases), describe_lease)


def describe_lease(vhost: VirtualHost, lease: Lease) -> LeaseRow:
    """Return a lease as a row of a list."""
    return {
        "queue": lease.source.name,
        "group": lease.group,
        "vhost": vhost.name,
        "settled": lease.settled,
        "next": lease.log.next_offset,
        "leased": lease.log.next_offset - lease.settled,
        "ready": lease.source.ready_count,
        "owner": vhost.leases.ownerships.live_owner(lease) or "",
    }


@operation(
    "release lease",
    USE,
    READ_QUEUE,
    fields="`vhost`, `queue`, `group`, `owner`, `force`, `forget`",
)
async def release_lease(call: Call) -> JsonLine:
    """Return the unsettled messages of a lease to their queue."""
    fields = {name: call.text(name) for name in ("queue", "group")}
    flags = {name: call.flag(name) for name in ("force", "forget")}
    return await run_request(call, leases.release, owner=call.text("owner", ""), **fields, **flags)
