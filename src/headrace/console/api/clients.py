# SPDX-License-Identifier: Apache-2.0
"""``/api/connections``, ``/api/channels`` and ``/api/consumers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.alarms import active_alarms, reasons_in
from headrace.console.api.common.rows import existing_vhost, only, rows_of
from headrace.console.api.common.samples import message_stats, octets
from headrace.console.http.answers import Listed
from headrace.console.http.errors import bad_request, not_found
from headrace.console.http.routes import ACCESS, Routes
from headrace.node_name import node_name
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.broker.answers import AlarmRow
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import SampledObject
    from headrace.untyped import JsonObject

OWN = "the user's own; all with monitoring"
Names = dict[int, "JsonObject"]  # What channels and consumers say of their connection, by id.
REASON = "Closed via management plugin"  # RabbitMQ's words.
REASON_MAX = 255  # Bytes of a reply text.
CONNECTION = "/api/connections/{name}"
ROUTES = Routes()


# --- Connections ---------------------------------------------------------------------------------


@ROUTES.get(
    {
        "/api/connections": "The connections.",
        "/api/connections/username/{username}": "The connections of a user.",
    },
    tag=MANAGEMENT,
    permission=OWN,
    paged=True,
)
@ROUTES.get(
    {"/api/vhosts/{vhost}/connections": "The connections of a virtual host."},
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_connections(
    call: HttpCall, vhost: str | None = None, username: str | None = None
) -> Listed:
    """Return the connections that the user sees, of one virtual host or user where asked."""
    vhost = await existing_vhost(call, vhost)
    listens = await listens_of(call)
    alarms = await active_alarms(call)
    rows = []
    for connection in await call.state.connections.all():
        owner = connection.text("user")
        wanted = vhost in (None, connection.text("vhost")) and username in (None, owner)
        if wanted and call.identity.sees_user(owner):
            rows.append(connection_of(connection, call.query, listens, alarms))
    return Listed(rows, ("name",))


@ROUTES.get({CONNECTION: "One connection."}, tag=MANAGEMENT, permission=OWN)
async def show_connection(call: HttpCall, name: str) -> JsonObject:
    """Return one connection, with the properties that its client sent."""
    connection = await find_connection(call, name)
    row = connection_of(connection, call.query, await listens_of(call), await active_alarms(call))
    shown = await call.ask("show connection", id=connection.row["number"])
    return {**row, "client_properties": shown["client_properties"] or {}}


@ROUTES.get(
    {f"{CONNECTION}/channels": "The channels of a connection."},
    tag=MANAGEMENT,
    permission=OWN,
    paged=True,
)
async def channels_of_connection(call: HttpCall, name: str) -> Listed:
    """Return the channels of a connection."""
    await find_connection(call, name)
    rows = await channels(call)
    return Listed([row for row in rows if row["connection_details"]["name"] == name], ("name",))


@ROUTES.get(
    {f"{CONNECTION}/sessions": "400: there is no AMQP 1.0; sessions of 0-10 are channels."},
    tag=MANAGEMENT,
    permission=OWN,
)
async def sessions_of_connection(call: HttpCall, name: str) -> None:
    """Answer that a connection has no sessions of AMQP 1.0, as RabbitMQ does."""
    await find_connection(call, name)
    raise bad_request("connection does not use AMQP 1.0")


@ROUTES.delete(
    {CONNECTION: "Close a connection; its client gets `X-Reason`."}, tag=MANAGEMENT, permission=OWN
)
async def close_connection(call: HttpCall, name: str) -> None:
    """Close a connection; header ``X-Reason`` is the text that its client gets."""
    reason = reason_of(call)
    connection = await find_connection(call, name)
    await call.ask("close connection", id=connection.row["number"], reason=reason)


@ROUTES.delete(
    {"/api/connections/username/{username}": "Close the connections of a user."},
    tag=MANAGEMENT,
    permission=OWN,
)
async def close_connections_of_user(call: HttpCall, username: str) -> None:
    """Close all connections of a user, which are the request's own unless it administers."""
    reason = reason_of(call)
    for connection in await call.state.connections.all():
        if connection.row["user"] == username and call.identity.sees_user(username):
            await call.ask("close connection", id=connection.row["number"], reason=reason)


def reason_of(call: HttpCall) -> str:
    """Return the text for the client.

    Raises:
        HttpError: it is too long.
    """
    reason = call.request.headers.get("X-Reason") or REASON
    if len(reason.encode(errors="replace")) > REASON_MAX:
        raise bad_request(f"X-Reason has more than {REASON_MAX} bytes")
    return reason


async def find_connection(call: HttpCall, name: str) -> SampledObject:
    """Return the connection with a name.

    Raises:
        HttpError: there is none, or the user does not see it.
    """
    listens = await listens_of(call)
    for connection in await call.state.connections.all():
        is_seen = call.identity.sees_user(connection.text("user"))
        if is_seen and name_of(connection.row, listens) == name:
            return connection
    raise not_found()


async def listens_of(call: HttpCall) -> Mapping[str, str]:
    """Return the addresses of the broker, by protocol."""
    return (await call.state.status())["listens"]


def name_of(row: JsonObject, listens: Mapping[str, str]) -> str:
    """Return the name of a connection: the addresses of both sides."""
    here = listens.get("amqps" if row["tls"] else "amqp", "")
    return f"{row['host']}:{row['port']} -> {here.rpartition('/')[2]}"


