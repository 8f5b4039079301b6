# SPDX-License-Identifier: Apache-2.0
"""``/api/vhosts``: the virtual hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common import own_counts
from headrace.console.api.common.rows import find_now
from headrace.console.api.common.samples import depths, message_stats, octets
from headrace.console.http.answers import Listed
from headrace.console.http.errors import not_found
from headrace.console.http.routes import Route, by_path
from headrace.node_name import node_name
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import Tracked
    from headrace.untyped import JsonObject


async def list_vhosts(call: HttpCall) -> Listed:
    """Return the virtual hosts that the user sees."""
    found = await call.state.vhosts.all()
    seen = [one for one in found if call.identity.sees_vhost(one.text("name"))]
    return Listed([vhost_of(call, one) for one in seen], ("name",))


async def show_vhost(call: HttpCall, vhost: str) -> JsonObject:
    """Return one virtual host."""
    if not call.identity.sees_vhost(vhost):
        raise not_found()
    return vhost_of(call, await find_now(call, call.state.vhosts, vhost))


def vhost_of(call: HttpCall, one: Tracked) -> JsonObject:
    """Return a virtual host as RabbitMQ describes it."""
    row = one.row
    kind = row["default_queue_type"]
    return {
        "name": row["name"],
        "description": row["description"],
        "tags": row["tags"],
        "metadata": {
            "description": row["description"],
            "tags": row["tags"],
            "default_queue_type": kind,
        },
        "default_queue_type": kind,
        "protected_from_deletion": row["protected_from_deletion"],
        "tracing": row["tracing"],
        "cluster_state": {node_name(): "running"},
        **depths(one, call.query),
        "message_stats": message_stats(one, call.query),
        **octets(one, call.query),
        own_counts.KEY: {own_counts.DEAD: own_counts.dead_letters([one])},
    }


async def permissions(call: HttpCall, vhost: str) -> Listed:
    """Return the permissions in a virtual host."""
    return Listed(await of_vhost(call, "list permissions", vhost), ("user",))


async def topic_permissions(call: HttpCall, vhost: str) -> Listed:
    """Return the topic permissions in a virtual host."""
    return Listed(await of_vhost(call, "list topic permissions", vhost), ("user", "exchange"))


async def of_vhost(call: HttpCall, do: str, vhost: str) -> list[JsonObject]:
    """Return the rows of a list in a virtual host, which exists."""
    await call.ask("show vhost", vhost=vhost)
    return await call.rows(do, vhost=vhost)


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
        by_path(show_vhost),
        MANAGEMENT,
        "access to the virtual host",
        "One virtual host.",
    ),
    Route(
        "GET",
        "/api/vhosts/{vhost}/permissions",
        by_path(permissions),
        ADMINISTRATOR,
        "",
        "The permissions in a virtual host.",
        paged=True,
    ),
    Route(
        "GET",
        "/api/vhosts/{vhost}/topic-permissions",
        by_path(topic_permissions),
        ADMINISTRATOR,
        "",
        "The topic permissions in a virtual host.",
        paged=True,
    ),
)
