# SPDX-License-Identifier: Apache-2.0
"""``/api/queues``: the queues of a virtual host, or of all that the user sees."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.console.api.clients import connection_names, consumer_of
from headrace.console.api.common.node import node_name
from headrace.console.api.common.rows import absent, wanted_vhost
from headrace.console.api.common.samples import PARAMETERS, RATES, depths, message_stats
from headrace.console.http.answers import Described
from headrace.console.http.errors import not_found
from headrace.console.http.routes import MANAGEMENT, Route
from headrace.console.state.rings import Ring

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.console.http.call import HttpCall
    from headrace.console.state.feed import Tracked
    from headrace.untyped import JsonObject

SEES = "the virtual hosts that the user sees"
ACCESS = "access to the virtual host"
#: Columns that a list is sorted by without its rows being made.
COLUMNS: dict[str, Callable[[Tracked], float] | Callable[[Tracked], str]] = {
    "name": lambda one: one.row["name"],
    "vhost": lambda one: one.row["vhost"],
    "type": lambda one: one.row["type"],
    "durable": lambda one: one.row["durable"],
    "consumers": lambda one: one.row["consumers"],
    "memory": lambda one: one.row["bytes"],
    "message_bytes": lambda one: one.row["bytes"],
    "messages": lambda one: one.row["ready"] + one.row["unacked"],
    "messages_ready": lambda one: one.row["ready"],
    "messages_unacknowledged": lambda one: one.row["unacked"],
    "message_stats.publish": lambda one: one.row["published"],
    "message_stats.deliver_get": lambda one: one.row["delivered"],
    "message_stats.ack": lambda one: one.row["acknowledged"],
}


async def list_queues(call: HttpCall) -> object:
    """Return the queues of the virtual host in the path, or of all that the user sees."""
    found = await call.state.queues.all()
    vhost, identity = wanted_vhost(call), call.identity
    if vhost is not None:
        await check_exists(call, vhost)
        found = [one for one in found if one.row["vhost"] == vhost]
    elif not identity.sees_all:
        found = [one for one in found if identity.sees_vhost(one.row["vhost"])]
    now_ms, query = call.state.queues.now_ms, call.query
    return Described(
        found,
        lambda one: described(one.row, one.ring, now_ms, query),
        lambda one: str(one.row["name"]),
        {**COLUMNS, **rates(now_ms)},
    )


def rates(now_ms: int) -> dict[str, Callable[[Tracked], float]]:
    """Return the columns of rates, as of a moment."""
    return {
        f"message_stats.{name}_details.rate": partial(rate, at, now_ms)
        for name, at in RATES.items()
    }


def rate(at: int, now_ms: int, one: Tracked) -> float:
    """Return one rate of a queue."""
    return one.ring.rate(at, now_ms)


async def check_exists(call: HttpCall, vhost: str) -> None:
    """Refuse a virtual host that does not exist, or that the user does not see.

    Raises:
        HttpError: it is so.
    """
    if not call.identity.sees_vhost(vhost):
        raise not_found()
    if vhost not in call.identity.vhosts:  # It may be new, or one that the user only sees.
        with absent():
            await call.ask("show vhost", vhost=vhost)


async def show_queue(call: HttpCall) -> object:
    """Return one queue, as it is now."""
    vhost, name = call.path["vhost"], call.path["queue"]
    with absent():
        row = await call.ask("show queue", vhost=vhost, name=name)
    one: Tracked | None = call.state.queues.objects.get((vhost, name))
    ring = Ring() if one is None else one.ring
    names = await connection_names(call)
    shown = described(row, ring, call.state.queues.now_ms, call.query)
    return {
        **shown,
        "effective_policy_definition": {},
        "user_who_performed_action": row["user"],
        "consumer_details": [consumer_of(consumer, names) for consumer in row["consumer_list"]],
        "incoming": [],
        "deliveries": [],
    }


def described(row: JsonObject, ring: Ring, now_ms: int, query: Mapping[str, str]) -> JsonObject:
    """Return a queue as RabbitMQ describes it."""
    ready, unacked = row["ready"], row["unacked"]
    node = node_name()
    counts = {
        "publish": row["published"],
        "deliver_get": row["delivered"],
        "ack": row["acknowledged"],
    }
    shown = {
        "name": row["name"],
        "vhost": row["vhost"],
        "type": row["type"],
        "node": node,
        "leader": node,
        "members": [node],
        "online": [node],
        "state": "running",
        "durable": row["durable"],
        "auto_delete": row["auto_delete"],
        "exclusive": row["exclusive"],
        "arguments": row["arguments"] or {},
        "policy": row["policy"] or None,
        "operator_policy": row["operator_policy"] or None,
        "effective_policy_definition": {},
        "consumers": row["consumers"],
        "consumer_capacity": 0,
        "consumer_utilisation": 0,
        "exclusive_consumer_tag": None,
        "single_active_consumer_tag": None,
        "idle_since": None,
        "head_message_timestamp": None,
        "memory": row["bytes"],
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "message_bytes": row["bytes"],
        "message_bytes_ready": row["bytes"],
        "message_bytes_unacknowledged": 0,
        "message_bytes_ram": row["bytes"],
        "message_bytes_persistent": row["bytes"] if row["durable"] else 0,
    }
    if query.get("disable_stats") == "true":
        return shown
    shown.update(depths(ring, now_ms, query))
    shown["message_stats"] = message_stats(counts, ring, now_ms, query)
    return shown


ROUTES = (
    *(
        Route("GET", path, list_queues, MANAGEMENT, permission, summary, PARAMETERS, paged=True)
        for path, permission, summary in (
            ("/api/queues", SEES, "All queues that the user sees."),
            ("/api/queues/detailed", SEES, "The same, for clients that ask for all statistics."),
            ("/api/queues/{vhost}", ACCESS, "The queues of a virtual host."),
        )
    ),
    Route(
        "GET",
        "/api/queues/{vhost}/{queue}",
        show_queue,
        MANAGEMENT,
        ACCESS,
        "One queue.",
        PARAMETERS,
    ),
)
