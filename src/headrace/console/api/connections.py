# SPDX-License-Identifier: Apache-2.0
"""``/api/connections``: the clients' connections, and closing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.alarms import active_alarms, alarm_reasons
from headrace.console.api.common.lookups import existing_vhost
from headrace.console.api.common.samples import DETAILS_SCHEMA, byte_counts, message_stats
from headrace.console.api.common.schemas import OBJECT, TEXT, UINT32, WHOLE, record
from headrace.console.http.answers import RowList
from headrace.console.http.routes import ACCESS, Routes
from headrace.console.http_errors import bad_request, not_found
from headrace.node_name import node_name
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import SampledObject
    from headrace.management_rows import AlarmRow
    from headrace.untyped import JsonObject

OWN = "the user's own; all with monitoring"
OWN_TO_CLOSE = "the user's own; all with administrator"
#: Fields of connections that channels and consumers show, by the connection's id.
ConnectionFields = dict[int, "JsonObject"]
REASON_WITHOUT_HEADER = "Closed via management plugin"  # RabbitMQ's text.
CONNECTION = "/api/connections/{name}"
CONNECTION_SCHEMA = record(
    name=TEXT,
    node=TEXT,
    protocol=TEXT,
    user=TEXT,
    vhost=TEXT,
    state=TEXT,
    connected_at=WHOLE,
    client_properties=OBJECT,
    channels=WHOLE,
    peer_host=TEXT,
    peer_port=UINT32,
    recv_oct=WHOLE,
    recv_oct_details=DETAILS_SCHEMA,
    send_oct=WHOLE,
    send_oct_details=DETAILS_SCHEMA,
    message_stats=OBJECT,
)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/connections": "The connections.",
        "/api/connections/username/{username}": "The connections of a user.",
    },
    rows=CONNECTION_SCHEMA,
    tag=MANAGEMENT,
    permission=OWN,
)
@ROUTES.get_list(
    {"/api/vhosts/{vhost}/connections": "The connections of a virtual host."},
    rows=CONNECTION_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_connections(
    call: HttpCall, vhost: str | None = None, username: str | None = None
) -> RowList:
    """Return the connections that the user sees, of a virtual host or a user if one is named."""
    vhost = await existing_vhost(call, vhost)
    listens = await listener_urls(call)
    alarms = await active_alarms(call)
    rows = []
    for connection in await call.state.connections.all():
        owner = connection.text("user")
        is_listed = vhost in (None, connection.text("vhost")) and username in (None, owner)
        if is_listed and call.identity.sees_user(owner):
            rows.append(describe_connection(connection, call.query, listens, alarms))
    return RowList(rows, ("name",))


@ROUTES.get(
    {CONNECTION: "One connection."}, tag=MANAGEMENT, permission=OWN, answer=CONNECTION_SCHEMA
)
async def show_connection(call: HttpCall, name: str) -> JsonObject:
    """Return one connection, with the properties of its client."""
    connection = await find_connection(call, name)
    row = describe_connection(
        connection, call.query, await listener_urls(call), await active_alarms(call)
    )
    details = await call.broker.ask("show connection", id=connection.row["number"])
    return {**row, "client_properties": details["client_properties"] or {}}


@ROUTES.get(
    {f"{CONNECTION}/sessions": "400: there is no AMQP 1.0; sessions of 0-10 are channels."},
    tag=MANAGEMENT,
    permission=OWN,
)
async def list_sessions_of_connection(call: HttpCall, name: str) -> None:
    """Answer 400 as RabbitMQ does for a connection of another protocol than AMQP 1.0."""
    await find_connection(call, name)
    raise bad_request("connection does not use AMQP 1.0")


@ROUTES.delete(
    {CONNECTION: "Close a connection; its client gets the text of `X-Reason`."},
    tag=MANAGEMENT,
    permission=OWN_TO_CLOSE,
)
async def close_connection(call: HttpCall, name: str) -> None:
    """Close a connection; the header ``X-Reason`` has the text for its client."""
    await close_with_reason(call, name, reason_in_header(call))


async def close_with_reason(call: HttpCall, name: str, reason: str) -> None:
    """Close a connection; the broker sends its client the reason.

    Raises:
        HttpError: the connection does not exist, or the user does not see it.
        OperationRefused: the reason is too long for the broker, or cannot be printed.
    """
    connection = await find_connection(call, name)
    await call.broker.ask("close connection", id=connection.row["number"], reason=reason)


@ROUTES.delete(
    {"/api/connections/username/{username}": "Close the connections of a user."},
    tag=MANAGEMENT,
    permission=OWN_TO_CLOSE,
)
async def close_connections_of_user(call: HttpCall, username: str) -> None:
    """Close all connections of a user; only an administrator may close another user's."""
    reason = reason_in_header(call)
    for connection in await call.state.connections.all():
        if connection.row["user"] == username and call.identity.sees_user(username):
            await call.broker.ask("close connection", id=connection.row["number"], reason=reason)


