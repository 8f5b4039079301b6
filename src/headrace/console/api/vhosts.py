# SPDX-License-Identifier: Apache-2.0
"""``/api/vhosts``: the virtual hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.node import node_name
from headrace.console.api.common.rows import absent, only
from headrace.console.http.answers import Listed
from headrace.console.http.routes import ADMINISTRATOR, MANAGEMENT, Route

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject


async def list_vhosts(call: HttpCall) -> object:
    """Return the virtual hosts that the user sees."""
    rows = await call.rows("list vhosts")
    return Listed([await vhost_of(call, row) for row in rows], ("name",))


async def show_vhost(call: HttpCall) -> object:
    """Return one virtual host."""
    name = call.path["vhost"]
    with absent():
        row = only(await call.rows("list vhosts", vhost=name), name=name)
        return await vhost_of(call, row)


async def vhost_of(call: HttpCall, row: JsonObject) -> JsonObject:
    """Return a virtual host as RabbitMQ describes it."""
    name = row["name"]
    shown = await call.ask("show vhost", vhost=name)
    ready, unacked = row["ready"], row["unacked"]
    return {
        "name": name,
        "description": shown["description"],
        "tags": shown["tags"],
        "metadata": {
            "description": shown["description"],
            "tags": shown["tags"],
            "default_queue_type": shown["default_queue_type"] or "classic",
        },
        "default_queue_type": shown["default_queue_type"] or "classic",
        "protected_from_deletion": shown["protected_from_deletion"],
        "tracing": shown["tracing"],
        "cluster_state": {node_name(): "running"},
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "message_stats": {},
        "recv_oct": 0,
        "send_oct": 0,
    }


async def permissions(call: HttpCall) -> object:
    """Return the permissions in a virtual host."""
    return Listed(await of_vhost(call, "list permissions"), ("user",))


async def topic_permissions(call: HttpCall) -> object:
    """Return the topic permissions in a virtual host."""
    return Listed(await of_vhost(call, "list topic permissions"), ("user", "exchange"))


async def of_vhost(call: HttpCall, do: str) -> list[JsonObject]:
    """Return the rows of a list in a virtual host, which exists."""
    name = call.path["vhost"]
    with absent():
        await call.ask("show vhost", vhost=name)
    return await call.rows(do, vhost=name)


ROUTES = (
    Route(
        "GET",
        "/api/vhosts",
        list_vhosts,
        MANAGEMENT,
        "the virtual hosts that the user sees",
        "The virtual hosts.",
        paged=True,
    ),
    Route(
        "GET",
        "/api/vhosts/{vhost}",
        show_vhost,
        MANAGEMENT,
        "access to the virtual host",
        "One virtual host.",
    ),
    Route(
        "GET",
        "/api/vhosts/{vhost}/permissions",
        permissions,
        ADMINISTRATOR,
        "",
        "The permissions in a virtual host.",
        paged=True,
    ),
    Route(
        "GET",
        "/api/vhosts/{vhost}/topic-permissions",
        topic_permissions,
        ADMINISTRATOR,
        "",
        "The topic permissions in a virtual host.",
        paged=True,
    ),
)
