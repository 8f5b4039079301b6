# SPDX-License-Identifier: Apache-2.0
"""The pages of streams: their list, and one stream with offsets, groups and segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import bindings, queues, streams
from headrace.console.http.routes import by_path
from headrace.console.pages.columns import Column, omit_columns
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.details import DetailPage
from headrace.console.pages.inner_tables import InnerTable
from headrace.console.pages.links import FormAddress, Link
from headrace.console.pages.listings import ListPage
from headrace.console.pages.objects.bindings import binding_address
from headrace.console.pages.objects.consumers import CONSUMERS_OF_QUEUE
from headrace.console.pages.objects.groups import GROUP_COLUMNS, group_address
from headrace.console.pages.objects.queues import (
    BINDINGS_OF_QUEUE,
    QUEUE_COLUMNS,
    QUEUE_FACTS,
    STREAM,
    queue_charts,
    queue_links,
    stream_address,
)
from headrace.console.pages.resource_pages import ResourcePages

if TYPE_CHECKING:
    from headrace.console.api.common.queue_rows import QueueRows
    from headrace.console.http.answers import RowList
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

PARENT = ("Streams", "/streams")
ONLY_OF_QUEUES = (  # Columns and facts without meaning for a stream.
    *("Type", "Ready", "Unacked", "Unacknowledged", "Acknowledged", "Redelivered"),
    *("Oldest", "Oldest ready message", "Auto-delete", "Exclusive"),
    *("Dead letters: rejected", "Dead letters: expired"),
    *("Dead letters: length limit", "Dead letters: delivery limit"),
)
GROUPS_OF_STREAM = omit_columns(GROUP_COLUMNS, "Stream", "Virtual host")
SEGMENT_COLUMNS = (
    Column("Segment", "number", "number"),
    Column("First offset", "first_offset", "number"),
    Column("Created", "begun", "time"),
    Column("Size", "bytes", "bytes"),
)


async def list_streams(call: HttpCall, vhost: str | None) -> QueueRows:
    """Return the streams among the queues."""
    listed = await queues.list_queues(call, vhost)
    table = call.state.queues.table
    return listed.with_items([slot for slot in listed.items if table.text("type", slot) == STREAM])


async def show_stream(call: HttpCall, vhost: str, stream: str) -> JsonObject:
    """Return a stream as a queue, with its offsets, groups and segments."""
    queue = await queues.show_queue(call, vhost, stream)
    return {**queue, **await streams.show_stream(call, vhost, stream)}


async def list_bindings_of_stream(call: HttpCall, vhost: str, stream: str) -> RowList:
    """Return the bindings to a stream."""
    return await bindings.list_bindings_of_queue(call, vhost, stream)


def show_command(row: JsonObject) -> str:
    """Return the command line that shows a stream."""
    return command_line("show", "stream", row["name"], vhost=row["vhost"])


PAGES = ResourcePages()
PAGES.add(
    ListPage(
        path="/streams",
        title="Streams",
        rows=list_streams,
        columns=(
            Column("Name", "name"),
            Column("Virtual host", "vhost"),
            Column("Messages", "messages_ready", "number"),
            *omit_columns(QUEUE_COLUMNS, "Name", "Virtual host", *ONLY_OF_QUEUES),
        ),
        row_address=stream_address,
        actions=(Link("Declare a stream", "/queues/new?queue_type=stream"),),
        command=command_line("list", "streams"),
    ),
    DetailPage(
        path="/streams/{vhost}/{stream}",
        kind="Stream",
        parent=PARENT,
        show_object=by_path(show_stream),
        facts=(
            Column("Messages", "messages_ready", "number"),
            Column("First offset", "first_offset", "number"),
            Column("Next offset", "next_offset", "number"),
            *omit_columns(QUEUE_FACTS, *ONLY_OF_QUEUES),
            Column("Maximum size", "max_bytes", "byte-limit"),
            Column("Maximum age", "max_age_ms", "time-limit"),
        ),
        tables=(
            InnerTable("Groups", GROUPS_OF_STREAM, field="groups", row_address=group_address),
            InnerTable("Consumers", CONSUMERS_OF_QUEUE, field="consumer_details"),
            InnerTable(
                "Bindings",
                BINDINGS_OF_QUEUE,
                by_path(list_bindings_of_stream),
                row_address=FormAddress(binding_address),
            ),
            InnerTable("Segments", SEGMENT_COLUMNS, field="segments"),
        ),
        links=queue_links,
        charts=queue_charts,
        command=show_command,
    ),
)
