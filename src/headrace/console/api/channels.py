# SPDX-License-Identifier: Apache-2.0
"""``/api/channels``: channels of 0-8 to 0-9-1, and sessions of 0-10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.lookups import existing_vhost, find_row, read_rows
from headrace.console.api.common.samples import message_stats
from headrace.console.api.common.schemas import FLAG, OBJECT, TEXT, UINT32, record
from headrace.console.api.connections import (
    CONNECTION,
    OWN,
    ConnectionFields,
    connection_details,
    find_connection,
    read_connection_fields,
)
from headrace.console.api.consumers import describe_consumer
from headrace.console.broker.lists import CONSUMERS
from headrace.console.http.answers import RowList
from headrace.console.http.routes import ACCESS, Routes
from headrace.console.http_errors import not_found
from headrace.node_name import node_name
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import SampledObject
    from headrace.untyped import JsonObject

CHANNEL_SCHEMA = record(
    number=UINT32,
    name=TEXT,
    connection_details=record(name=TEXT, peer_host=TEXT, peer_port=UINT32),
    vhost=TEXT,
    user=TEXT,
    state=TEXT,
    consumer_count=UINT32,
    confirm=FLAG,
    transactional=FLAG,
    prefetch_count=UINT32,
    messages_unacknowledged=UINT32,
    messages_unconfirmed=UINT32,
    message_stats=OBJECT,
)
ROUTES = Routes()


@ROUTES.get_list(
    {"/api/channels": "The channels, and the sessions of 0-10."},
    rows=CHANNEL_SCHEMA,
    tag=MANAGEMENT,
    permission=OWN,
)
@ROUTES.get_list(
    {"/api/vhosts/{vhost}/channels": "The channels of a virtual host."},
    rows=CHANNEL_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_channels(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the channels that the user sees."""
    return RowList(await channel_rows(call, vhost), ("name",))


@ROUTES.get(
    {"/api/channels/{channel}": "One channel."},
    tag=MANAGEMENT,
    permission=OWN,
    answer=CHANNEL_SCHEMA,
)
async def show_channel(call: HttpCall, channel: str) -> JsonObject:
    """Return one channel, with its consumers."""
    row = find_row(await channel_rows(call), name=channel)
    connections = await read_connection_fields(call)
    key = (row["connection_details"]["name"], row["number"])
    consumers = []
    for consumer in await read_rows(call, CONSUMERS):
        described = describe_consumer(consumer, connections)
        details = described["channel_details"]
        if (details["connection_name"], details["number"]) == key:
            consumers.append(described)
    return {**row, "consumer_details": consumers, "publishes": [], "deliveries": []}


async def find_channel(call: HttpCall, name: str) -> SampledObject:
    """Return the channel with a name.

    Raises:
        HttpError: the channel does not exist, or the user does not see it.
    """
    connections = await read_connection_fields(call)
    for channel in await call.state.channels.all():
        is_seen = call.identity.sees_user(channel.text("user"))
        if is_seen and channel_name(channel.row, connections) == name:
            return channel
    raise not_found()


async def channel_rows(call: HttpCall, vhost: str | None = None) -> list[JsonObject]:
    """Return the channels that the user sees, of a virtual host if one is named.

    Raises:
        HttpError: the virtual host does not exist, or the user does not see it.
    """
    vhost = await existing_vhost(call, vhost)
    connections = await read_connection_fields(call)
    return [
        describe_channel(channel, connections, call.query)
        for channel in await call.state.channels.all()
        if vhost in (None, channel.text("vhost")) and call.identity.sees_user(channel.text("user"))
    ]


def channel_name(row: JsonObject, connections: ConnectionFields) -> str:
    """Return the name of a session, or the name of the connection with the channel's number."""
    connection = connection_details(row["connection"], connections)
    return row["name"] or f"{connection['name']} ({row['number']})"


def describe_channel(
    channel: SampledObject, connections: ConnectionFields, query: Mapping[str, str]
) -> JsonObject:
    """Return a channel, or session, as RabbitMQ describes it."""
    row = channel.row
    connection = connection_details(row["connection"], connections)
    return {
        "name": channel_name(row, connections),
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


@ROUTES.get_list(
    {f"{CONNECTION}/channels": "The channels of a connection."},
    rows=CHANNEL_SCHEMA,
    tag=MANAGEMENT,
    permission=OWN,
)
async def list_channels_of_connection(call: HttpCall, name: str) -> RowList:
    """Return the channels of a connection."""
    await find_connection(call, name)
    rows = await channel_rows(call)
    return RowList([row for row in rows if row["connection_details"]["name"] == name], ("name",))
