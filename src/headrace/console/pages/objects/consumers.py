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
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import line
from headrace.console.pages.details import DetailPage
from headrace.console.pages.links import Link
from headrace.console.pages.listings import ListPage
from headrace.console.pages.objects.channels import channel_address, channel_charts
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import segment

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.details import Charts
    from headrace.untyped import JsonObject


def channel_of(row: JsonObject) -> str:
    """Return the address of the channel of a consumer."""
    return channel_address(row["channel_details"])


def queue_of(row: JsonObject) -> str:
    """Return the address of the queue of a consumer."""
    return f"/queues/{segment(row['queue']['vhost'])}/{segment(row['queue']['name'])}"


def consumer_address(row: JsonObject) -> str:
    """Return the address of a consumer's page; of its queue's page if it has no tag."""
    if not row["consumer_tag"]:
        return queue_of(row)
    return f"/consumers/{segment(row['channel_details']['name'])}/{segment(row['consumer_tag'])}"


CONSUMERS = (
    Column("Consumer tag", "consumer_tag"),
    Column("Queue", "queue.name", link=queue_of),
    Column("Virtual host", "queue.vhost"),
    Column("Channel", "channel_details.name", link=channel_of),
    Column("User", "channel_details.user"),
    Column("Ack mode", "ack_required", "ack"),
    Column("Prefetch", "prefetch_count", "number"),
    Column("Active", "active", "flag"),
    Column("Exclusive", "exclusive", "flag"),
    Column("Arguments", "arguments", "json"),
)
#: The consumers of a queue, on the queue's page.
CONSUMERS_OF_QUEUE = (
    Column("Consumer tag", "consumer_tag", link=consumer_address),
    *CONSUMERS[3:],
)


async def show_consumer(call: HttpCall, channel: str, tag: str) -> JsonObject:
    """Return a consumer by the name of its channel and its tag.

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
    return [Link("Queue", queue_of(row), changes=False)]


def consumer_charts(row: JsonObject) -> Charts:
    """Return the charts of a consumer's channel."""
    return channel_charts(row["channel_details"])


PAGES = ResourcePages()
PAGES.add(
    ListPage(
        path="/consumers",
        title="Consumers",
        rows=consumers.list_consumers,
        columns=CONSUMERS,
        link=consumer_address,
        command=line("list", "consumers"),
    ),
    DetailPage(
        path="/consumers/{channel}/{tag}",
        kind="Consumer",
        parent=("Consumers", "/consumers"),
        show_object=by_path(show_consumer),
        name=lambda row: row["consumer_tag"],
        facts=(*CONSUMERS[1:], Column("Connection", "channel_details.connection_name")),
        links=consumer_links,
        charts=consumer_charts,
        about="Messages are counted per channel: the charts include all consumers of the channel.",
    ),
)
