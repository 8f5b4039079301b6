# SPDX-License-Identifier: Apache-2.0
"""The pages of channels, and of the sessions of 0-10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import channels
from headrace.console.http.routes import by_path
from headrace.console.pages.charts.addresses import depths_and_rates
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import line
from headrace.console.pages.details import DetailPage
from headrace.console.pages.listings import ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import segment

if TYPE_CHECKING:
    from headrace.console.pages.details import Charts
    from headrace.untyped import JsonObject

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


def channel_address(row: JsonObject) -> str:
    """Return the address of a channel's page."""
    return f"/channels/{segment(row['name'])}"


def channel_charts(row: JsonObject) -> Charts:
    """Return the charts of a channel."""
    return depths_and_rates(f"/charts/channel/{segment(row['name'])}")


PAGES = ResourcePages()
PAGES.add(
    ListPage(
        path="/channels",
        title="Channels",
        rows=channels.list_channels,
        columns=CHANNELS,
        link=channel_address,
        about="Channels of 0-8 to 0-9-1, and sessions of 0-10.",
        command=line("list", "channels"),
        empty="No open channels.",
    ),
    DetailPage(
        path="/channels/{channel}",
        kind="Channel",
        parent=("Channels", "/channels"),
        show_object=by_path(channels.show_channel),
        name=lambda row: row["name"],
        facts=(
            *CHANNELS[1:],
            Column("Number", "number", "number"),
            Column("Connection", "connection_details.name"),
        ),
        charts=channel_charts,
    ),
)
