# SPDX-License-Identifier: Apache-2.0
"""Streams with their offsets, groups and segments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.console.api import exchanges, queues, streams
from headrace.console.http.routes import by_path
from headrace.console.pages.commands import line
from headrace.console.pages.details import DetailPage
from headrace.console.pages.listings import Column, Link, ListPage
from headrace.console.pages.objects.exchanges import binding_address
from headrace.console.pages.objects.groups import GROUP_COLUMNS, group_address
from headrace.console.pages.objects.queues import (
    BINDINGS,
    COLUMNS,
    CONSUMERS,
    FACTS,
    STREAM,
    charts,
    links,
    stream_address,
)
from headrace.console.pages.parts import Part

if TYPE_CHECKING:
    from headrace.console.http.answers import Described, Listed
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

PARENT = ("Streams", "/streams")
OF_QUEUES = frozenset(  # Columns without meaning for a stream.
    (
        *("Type", "Ready", "Unacked", "Unacknowledged", "Acknowledged", "Redelivered"),
        *("Oldest", "Oldest ready message", "Auto-delete", "Exclusive"),
        *("Dead letters: rejected", "Dead letters: expired"),
        *("Dead letters: length limit", "Dead letters: delivery limit"),
    )
)
GROUPS = tuple(one for one in GROUP_COLUMNS if one.title not in ("Stream", "Virtual host"))
SEGMENTS = (
    Column("Segment", "number", "number"),
    Column("First offset", "first_offset", "number"),
    Column("Created", "begun", "time"),
    Column("Size", "bytes", "bytes"),
)


async def list_streams(call: HttpCall, vhost: str | None) -> Described[int]:
    """Return the streams among the queues."""
    listed = await queues.list_queues(call, vhost)
    table = call.state.queues.table
    return replace(
        listed, items=[slot for slot in listed.items if table.text("type", slot) == STREAM]
    )


async def show_stream(call: HttpCall, vhost: str, stream: str) -> JsonObject:
    """Return a stream as a queue, with its offsets, groups and segments."""
    queue = await queues.show_queue(call, vhost, stream)
    return {**queue, **await streams.show_stream(call, vhost, stream)}


async def bindings_of(call: HttpCall, vhost: str, stream: str) -> Listed:
    """Return the bindings to a stream."""
    return await exchanges.bindings_of_queue(call, vhost, stream)


LISTS = (
    ListPage(
        "/streams",
        "Streams",
        list_streams,
        (
            COLUMNS[0],
            COLUMNS[1],
            Column("Messages", "messages_ready", "number"),
            *(one for one in COLUMNS[2:] if one.title not in OF_QUEUES),
        ),
        stream_address,
        (Link("Declare a stream", "/queues/new?queue_type=stream"),),
        command=line("list", "streams"),
        empty="No matching streams.",
    ),
)
PAGES = (
    DetailPage(
        "/streams/{vhost}/{stream}",
        "Stream",
        PARENT,
        by_path(show_stream),
        lambda row: row["name"],
        (
            Column("Messages", "messages_ready", "number"),
            Column("First offset", "first_offset", "number"),
            Column("Next offset", "next_offset", "number"),
            *(one for one in FACTS if one.title not in OF_QUEUES),
            Column("Maximum size", "max_bytes", "bound"),
            Column("Maximum age", "max_age_ms", "span"),
        ),
        (
            Part("Groups", GROUPS, field="groups", link=group_address, empty="No groups."),
            Part("Consumers", CONSUMERS, field="consumer_details"),
            Part("Bindings", BINDINGS, by_path(bindings_of), link=binding_address),
            Part("Segments", SEGMENTS, field="segments"),
        ),
        links,
        charts=charts,
        command=lambda row: line("show", "stream", row["name"], vhost=row["vhost"]),
    ),
)
