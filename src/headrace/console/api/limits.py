# SPDX-License-Identifier: Apache-2.0
"""``/api/vhost-limits`` and ``/api/user-limits``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import INTEGER, Body, schema
from headrace.console.api.common.lookups import existing_vhost
from headrace.console.api.common.schemas import OBJECT, TEXT, record
from headrace.console.broker.lists import USER_LIMITS, VHOST_LIMITS
from headrace.console.http.answers import RowList
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall

VHOST_LIMIT = "/api/vhost-limits/{vhost}/{name}"
USER_LIMIT = "/api/user-limits/{user}/{name}"
VALUE = schema(("value",), value=INTEGER)
VHOST_LIMITS_SCHEMA = record(vhost=TEXT, value=OBJECT)
USER_LIMITS_SCHEMA = record(user=TEXT, value=OBJECT)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/vhost-limits": "The limits of virtual hosts.",
        "/api/vhost-limits/{vhost}": "The limits of a virtual host.",
    },
    rows=VHOST_LIMITS_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_vhost_limits(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the limits of the virtual hosts that the user sees, or of one."""
    vhost = await existing_vhost(call, vhost)
    rows = [row for row in await call.broker.rows(VHOST_LIMITS) if vhost in (None, row["vhost"])]
    return RowList(rows, ("vhost",))


@ROUTES.get_list(
    {
        "/api/user-limits": "The limits of users.",
        "/api/user-limits/{user}": "The limits of a user.",
    },
    rows=USER_LIMITS_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_user_limits(call: HttpCall, user: str | None = None) -> RowList:
    """Return the limits of users: the user's own, or all for an administrator."""
    rows = await call.broker.rows(USER_LIMITS)
    return RowList([row for row in rows if user in (None, row["user"])], ("user",))


@ROUTES.put({VHOST_LIMIT: "Set a limit of a virtual host."}, tag=ADMINISTRATOR, body=VALUE)
async def put_vhost_limit(call: HttpCall, vhost: str, name: str) -> None:
    """Set a limit of a virtual host; the answer is always 204, as in RabbitMQ."""
    await set_limit(call, name, await read_limit(call), vhost=vhost)


@ROUTES.delete({VHOST_LIMIT: "Remove a limit of a virtual host."}, tag=ADMINISTRATOR)
async def remove_vhost_limit(call: HttpCall, vhost: str, name: str) -> None:
    """Remove one limit of a virtual host."""
    await remove_limit(call, name, vhost=vhost)


@ROUTES.put({USER_LIMIT: "Set a limit of a user."}, tag=ADMINISTRATOR, body=VALUE)
async def put_user_limit(call: HttpCall, user: str, name: str) -> None:
    """Set a limit of a user; the answer is always 204, as in RabbitMQ."""
    await set_limit(call, name, await read_limit(call), user=user)


@ROUTES.delete({USER_LIMIT: "Remove a limit of a user."}, tag=ADMINISTRATOR)
async def remove_user_limit(call: HttpCall, user: str, name: str) -> None:
    """Remove one limit of a user."""
    await remove_limit(call, name, user=user)


async def read_limit(call: HttpCall) -> int | None:
    """Return the limit in a body."""
    return (await Body.read(call)).number("value")


async def set_limit(
    call: HttpCall,
    name: str,
    value: int | None,
    *,
    vhost: str | None = None,
    user: str | None = None,
) -> None:
    """Set one limit of a virtual host or of a user."""
    await call.broker.ask("put limit", vhost=vhost, user=user, name=name, value=value)


async def remove_limit(
    call: HttpCall, name: str, *, vhost: str | None = None, user: str | None = None
) -> None:
    """Remove one limit of a virtual host or of a user."""
    await call.broker.ask("delete limit", vhost=vhost, user=user, name=name)
