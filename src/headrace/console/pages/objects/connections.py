# SPDX-License-Identifier: Apache-2.0
"""The pages of connections, and closing one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import channels, connections
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Field
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.details import DetailPage
from headrace.console.pages.inner_tables import InnerTable
from headrace.console.pages.links import Link, path_to
from headrace.console.pages.listings import ListPage
from headrace.console.pages.objects.channels import CHANNEL_COLUMNS, channel_address
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import escape_hidden, pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.console.pages.links import Charts
    from headrace.untyped import JsonObject

PARENT = ("Connections", "/connections")
PAGES = ResourcePages()


def connection_address(row: JsonObject) -> str:
    """Return the address of a connection's page."""
    return path_to("connections", row["name"])


def connection_charts(row: JsonObject) -> Charts:
    """Return the charts of a connection."""
    address = path_to("charts", "connection", row["name"])
    return ((f"{address}/rates", "Messages/s"), (f"{address}/bytes", "Bytes/s"))


def connection_links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return the links of a connection's page."""
    return [Link("Close", f"{connection_address(row)}/close", danger=True)]


async def close_impact(call: HttpCall, name: str) -> str:
    """Describe the client that loses its connection."""
    row = await connections.show_connection(call, name)
    return (
        f"Client of user {escape_hidden(row['user'])} at {row['peer_host']}: "
        f"{pluralize(row['channels'], 'channel', 'is', 'are')} closed; "
        "unacknowledged messages return to their queues."
    )


async def close_values(call: HttpCall, name: str) -> Mapping[str, str]:
    """Return the id of the connection, which the command line takes."""
    connection = await connections.find_connection(call, name)
    return {"number": str(connection.row["number"])}


def close_command(values: Values, name: str) -> str:
    """Return the command line that closes a connection."""
    reason = values.get("reason") or None
    return command_line("close", "connection", values.get("number", "ID"), reason=reason)


@PAGES.action(
    "/connections/{name}/close",
    "Close connection {name}",
    back="/connections",
    notice="The connection is closed.",
    command=close_command,
    fields=(Field("reason", "Reason", help="The client gets this text."),),
    values=close_values,
    impact=close_impact,
    parent=PARENT,
    button="Close the connection",
    danger=True,
)
async def close(call: HttpCall, form: Body, name: str) -> None:
    """Close the connection of a page."""
    reason = form.text("reason") or connections.REASON_WITHOUT_HEADER
    await connections.close_with_reason(call, name, reason)


PAGES.add(
    ListPage(
        path="/connections",
        title="Connections",
        rows=connections.list_connections,
        columns=(
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
        row_address=connection_address,
        command=command_line("list", "connections"),
    ),
    DetailPage(
        path="/connections/{name}",
        kind="Connection",
        parent=PARENT,
        show_object=by_path(connections.show_connection),
        facts=(
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
        tables=(
            InnerTable(
                "Channels",
                CHANNEL_COLUMNS,
                by_path(channels.list_channels_of_connection),
                row_address=channel_address,
            ),
        ),
        links=connection_links,
        charts=connection_charts,
    ),
)