def connection_of(
    connection: SampledObject,
    query: Mapping[str, str],
    listens: Mapping[str, str],
    alarms: list[AlarmRow],
) -> JsonObject:
    """Return a connection as RabbitMQ describes it."""
    row = connection.row
    name = name_of(row, listens)
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
        "blocked_by": reasons_in(alarms, row["vhost"]) if row["blocked"] else "",  # Ours.
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
        **octets(connection, query),
        "message_stats": message_stats(connection, query),  # RabbitMQ has none here.
    }


async def connection_names(call: HttpCall) -> Names:
    """Return what channels and consumers say of their connection, by its id."""
    listens = await listens_of(call)
    names = {}
    for connection in await call.state.connections.all():
        row = connection.row
        names[row["number"]] = {
            "name": name_of(row, listens),
            "peer_host": row["host"],
            "peer_port": row["port"],
        }
    return names


# --- Channels ------------------------------------------------------------------------------------


@ROUTES.get(
    {"/api/channels": "The channels, and the sessions of 0-10."},
    tag=MANAGEMENT,
    permission=OWN,
    paged=True,
)
@ROUTES.get(
    {"/api/vhosts/{vhost}/channels": "The channels of a virtual host."},
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_channels(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the channels that the user sees."""
    return Listed(await channels(call, vhost), ("name",))


@ROUTES.get({"/api/channels/{channel}": "One channel."}, tag=MANAGEMENT, permission=OWN)
async def show_channel(call: HttpCall, channel: str) -> JsonObject:
    """Return one channel, with its consumers."""
    row = only(await channels(call), name=channel)
    names = await connection_names(call)
    mine = (row["connection_details"]["name"], row["number"])
    consumers = []
    for consumer in await rows_of(call, "list consumers"):
        described = consumer_of(consumer, names)
        details = described["channel_details"]
        if (details["connection_name"], details["number"]) == mine:
            consumers.append(described)
    return {**row, "consumer_details": consumers, "publishes": [], "deliveries": []}


async def find_channel(call: HttpCall, name: str) -> SampledObject:
    """Return the channel with a name.

    Raises:
        HttpError: there is none, or the user does not see it.
    """
    names = await connection_names(call)
    for channel in await call.state.channels.all():
        is_seen = call.identity.sees_user(channel.text("user"))
        if is_seen and channel_name(channel.row, names) == name:
            return channel
    raise not_found()


async def channels(call: HttpCall, vhost: str | None = None) -> list[JsonObject]:
    """Return the channels that the user sees, of one virtual host where asked.

    Raises:
        HttpError: there is no such virtual host, or the user does not see it.
    """
    vhost = await existing_vhost(call, vhost)
    names = await connection_names(call)
    return [
        channel_of(channel, names, call.query)
        for channel in await call.state.channels.all()
        if vhost in (None, channel.text("vhost")) and call.identity.sees_user(channel.text("user"))
    ]


def details_of(connection: int, names: Names) -> JsonObject:
    """Return what a channel says of its connection; a detached session has none."""
    return names.get(connection) or {"name": "", "peer_host": "", "peer_port": 0}


def channel_name(row: JsonObject, names: Names) -> str:
    """Return the name of a channel: its own, or its connection's with its number."""
    return row["name"] or f"{details_of(row['connection'], names)['name']} ({row['number']})"


def channel_of(channel: SampledObject, names: Names, query: Mapping[str, str]) -> JsonObject:
    """Return a channel, or session, as RabbitMQ describes it."""
    row = channel.row
    connection = details_of(row["connection"], names)
    return {
        "name": channel_name(row, names),
        "number": row["number"],
        "node": node_name(),
        "user": row["user"],
        "user_who_performed_action": row["user"],
        "vhost": row["vhost"],
        "connection_details": connection,
        "state": "running" if row["flow"] else "flow",
        "idle_since": None,
        "consumer_count": row["consumers"],
        "confirm": bool(row["confirms"]),
        "transactional": bool(row["transactional"]),
        "prefetch_count": row["consumer_prefetch"],
        "global_prefetch_count": row["prefetch"],
        "messages_unacknowledged": row["unacked"],
        "messages_unconfirmed": channel.number("unconfirmed"),
        "messages_uncommitted": 0,
        "acks_uncommitted": 0,
        "message_stats": message_stats(channel, query),
    }


# --- Consumers -----------------------------------------------------------------------------------


@ROUTES.get(
    {
        "/api/consumers": "The consumers.",
        "/api/consumers/{vhost}": "The consumers of a virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_consumers(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the consumers of a virtual host, or of all that the user sees."""
    names = await connection_names(call)
    rows = await rows_of(call, "list consumers", vhost)
    return Listed([consumer_of(row, names) for row in rows], ("queue.vhost", "queue.name"))


async def show_consumer(call: HttpCall, channel: str, tag: str) -> JsonObject:
    """Return a consumer by the name of its channel and its tag; for a page of the console."""
    owner = only(await channels(call), name=channel)
    names = await connection_names(call)
    wanted = (owner["connection_details"]["name"], owner["number"], tag)
    for row in await rows_of(call, "list consumers"):
        consumer = consumer_of(row, names)
        its = consumer["channel_details"]
        if (its["connection_name"], its["number"], consumer["consumer_tag"]) == wanted:
            return {**consumer, "channel_details": {**its, "name": channel}}
    raise not_found()


def consumer_of(row: JsonObject, names: Names) -> JsonObject:
    """Return a consumer as RabbitMQ describes it."""
    connection = details_of(row["connection"], names)
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
