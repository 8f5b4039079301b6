# SPDX-License-Identifier: Apache-2.0
"""Limits of virtual hosts and of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import InvalidArgument
from headrace.model.policy.parameters import EVERYWHERE, Key
from headrace.model.policy.rules import (
    LIMITS_NAME,
    USER_LIMITS,
    VHOST_LIMITS,
    check_parameter,
)
from headrace.server.config.json_values import as_json
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.users import read_user_name
from headrace.server.management.resources.vhosts import read_vhost_name
from headrace.user_tags import ADMINISTER, LOOK

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.server.management.call import Call, JsonLine, Steps
    from headrace.store.catalog.users import UserDirectory

operation = OperationTable()


@operation("list limits", LOOK, reads=True, fields="`vhost`, `of`: `vhosts` or `users`")
def list_limits(call: Call) -> Steps:
    """List the limits of virtual hosts; those of users if ``of`` is ``users``."""
    of_users = call.text("of", "vhosts") == "users"
    component = USER_LIMITS if of_users else VHOST_LIMITS
    count = 0
    for key, value in list(call.broker.access.snapshot.parameters.items()):
        name = key.name if of_users else key.vhost
        is_shown = call.sees_account(name) if of_users else call.sees_vhost(name)
        if key.component != component or not is_shown:
            yield None
            continue
        count += 1
        yield {"user" if of_users else "vhost": name, "value": as_json(value)}
    return {"items": count}


@operation("put limit", ADMINISTER, fields="`vhost` or `user`, `name`, `value`")
async def put_limit(call: Call) -> JsonLine:
    """Set one limit of a virtual host, or of a ``user``."""
    key, name = read_limits_key(call), call.text("name")
    value = call.number("value", minimum=-1)
    try:
        check_parameter(key.component, key.name, {name: value})
    except InvalidArgument as error:
        call.refuse("bad-request", error.text)

    def set_limit(limits: dict[str, object]) -> None:
        limits[name] = value

    return await change_limits(call, key, set_limit)


@operation("delete limit", ADMINISTER, fields="`vhost` or `user`, `name`")
async def delete_limit(call: Call) -> JsonLine:
    """Remove one limit of a virtual host, or of a ``user``."""
    key, name = read_limits_key(call), call.text("name")
    if name not in call.broker.access.snapshot.parameters.get(key, {}):
        call.refuse("not-found", f"there is no limit '{name}'")

    def remove_limit(limits: dict[str, object]) -> None:
        limits.pop(name, None)

    return await change_limits(call, key, remove_limit)


def read_limits_key(call: Call) -> Key:
    """Return the key of the limits of ``user``, or without one of ``vhost``."""
    if call.request.get("user") is None:
        return Key(read_vhost_name(call), VHOST_LIMITS, LIMITS_NAME)
    return Key(EVERYWHERE, USER_LIMITS, read_user_name(call))


async def change_limits(
    call: Call, key: Key, change: Callable[[dict[str, object]], None]
) -> JsonLine:
    """Change the limits under ``key``, on the thread that reads and writes users.

    ``created`` of the answer is true if there were no limits under the key.
    """

    def work(users: UserDirectory) -> bool:
        old_limits = users.parameters.all().get(key)
        limits = dict(old_limits or {})
        change(limits)
        if limits:
            users.parameters.change({key: limits})
        elif old_limits is not None:
            users.parameters.clear(*key)
        return old_limits is None

    return {"created": await call.broker.accounts.perform(work, call.actor)}
