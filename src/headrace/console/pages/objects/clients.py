# SPDX-License-Identifier: Apache-2.0
"""Connections, channels and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import clients
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Action
from headrace.console.pages.commands import line
from headrace.console.pages.details import DetailPage
from headrace.console.pages.listings import Column, Link, ListPage
from headrace.console.pages.objects.charts import depths_and_rates
from headrace.console.pages.parts import Part
from headrace.console.pages.texts import counted, plain, segment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.http.call import HttpCall
    from headrace.console.pages.details import Charts
    from headrace.untyped import JsonObject

PARENT = ("Connections", "/connections")


def channel_of(row: JsonObject) -> str:
    """Return the address of the channel of a consumer."""
    return f"/channels/{segment(row['channel_details']['name'])}"


def queue_address(row: JsonObject) -> str:
    """Return the address of the queue that a consumer reads."""
    return f"/queues/{segment(row['queue']['vhost'])}/{segment(row['queue']['name'])}"


CHANNELS = (
    Column("Name", "name"),
    Column("User", "user"),
    Column("Virtual host", "vhost"),
    Column("State", "state", "state"),
    Column("Unacked", "messages_unacknowledged", "number"),
    Column("Prefetch per consumer", "prefetch_count", "number"),
    Column("Prefetch per channel", "global_prefetch_count", "number"),
    Column("Consumers", "consumer_count", "number"),
    Column("Confirms", "confirm", "flag"),
    Column("Transactional", "transactional", "flag"),
)
CONSUMERS = (
    Column("Consumer tag", "consumer_tag"),
    Column("Queue", "queue.name", leads=queue_address),
    Column("Virtual host", "queue.vhost"),
    Column("Channel", "channel_details.name", leads=channel_of),
    Column("User", "channel_details.user"),
    Column("Ack mode", "ack_required", "ack"),
    Column("Prefetch", "prefetch_count", "number"),
    Column("Active", "active", "flag"),
    Column("Exclusive", "exclusive", "flag"),
    Column("Arguments", "arguments", "json"),
)


def connection_address(row: JsonObject) -> str:
    """Return the address of a connection's page."""
    return f"/connections/{segment(row['name'])}"


def channel_address(row: JsonObject) -> str:
    """Return the address of a channel's page."""
    return f"/channels/{segment(row['name'])}"


def consumer_address(row: JsonObject) -> str:
    """Return the address of a consumer's page; of its queue where it has no tag."""
    if not row["consumer_tag"]:
        return queue_address(row)
    return f"/consumers/{segment(row['channel_details']['name'])}/{segment(row['consumer_tag'])}"


def chart_of_channel(name: str) -> str:
    """Return the address of the numbers of a channel."""
    return f"/charts/channel/{segment(name)}"


def connection_charts(row: JsonObject) -> Charts:
    """Return the charts of a connection."""
    at = f"/charts/connection/{segment(row['name'])}"
    return ((f"{at}/rates", "Messages/s"), (f"{at}/bytes", "Bytes/s"))


def consumer_charts(row: JsonObject) -> Charts:
    """Return the chart of a consumer's channel."""
    channel = row["channel_details"]["name"]
    return depths_and_rates(chart_of_channel(channel))


def links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return what can be done with a connection."""
    return [Link("Close", f"{connection_address(row)}/close", danger=True)]


async def hits(call: HttpCall) -> str:
    """Return what closing a connection takes away."""
    row = await clients.show_connection(call, **call.path)
    return (
        f"Client of user {plain(row['user'])} at {row['peer_host']}: "
        f"{counted(row['channels'], 'channel', 'is', 'are')} closed; "
        "unacknowledged messages return to their queues."
    )


async def connection_values(call: HttpCall) -> Mapping[str, str]:
    """Return the id by which the command knows a connection."""
    found = await clients.find_connection(call, call.path["name"])
    return {"number": str(found.row["number"])}


LISTS = (
    ListPage(
        "/connections",
        "Connections",
        clients.list_connections,
        (
            Column("Name", "name"),
            Column("Client name", "user_provided_name"),
            Column("User", "user"),
            Column("Virtual host", "vhost"),
            Column("State", "state", "state"),
            Column("Protocol", "protocol"),
            Column("TLS", "ssl", "flag"),
            Column("Channels", "channels", "number"),
            Column("From client", "recv_oct_details.rate", "rate"),
            Column("To client", "send_oct_details.rate", "rate"),
        ),
        connection_address,
        command=line("list", "connections"),
        empty="No connections.",
    ),
    ListPage(
        "/channels",
        "Channels",
        clients.list_channels,
        CHANNELS,
        channel_address,
        about="Channels of 0-8 to 0-9-1, and sessions of 0-10.",
        command=line("list", "channels"),
        empty="No open channels.",
    ),
    ListPage(
        "/consumers",
        "Consumers",
        clients.list_consumers,
        CONSUMERS,
        consumer_address,
        command=line("list", "consumers"),
        empty="No consumers.",
    ),
)
PAGES = (
    DetailPage(
        "/connections/{name}",
        "Connection",
        PARENT,
        by_path(clients.show_connection),
        lambda row: row["name"],
        (
            Column("Client name", "user_provided_name"),
            Column("User", "user"),
            Column("Virtual host", "vhost"),
            Column("State", "state", "state"),
            Column("Blocked by", "blocked_by"),
            Column("Protocol", "protocol"),
            Column("TLS", "ssl_protocol"),
            Column("Authentication", "auth_mechanism"),
            Column("Connected at", "connected_at", "time"),
            Column("From client", "recv_oct", "bytes"),
            Column("To client", "send_oct", "bytes"),
            Column("Heartbeat (s)", "timeout", "number"),
            Column("Maximum frame size (bytes)", "frame_max", "number"),
            Column("Client properties", "client_properties", "json"),
        ),
        (
            Part(
                "Channels", CHANNELS, by_path(clients.channels_of_connection), link=channel_address
            ),
        ),
        links,
        connection_charts,
    ),
    DetailPage(
        "/channels/{channel}",
        "Channel",
        ("Channels", "/channels"),
        by_path(clients.show_channel),
        lambda row: row["name"],
        (
            *CHANNELS[1:],
            Column("Number", "number", "number"),
            Column("Connection", "connection_details.name"),
        ),
        charts=lambda row: depths_and_rates(chart_of_channel(row["name"])),
    ),
    DetailPage(
        "/consumers/{channel}/{tag}",
        "Consumer",
        ("Consumers", "/consumers"),
        by_path(clients.show_consumer),
        lambda row: row["consumer_tag"],
        (*CONSUMERS[1:], Column("Connection", "channel_details.connection_name")),
        actions=lambda call, row: [Link("Queue", queue_address(row), changes=False)],
        charts=consumer_charts,
        about="Messages are counted per channel: the charts include all consumers of the channel.",
    ),
)
ACTIONS = (
    Action(
        "/connections/{name}/close",
        "Close connection {name}",
        lambda call, form: clients.close_connection(call, **call.path),
        lambda call, values: "/connections",
        lambda call, values: "The connection is closed.",
        command=lambda call, values: line("close", "connection", values.get("number", "ID")),
        values=connection_values,
        hits=hits,
        parent=PARENT,
        button="Close the connection",
        danger=True,
    ),
)
