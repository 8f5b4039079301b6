# SPDX-License-Identifier: Apache-2.0
"""Permissions of users in virtual hosts, and on topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.management.fields import fields_of
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.definitions import put_element
from headrace.server.management.resources.users import known_user
from headrace.server.management.resources.vhosts import known_vhost
from headrace.user_tags import ADMINISTER, LOOK

if TYPE_CHECKING:
    from headrace.management_rows import PermissionRow, TopicPermissionRow
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()


@operation("list permissions", LOOK, fields="`vhost`, `user`")
def list_permissions(call: Call) -> Steps:
    """List the permissions."""
    vhost, wanted = call.text("vhost", ""), call.text("user", "")
    count = 0
    for (user, where), permission in list(call.broker.access.snapshot.permissions.items()):
        shown = call.sees_account(user) and vhost in ("", where) and wanted in ("", user)
        if not shown:
            yield None
            continue
        count += 1
        row: PermissionRow = {
            "user": user,
            "vhost": where,
            "configure": permission.configure,
            "write": permission.write,
            "read": permission.read,
        }
        yield row
    return {"items": count}


@operation("put permission", ADMINISTER, fields="`vhost`, `user`, `configure`, `write`, `read`")
async def put_permission(call: Call) -> JsonLine:
    """Set the permissions of a user in a virtual host."""
    value = {**fields_of(call, "configure", "write", "read"), "user": known_user(call)}
    return {
        "created": await put_element(call, "permissions", {**value, "vhost": known_vhost(call)})
    }


@operation("delete permission", ADMINISTER, fields="`vhost`, `user`")
async def delete_permission(call: Call) -> JsonLine:
    """Remove the permissions of a user in a virtual host."""
    user, vhost = call.text("user"), known_vhost(call)
    if (user, vhost) not in call.broker.access.snapshot.permissions:
        text = f"user '{user}' has no permissions in virtual host '{vhost}'"
        call.refuse("not-found", text)
    accounts = call.broker.accounts
    await accounts.perform(lambda users: users.clear_permission(user, vhost), call.actor)
    return {}


@operation("list topic permissions", LOOK, fields="`vhost`, `user`")
def list_topic_permissions(call: Call) -> Steps:
    """List the topic permissions; users see their own, administrators all."""
    vhost, wanted = call.text("vhost", ""), call.text("user", "")
    count = 0
    permissions = call.broker.access.snapshot.topic_permissions
    for (user, where, exchange), permission in list(permissions.items()):
        shown = call.sees_account(user) and vhost in ("", where) and wanted in ("", user)
        if not shown:
            yield None
            continue
        count += 1
        row: TopicPermissionRow = {
            "user": user,
            "vhost": where,
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
    value = {**fields_of(call, "exchange", "write", "read"), "user": known_user(call)}
    return {
        "created": await put_element(
            call, "topic_permissions", {**value, "vhost": known_vhost(call)}
        )
    }


@operation("delete topic permission", ADMINISTER, fields="`vhost`, `user`, `exchange`")
async def delete_topic_permission(call: Call) -> JsonLine:
    """Remove such a restriction; without ``exchange`` all in the virtual host."""
    user, vhost = call.text("user"), known_vhost(call)
    exchange = None if call.request.get("exchange") is None else call.text("exchange", "")
    permissions = call.broker.access.snapshot.topic_permissions
    if not any(key[:2] == (user, vhost) and exchange in (None, key[2]) for key in permissions):
        text = f"user '{user}' has no topic permissions there in virtual host '{vhost}'"
        call.refuse("not-found", text)
    await call.broker.accounts.perform(
        lambda users: users.clear_topic_permission(user, vhost, exchange), call.actor
    )
    return {}
