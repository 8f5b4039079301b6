# SPDX-License-Identifier: Apache-2.0
"""``/api/queues``: the queues of a virtual host, or of all that the user sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.node import node_name
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Listed
from headrace.console.http.errors import not_found
from headrace.console.http.routes import MANAGEMENT, Route

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject


async def list_queues(call: HttpCall) -> object:
    """Return the queues of the virtual host in the path, or of all that the user sees."""
    rows = await rows_of_vhost(call, "list queues")
    return Listed([described(row) for row in rows])


async def show_queue(call: HttpCall) -> object:
    """Return one queue."""
    try:
        row = await call.ask("show queue", vhost=call.path["vhost"], name=call.path["queue"])
    except OperationRefused as error:
        if error.code == "not-found":
            raise not_found() from None
        raise
    return {**described(row), "consumer_details": [], "incoming": [], "deliveries": []}


async def rows_of_vhost(call: HttpCall, do: str) -> list[JsonObject]:
    """Return the rows of a list, of the virtual host in the path where there is one.

    Raises:
        HttpError: there is no such virtual host, or the user does not see it.
    """
    try:
        return await call.rows(do, vhost=call.path.get("vhost"))
    except OperationRefused as error:
        if error.code == "not-found":
            raise not_found() from None
        raise


def described(row: JsonObject) -> JsonObject:
    """Return a queue as RabbitMQ describes it."""
    ready, unacked = row["ready"], row["unacked"]
    node = node_name()
    return {
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
        "messages_details": {"rate": 0.0},
        "messages_ready_details": {"rate": 0.0},
        "messages_unacknowledged_details": {"rate": 0.0},
        "message_bytes": row["bytes"],
        "message_bytes_ready": row["bytes"],
        "message_bytes_unacknowledged": 0,
        "message_bytes_ram": row["bytes"],
        "message_bytes_persistent": row["bytes"] if row["durable"] else 0,
        "message_stats": {},
    }


ROUTES = (
    Route(
        "GET",
        "/api/queues",
        list_queues,
        MANAGEMENT,
        "the virtual hosts that the user sees",
        "All queues that the user sees.",
        paged=True,
        aliases=("/api/queues/detailed",),
    ),
    Route(
        "GET",
        "/api/queues/{vhost}",
        list_queues,
        MANAGEMENT,
        "access to the virtual host",
        "The queues of a virtual host.",
        paged=True,
    ),
    Route(
        "GET",
        "/api/queues/{vhost}/{queue}",
        show_queue,
        MANAGEMENT,
        "access to the virtual host",
        "One queue.",
    ),
)
