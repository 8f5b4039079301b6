# SPDX-License-Identifier: Apache-2.0
"""``/api/consumers``: the consumers of queues and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.lookups import read_rows
from headrace.console.api.common.schemas import (
    FLAG,
    OBJECT,
    TEXT,
    UINT32,
    WHOLE,
    record,
)
from headrace.console.api.connections import (
    ConnectionFields,
    connection_details,
    read_connection_fields,
)
from headrace.console.broker.lists import CONSUMERS
from headrace.console.http.answers import RowList
from headrace.console.http.routes import ACCESS, Routes
from headrace.node_name import node_name
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.management_rows import ConsumerRow
    from headrace.untyped import JsonObject

CONSUMER_SCHEMA = record(
    consumer_tag=TEXT,
    active=FLAG,
    ack_required=FLAG,
    prefetch_count=UINT32,
    exclusive=FLAG,
    arguments=OBJECT,
    consumer_timeout=WHOLE,
    queue=record(name=TEXT, vhost=TEXT),
    channel_details=OBJECT,
)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/consumers": "The consumers.",
        "/api/consumers/{vhost}": "The consumers of a virtual host.",
    },
    rows=CONSUMER_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_consumers(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the consumers of a virtual host, or of all that the user sees."""
    connections = await read_connection_fields(call)
    rows = await read_rows(call, CONSUMERS, vhost)
    return RowList(
        [describe_consumer(row, connections) for row in rows], ("queue.vhost", "queue.name")
    )


def describe_consumer(row: ConsumerRow, connections: ConnectionFields) -> JsonObject:
    """Return a consumer as RabbitMQ describes it."""
    connection = connection_details(row["connection"], connections)
    arguments = row["arguments"] or {}
    timeout = arguments.get("x-consumer-timeout")
    return {
        "consumer_tag": row["tag"],
        "queue": {"name": row["queue"], "vhost": row["vhost"]},
        "ack_required": row["ack"],
        "active": row["active"],
        "activity_status": "up" if row["active"] else "waiting",
        "exclusive": row["exclusive"],
        "prefetch_count": row["prefetch"],
        "consumer_timeout": timeout if isinstance(timeout, int) else 0,
        "arguments": arguments,
        "channel_details": {
            "name": f"{connection['name']} ({row['channel']})",
            "connection_name": connection["name"],
            "node": node_name(),
            "number": row["channel"],
            "peer_host": connection["peer_host"],
            "peer_port": connection["peer_port"],
            "user": row["user"],
        },
    }