def reason_in_header(call: HttpCall) -> str:
    """Return the reason in the header ``X-Reason``; RabbitMQ's reason without the header."""
    return call.request.headers.get("X-Reason") or REASON_WITHOUT_HEADER


async def find_connection(call: HttpCall, name: str) -> SampledObject:
    """Return the connection with a name.

    Raises:
        HttpError: the connection does not exist, or the user does not see it.
    """
    listens = await listener_urls(call)
    for connection in await call.state.connections.all():
        is_seen = call.identity.sees_user(connection.text("user"))
        if is_seen and connection_name(connection.row, listens) == name:
            return connection
    raise not_found()


async def listener_urls(call: HttpCall) -> Mapping[str, str]:
    """Return the URLs of the broker's listeners by protocol, those of closed ports included."""
    return await call.state.urls()


def connection_name(row: JsonObject, listens: Mapping[str, str]) -> str:
    """Return the name of a connection: the addresses of both sides."""
    listener = listens.get("amqps" if row["tls"] else "amqp", "")
    return f"{row['host']}:{row['port']} -> {listener.rpartition('/')[2]}"


def describe_connection(
    connection: SampledObject,
    query: Mapping[str, str],
    listens: Mapping[str, str],
    alarms: list[AlarmRow],
) -> JsonObject:
    """Return a connection as RabbitMQ describes it."""
    row = connection.row
    name = connection_name(row, listens)
    host, _, port = name.rpartition(" -> ")[2].rpartition(":")
    return {
        "name": name,
        "user_provided_name": row["name"],
        "node": node_name(),
        "type": "network",
        "protocol": f"AMQP {row['protocol']}",
        "user": row["user"],
        "user_who_performed_action": row["user"],
        "vhost": row["vhost"],
        "host": host.strip("[]"),
        "port": int(port or 0),
        "peer_host": row["host"],
        "peer_port": row["port"],
        "ssl": bool(row["tls"]),
        "ssl_protocol": row["tls"] or None,
        "auth_mechanism": row["mechanism"],
        "state": "blocked" if row["blocked"] else "running",
        "blocked_by": alarm_reasons(alarms, row["vhost"])
        if row["blocked"]
        else "",  # Not in RabbitMQ.
        "channels": row["channels"],
        "channel_max": row["channel_max"] or 0,
        "frame_max": row["frame_max"],
        "timeout": row["heartbeat_s"],
        "connected_at": row.get("connected_ms") or connection.born_ms,
        "client_properties": row["client_properties"] or {},
        "send_pend": row["pending"],
        "recv_cnt": 0,
        "send_cnt": 0,
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
        **byte_counts(connection, query),
        "message_stats": message_stats(connection, query),  # Not in RabbitMQ.
    }


async def read_connection_fields(call: HttpCall) -> ConnectionFields:
    """Return the fields of connections that channels and consumers show, by id."""
    listens = await listener_urls(call)
    connections = {}
    for connection in await call.state.connections.all():
        row = connection.row
        connections[row["number"]] = {
            "name": connection_name(row, listens),
            "peer_host": row["host"],
            "peer_port": row["port"],
        }
    return connections


def connection_details(connection: int, connections: ConnectionFields) -> JsonObject:
    """Return the fields of a channel's connection; empty ones for a detached session."""
    return connections.get(connection) or {"name": "", "peer_host": "", "peer_port": 0}
