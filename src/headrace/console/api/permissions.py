# SPDX-License-Identifier: Apache-2.0
"""``/api/permissions`` and ``/api/topic-permissions``, of all users, one user or virtual host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import Body, schema
from headrace.console.api.common.lookups import AnyRow, find_row
from headrace.console.api.common.schemas import TEXT, record
from headrace.console.api.users import USER
from headrace.console.api.vhosts import VHOST
from headrace.console.broker.lists import PERMISSIONS, TOPIC_PERMISSIONS, ListOperation
from headrace.console.http.answers import RowList, created_or_no_content
from headrace.console.http.routes import Routes
from headrace.console.http_errors import bad_request, not_found
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonRow

PERMISSION = "/api/permissions/{vhost}/{user}"
TOPIC = "/api/topic-permissions/{vhost}/{user}"
TOPIC_OF_EXCHANGE = f"{TOPIC}/{{exchange}}"
BY_VHOST, BY_EXCHANGE = ("vhost", "user"), ("vhost", "user", "exchange")
PERMISSION_SCHEMA = record(user=TEXT, vhost=TEXT, configure=TEXT, write=TEXT, read=TEXT)
TOPIC_PERMISSION_SCHEMA = record(user=TEXT, vhost=TEXT, exchange=TEXT, write=TEXT, read=TEXT)
ROUTES = Routes()


@ROUTES.get_list(
    {f"{USER}/permissions": "The permissions of a user."}, rows=PERMISSION_SCHEMA, tag=ADMINISTRATOR
)
async def list_permissions_of_user(call: HttpCall, user: str) -> RowList:
    """Return the permissions of a user; 404 for an unknown user."""
    return await read_user_rows(call, PERMISSIONS, user, BY_VHOST)


@ROUTES.get_list(
    {f"{USER}/topic-permissions": "The topic permissions of a user."},
    rows=TOPIC_PERMISSION_SCHEMA,
    tag=ADMINISTRATOR,
)
async def list_topic_permissions_of_user(call: HttpCall, user: str) -> RowList:
    """Return the topic permissions of a user; 404 for an unknown user."""
    return await read_user_rows(call, TOPIC_PERMISSIONS, user, BY_EXCHANGE)


async def read_user_rows(
    call: HttpCall, listing: ListOperation[AnyRow], user: str, order: tuple[str, ...]
) -> RowList:
    """Return the rows of a user; 404 for an unknown user."""
    await call.broker.ask("show user", name=user)
    return RowList(await call.broker.rows(listing, user=user), order)


@ROUTES.get_list(
    {"/api/permissions": "The permissions."}, rows=PERMISSION_SCHEMA, tag=ADMINISTRATOR
)
async def list_permissions(call: HttpCall) -> RowList:
    """Return the permissions of all users."""
    return RowList(await call.broker.rows(PERMISSIONS), BY_VHOST)


@ROUTES.get_list(
    {"/api/topic-permissions": "The topic permissions."},
    rows=TOPIC_PERMISSION_SCHEMA,
    tag=ADMINISTRATOR,
)
async def list_topic_permissions(call: HttpCall) -> RowList:
    """Return the topic permissions of all users."""
    return RowList(await call.broker.rows(TOPIC_PERMISSIONS), BY_EXCHANGE)


@ROUTES.get_list(
    {
        TOPIC: "The topic permissions of a user in a virtual host; 404 without any.",
        TOPIC_OF_EXCHANGE: "The same at one exchange, as a list.",
    },
    rows=TOPIC_PERMISSION_SCHEMA,
    tag=ADMINISTRATOR,
)
async def list_topic_permissions_in(
    call: HttpCall, vhost: str, user: str, exchange: str | None = None
) -> RowList:
    """Return the topic permissions of a user in a virtual host, of all exchanges or of one.

    Raises:
        HttpError: 404, the user has no topic permissions there.
    """
    rows = await read_user_rows_in_vhost(call, TOPIC_PERMISSIONS, vhost, user)
    if exchange is not None:
        rows = [row for row in rows if row["exchange"] == exchange]
    if not rows:  # As RabbitMQ does: clients check that a removal succeeded.
        raise not_found()
    return RowList(rows, ("exchange",))


async def show_topic_permission(call: HttpCall, vhost: str, user: str, exchange: str) -> JsonRow:
    """Return the topic permissions of a user at an exchange.

    Raises:
        HttpError: 404, the user has no topic permissions there.
    """
    return (await list_topic_permissions_in(call, vhost, user, exchange)).rows[0]


@ROUTES.get(
    {PERMISSION: "The permissions of a user in a virtual host."},
    tag=ADMINISTRATOR,
    answer=PERMISSION_SCHEMA,
)
async def show_permission(call: HttpCall, vhost: str, user: str) -> JsonRow:
    """Return the permissions of a user in a virtual host."""
    return find_row(await read_user_rows_in_vhost(call, PERMISSIONS, vhost, user))


async def read_user_rows_in_vhost(
    call: HttpCall, listing: ListOperation[AnyRow], vhost: str, user: str
) -> list[AnyRow]:
    """Return the rows of a user in a virtual host; 404 if one of them is unknown."""
    await call.broker.ask("show vhost", vhost=vhost)
    await call.broker.ask("show user", name=user)
    return await call.broker.rows(listing, vhost=vhost, user=user)


@ROUTES.put(
    {PERMISSION: "Set the permissions of a user in a virtual host."},
    tag=ADMINISTRATOR,
    body=schema(("configure", "write", "read"), configure=TEXT, write=TEXT, read=TEXT),
)
async def put_permission(call: HttpCall, vhost: str, user: str) -> Answer:
    """Set the permissions of a user in a virtual host."""
    body = await Body.read(call)
    configure, write, read = (body.text(name) for name in ("configure", "write", "read"))
    is_new = await set_permission(call, vhost, user, configure=configure, write=write, read=read)
    return created_or_no_content(is_new=is_new)


async def set_permission(
    call: HttpCall, vhost: str, user: str, *, configure: str, write: str, read: str
) -> bool:
    """Set the permissions of a user in a virtual host; return False if they replace others."""
    done = await call.broker.ask(
        "put permission", vhost=vhost, user=user, configure=configure, write=write, read=read
    )
    return bool(done["created"])


@ROUTES.delete(
    {PERMISSION: "Remove the permissions of a user in a virtual host."}, tag=ADMINISTRATOR
)
async def remove_permission(call: HttpCall, vhost: str, user: str) -> None:
    """Remove the permissions of a user in a virtual host."""
    await call.broker.ask("delete permission", vhost=vhost, user=user)


@ROUTES.put(
    {TOPIC: "Restrict a user's routing keys at a topic exchange."},
    tag=ADMINISTRATOR,
    body=schema(("exchange", "write", "read"), exchange=TEXT, write=TEXT, read=TEXT),
)
@ROUTES.put(
    {TOPIC_OF_EXCHANGE: "Restrict a user's routing keys at the topic exchange in the path."},
    tag=ADMINISTRATOR,
    body=schema(("write", "read"), exchange=TEXT, write=TEXT, read=TEXT),
)
async def put_topic_permission(
    call: HttpCall, vhost: str, user: str, exchange: str | None = None
) -> Answer:
    """Restrict the routing keys of a user at a topic exchange, named in the path or in the body."""
    body = await Body.read(call)
    name = body.text("exchange", exchange or "")
    if exchange not in (None, name):
        raise bad_request("'exchange' in the body differs from the one in the path")
    write, read = body.text("write"), body.text("read")
    is_new = await set_topic_permission(call, vhost, user, name, write=write, read=read)
    return created_or_no_content(is_new=is_new)


async def set_topic_permission(
    call: HttpCall, vhost: str, user: str, exchange: str, *, write: str, read: str
) -> bool:
    """Restrict the routing keys of a user at an exchange; return False if this replaces others."""
    done = await call.broker.ask(
        "put topic permission", vhost=vhost, user=user, exchange=exchange, write=write, read=read
    )
    return bool(done["created"])


@ROUTES.delete(
    {
        TOPIC: "Remove all topic permissions of a user in a virtual host.",
        TOPIC_OF_EXCHANGE: "Remove the topic permissions of a user at one exchange.",
    },
    tag=ADMINISTRATOR,
)
async def remove_topic_permission(
    call: HttpCall, vhost: str, user: str, exchange: str | None = None
) -> None:
    """Remove the topic permissions of a user in a virtual host, at one exchange or at all."""
    await call.broker.ask("delete topic permission", vhost=vhost, user=user, exchange=exchange)


@ROUTES.get_list(
    {f"{VHOST}/permissions": "The permissions in a virtual host."},
    rows=PERMISSION_SCHEMA,
    tag=ADMINISTRATOR,
)
async def list_permissions_in_vhost(call: HttpCall, vhost: str) -> RowList:
    """Return the permissions in a virtual host."""
    return RowList(await read_vhost_rows(call, PERMISSIONS, vhost), ("user",))


@ROUTES.get_list(
    {f"{VHOST}/topic-permissions": "The topic permissions in a virtual host."},
    rows=TOPIC_PERMISSION_SCHEMA,
    tag=ADMINISTRATOR,
)
async def list_topic_permissions_in_vhost(call: HttpCall, vhost: str) -> RowList:
    """Return the topic permissions in a virtual host."""
    return RowList(await read_vhost_rows(call, TOPIC_PERMISSIONS, vhost), ("user", "exchange"))


async def read_vhost_rows(
    call: HttpCall, listing: ListOperation[AnyRow], vhost: str
) -> list[AnyRow]:
    """Return the rows of a list in a virtual host; 404 if it is unknown."""
    await call.broker.ask("show vhost", vhost=vhost)
    return await call.broker.rows(listing, vhost=vhost)
