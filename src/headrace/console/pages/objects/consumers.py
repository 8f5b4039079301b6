# SPDX-License-Identifier: Apache-2.0
"""The pages of consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import consumers
from headrace.console.api.channels import channel_rows
from headrace.console.api.common.lookups import find_row, read_rows
from headrace.console.api.connections import read_connection_fields
from headrace.console.broker import lists
from headrace.console.http.routes import by_path
from headrace.console.http_errors import not_found
from headrace.console.pages.columns import Column, omit_columns
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.details import DetailPage
from headrace.console.pages.links import Link, path_to
from headrace.console.pages.listings import ListPage
from headrace.console.pages.objects.channels import channel_address, channel_charts
from headrace.console.pages.resource_pages import ResourcePages

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.links import Charts
    from headrace.untyped import JsonObject


def queue_address(row: JsonObject) -> str:
    """Return the address of the page of a consumer's queue."""
    return path_to("queues", row["queue"]["vhost"], row["queue"]["name"])


def consumer_address(row: JsonObject) -> str:
    """Return the address of a consumer's page; of its queue's page if the tag is empty."""
    if not row["consumer_tag"]:
        return queue_address(row)
    return path_to("consumers", row["channel_details"]["name"], row["consumer_tag"])


CONSUMER_COLUMNS = (
    Column("Consumer tag", "consumer_tag"),
    Column("Queue", "queue.name", address=queue_address),
    Column("Virtual host", "queue.vhost"),
    Column(
        "Channel",
        "channel_details.name",
        address=lambda row: channel_address(row["channel_details"]),
    ),
    Column("User", "channel_details.user"),
    Column("Ack mode", "ack_required", "ack"),
    Column("Prefetch", "prefetch_count", "number"),
    Column("Active", "active", "flag"),
    Column("Exclusive", "exclusive", "flag"),
    Column("Arguments", "arguments", "json"),
)
#: Columns on the page of a queue or stream.
CONSUMERS_OF_QUEUE = (
    Column("Consumer tag", "consumer_tag", address=consumer_address),
    *omit_columns(CONSUMER_COLUMNS, "Consumer tag", "Queue", "Virtual host"),
)


async def show_consumer(call: HttpCall, channel: str, tag: str) -> JsonObject:
    """Return a consumer by its tag and the name of its channel.

    Raises:
        HttpError: the consumer does not exist, or the user does not see it.
    """
    owner = find_row(await channel_rows(call), name=channel)
    names = await read_connection_fields(call)
    key = (owner["connection_details"]["name"], owner["number"], tag)
    for row in await read_rows(call, lists.CONSUMERS):
        consumer = consumers.describe_consumer(row, names)
        details = consumer["channel_details"]
        if (details["connection_name"], details["number"], consumer["consumer_tag"]) == key:
            return {**consumer, "channel_details": {**details, "name": channel}}
    raise not_found()


def consumer_links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return the links of a consumer's page."""
    return [Link("Queue", queue_address(row), is_for_viewers=True)]


def consumer_charts(row: JsonObject) -> Charts:
    """Return the charts of a consumer's channel."""
    return channel_charts(row["channel_details"])


PAGES = ResourcePages()
PAGES.add(
    ListPage(
        path="/consumers",
        title="Consumers",
        rows=consumers.list_consumers,
        columns=CONSUMER_COLUMNS,
        row_address=consumer_address,
        command=command_line("list", "consumers"),
    ),
    DetailPage(
        path="/consumers/{channel}/{tag}",
        kind="Consumer",
        parent=("Consumers", "/consumers"),
        show_object=by_path(show_consumer),
        name=lambda row: row["consumer_tag"],
        facts=(
            *omit_columns(CONSUMER_COLUMNS, "Consumer tag"),
            Column("Connection", "channel_details.connection_name"),
        ),
        links=consumer_links,
        charts=consumer_charts,
        about="Messages are counted per channel: the charts include all consumers of the channel.",
    ),
)
