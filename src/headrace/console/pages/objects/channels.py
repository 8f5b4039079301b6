# SPDX-License-Identifier: Apache-2.0
"""The pages of channels, and of the sessions of 0-10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import channels
from headrace.console.http.routes import by_path
from headrace.console.pages.charts.addresses import message_charts
from headrace.console.pages.columns import Column, omit_columns
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.details import DetailPage
from headrace.console.pages.links import path_to
from headrace.console.pages.listings import ListPage
from headrace.console.pages.resource_pages import ResourcePages

if TYPE_CHECKING:
    from headrace.console.pages.links import Charts
    from headrace.untyped import JsonObject

CHANNEL_COLUMNS = (
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


def channel_address(row: JsonObject) -> str:
    """Return the address of a channel's page."""
    return path_to("channels", row["name"])


def channel_charts(row: JsonObject) -> Charts:
    """Return the charts of a channel."""
    return message_charts(path_to("charts", "channel", row["name"]))


PAGES = ResourcePages()
PAGES.add(
    ListPage(
        path="/channels",
        title="Channels",
        rows=channels.list_channels,
        columns=CHANNEL_COLUMNS,
        row_address=channel_address,
        about="Channels of 0-8 to 0-9-1, and sessions of 0-10.",
        command=command_line("list", "channels"),
        empty="No open channels.",
    ),
    DetailPage(
        path="/channels/{channel}",
        kind="Channel",
        parent=("Channels", "/channels"),
        show_object=by_path(channels.show_channel),
        facts=(
            *omit_columns(CHANNEL_COLUMNS, "Name"),
            Column("Number", "number", "number"),
            Column("Connection", "connection_details.name"),
        ),
        charts=channel_charts,
    ),
)
