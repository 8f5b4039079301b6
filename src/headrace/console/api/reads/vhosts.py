# SPDX-License-Identifier: Apache-2.0
"""``/api/vhosts``: the virtual hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common import own_counts
from headrace.console.api.common.rows import find_now
from headrace.console.api.common.samples import depths, message_stats, octets
from headrace.console.http.answers import Listed
from headrace.console.http.errors import not_found
from headrace.console.http.routes import Route
from headrace.node_name import node_name
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import Tracked
    from headrace.untyped import JsonObject


async def list_vhosts(call: HttpCall) -> object:
    """Return the virtual hosts that the user sees."""
    found = await call.state.vhosts.all()
    seen = [one for one in found if call.identity.sees_vhost(one.text("name"))]
    return Listed([vhost_of(call, one) for one in seen], ("name",))


async def show_vhost(call: HttpCall) -> object:
    """Return one virtual host."""
    name = call.path["vhost"]
    if not call.identity.sees_vhost(name):
        raise not_found()
    return vhost_of(call, await find_now(call, call.state.vhosts, name))


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


async def permissions(call: HttpCall) -> object:
    """Return the permissions in a virtual host."""
    return Listed(await of_vhost(call, "list permissions"), ("user",))


async def topic_permissions(call: HttpCall) -> object:
    """Return the topic permissions in a virtual host."""
    return Listed(await of_vhost(call, "list topic permissions"), ("user", "exchange"))


async def of_vhost(call: HttpCall, do: str) -> list[JsonObject]:
    """Return the rows of a list in a virtual host, which exists."""
    name = call.path["vhost"]
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
