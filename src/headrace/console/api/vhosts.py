# SPDX-License-Identifier: Apache-2.0
"""``/api/vhosts``: the virtual hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.node import node_name
from headrace.console.api.common.rows import absent, only
from headrace.console.api.common.samples import RATES, depths, message_stats
from headrace.console.http.answers import Listed
from headrace.console.http.routes import ADMINISTRATOR, MANAGEMENT, Route

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject


async def list_vhosts(call: HttpCall) -> object:
    """Return the virtual hosts that the user sees."""
    await sampled(call)
    rows = [one.row for one in await call.state.vhosts.all()]
    seen = [row for row in rows if call.identity.sees_vhost(row["name"])]
    return Listed([vhost_of(call, row) for row in seen], ("name",))


async def show_vhost(call: HttpCall) -> object:
    """Return one virtual host."""
    name = call.path["vhost"]
    with absent():
        set_for = await call.ask("show vhost", vhost=name)
    await sampled(call)
    await call.state.vhosts.refresh()
    if (name,) not in call.state.vhosts.objects:
        await call.state.vhosts.read()
    row = only([one.row for one in call.state.vhosts.objects.values()], name=name)
    return vhost_of(call, {**row, **set_for})


async def sampled(call: HttpCall) -> None:
    """Have the sums of queues as of now."""
    await call.state.queues.refresh()
    call.state.add_up()


def vhost_of(call: HttpCall, row: JsonObject) -> JsonObject:
    """Return a virtual host as RabbitMQ describes it."""
    name, ready, unacked = row["name"], row["ready"], row["unacked"]
    kind = row["default_queue_type"] or "classic"
    now_ms = call.state.queues.now_ms
    ring = call.state.sum_of([name])
    counts = dict(zip(RATES, ring.values(now_ms)[min(RATES.values()) :], strict=True))
    return {
        "name": name,
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
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        **depths(ring, now_ms, call.query),
        "message_stats": message_stats(counts, ring, now_ms, call.query),
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
