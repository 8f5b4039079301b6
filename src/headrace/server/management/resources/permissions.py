# SPDX-License-Identifier: Apache-2.0
"""Permissions of users in virtual hosts, and on topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.management.fields import read_fields
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.definitions import put_element
from headrace.server.management.resources.users import read_user_name
from headrace.server.management.resources.vhosts import read_vhost_name
from headrace.user_tags import ADMINISTER, LOOK

if TYPE_CHECKING:
    from headrace.management_rows import PermissionRow, TopicPermissionRow
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()


@operation("list permissions", LOOK, reads=True, fields="`vhost`, `user`")
def list_permissions(call: Call) -> Steps:
    """List the permissions."""
    vhost_filter, user_filter = call.text("vhost", ""), call.text("user", "")
    count = 0
    for (user, vhost), permission in list(call.broker.access.snapshot.permissions.items()):
        matches = vhost_filter in ("", vhost) and user_filter in ("", user)
        if not matches or not call.sees_account(user):
            yield None
            continue
        count += 1
        row: PermissionRow = {
            "user": user,
            "vhost": vhost,
            "configure": permission.configure,
            "write": permission.write,
            "read": permission.read,
        }
        yield row
    return {"items": count}


@operation("put permission", ADMINISTER, fields="`vhost`, `user`, `configure`, `write`, `read`")
async def put_permission(call: Call) -> JsonLine:
    """Set the permissions of a user in a virtual host."""
    value = {**read_fields(call, "configure", "write", "read"), "user": read_user_name(call)}
    return {
        "created": await put_element(call, "permissions", {**value, "vhost": read_vhost_name(call)})
    }


@operation("delete permission", ADMINISTER, fields="`vhost`, `user`")
async def delete_permission(call: Call) -> JsonLine:
    """Remove the permissions of a user in a virtual host."""
    user, vhost = call.text("user"), read_vhost_name(call)
    if (user, vhost) not in call.broker.access.snapshot.permissions:
        text = f"user '{user}' has no permissions in virtual host '{vhost}'"
        call.refuse("not-found", text)
    accounts = call.broker.accounts
    await accounts.perform(lambda users: users.clear_permission(user, vhost), call.actor)
    return {}


@operation("list topic permissions", LOOK, reads=True, fields="`vhost`, `user`")
def list_topic_permissions(call: Call) -> Steps:
    """List the topic permissions: all for administrators, their own for other users."""
    vhost_filter, user_filter = call.text("vhost", ""), call.text("user", "")
    count = 0
    permissions = call.broker.access.snapshot.topic_permissions
    for (user, vhost, exchange), permission in list(permissions.items()):
        matches = vhost_filter in ("", vhost) and user_filter in ("", user)
        if not matches or not call.sees_account(user):
            yield None
            continue
        count += 1
        row: TopicPermissionRow = {
            "user": user,
            "vhost": vhost,
            "exchange": exchange,
            "write": permission.write,
            "read": permission.read,
        }
        yield row
    return {"items": count}


@operation(
    "put topic permission", ADMINISTER, fields="`vhost`, `user`, `exchange`, `write`, `read`"
)
async def put_topic_permission(call: Call) -> JsonLine:
    """Restrict the routing keys of a user at a topic exchange."""
    value = {**read_fields(call, "exchange", "write", "read"), "user": read_user_name(call)}
    return {
        "created": await put_element(
            call, "topic_permissions", {**value, "vhost": read_vhost_name(call)}
        )
    }


@operation("delete topic permission", ADMINISTER, fields="`vhost`, `user`, `exchange`")
async def delete_topic_permission(call: Call) -> JsonLine:
    """Remove a user's topic permission for an exchange, or all in a virtual host."""
    user, vhost = call.text("user"), read_vhost_name(call)
    exchange = None if call.request.get("exchange") is None else call.text("exchange", "")
    permissions = call.broker.access.snapshot.topic_permissions
    if not any(key[:2] == (user, vhost) and exchange in (None, key[2]) for key in permissions):
        text = f"user '{user}' has no topic permissions in virtual host '{vhost}'"
        call.refuse("not-found", text)
    await call.broker.accounts.perform(
        lambda users: users.clear_topic_permission(user, vhost, exchange), call.actor
    )
    return {}
