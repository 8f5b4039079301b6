# SPDX-License-Identifier: Apache-2.0
"""Groups of readers of a stream, and their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.requests import groups
from headrace.server.management.call import list_objects
from headrace.server.management.operation_table import OperationTable, RequiredPermission
from headrace.server.management.operator_session import run_request
from headrace.user_tags import LOOK, USE

if TYPE_CHECKING:
    from headrace.management_rows import GroupRow
    from headrace.model.stream.consumer_groups import ConsumerGroup
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()
READ_STREAM = RequiredPermission("read", "queue", "stream")


@operation("list groups", LOOK, reads=True, fields="`vhost`, `everywhere`")
def list_groups(call: Call) -> Steps:
    """List the groups of readers."""
    return list_objects(call, lambda vhost: list(vhost.groups), describe_group)


def describe_group(vhost: VirtualHost, group: ConsumerGroup) -> GroupRow:
    """Return a group of readers as a row of a list."""
    lag, lag_octets = group.lag()
    return {
        "stream": group.stream.name,
        "group": group.name,
        "vhost": vhost.name,
        "position": group.position,
        "lag": lag,
        "lag_bytes": lag_octets,
        "owner": group.owner or "",
        "claimed": vhost.groups.is_claimed(group, vhost.counters.now_ms),
        "pin": bool(group.pin),
    }


@operation(
    "set group",
    USE,
    READ_STREAM,
    fields="`vhost`, `stream`, `group`, `position`: an offset, `first`, `last` or `next`",
)
async def set_group(call: Call) -> JsonLine:
    """Set the position of a group, even of one with an owner.

    ``position`` is an offset, "first", "last" or "next".
    """
    fields = {name: call.text(name) for name in ("stream", "group")}
    state = await run_request(
        call, groups.commit, **fields, position=call.request.get("position"), force=True
    )
    return {**state, "lag_bytes": state["lag_octets"]}  # The name of the field in lists.


@operation("delete group", USE, READ_STREAM, fields="`vhost`, `stream`, `group`, `force`")
async def delete_group(call: Call) -> JsonLine:
    """Delete a group and its position."""
    fields = {name: call.text(name) for name in ("stream", "group")}
    return await run_request(call, groups.delete, **fields, force=call.flag("force"))
