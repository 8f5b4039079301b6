# SPDX-License-Identifier: Apache-2.0
"""Streams with their offsets, limits, groups and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.lookups import find_row, read_rows
from headrace.console.api.common.schemas import (
    OBJECT,
    TEXT,
    TIME,
    WHOLE,
    WHOLE_OR_NONE,
    array,
    record,
)
from headrace.console.api.groups import GROUP_SCHEMA
from headrace.console.broker.lists import GROUPS, STREAMS
from headrace.console.http.answers import Answer, RowList
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

LIMIT_SCHEMA: JsonObject = {"type": ["integer", "null"], "minimum": -1}  # -1 and null: no limit.
STREAM_FIELDS = {
    "name": TEXT,
    "vhost": TEXT,
    "first_offset": WHOLE,
    "next_offset": WHOLE,
    "durable_offset": WHOLE,
    "bytes": WHOLE,
    "max_bytes": LIMIT_SCHEMA,
    "max_age_ms": LIMIT_SCHEMA,
    "consumers": WHOLE,
    "arguments": OBJECT,
}
STREAM_SCHEMA = record(**STREAM_FIELDS, groups=WHOLE)
READER_SCHEMA = record(
    tag=TEXT,
    connection=WHOLE,
    channel=WHOLE,
    user=TEXT,
    prefetch=WHOLE,
    unacked=WHOLE,
    position=WHOLE_OR_NONE,
    lag=WHOLE_OR_NONE,
)
SEGMENT_SCHEMA = record(number=WHOLE, first_offset=WHOLE, begun=TIME, bytes=WHOLE)
STREAM_DETAILS_SCHEMA = record(
    **STREAM_FIELDS,
    groups=array(GROUP_SCHEMA),
    consumer_list=array(READER_SCHEMA),
    segment_count=WHOLE,
    segments=array(SEGMENT_SCHEMA),
)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/headrace/streams": "Streams with their offsets and limits.",
        "/api/headrace/streams/{vhost}": "The streams of one virtual host.",
    },
    rows=STREAM_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_streams(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the streams with their offsets, limits and numbers of readers."""
    return RowList(await read_rows(call, STREAMS, vhost))


@ROUTES.get(
    {
        "/api/headrace/streams/{vhost}/{stream}": "A stream with the positions and lags of its "
        "groups and consumers, and its segments."
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    answer=STREAM_DETAILS_SCHEMA,
)
async def get_stream(call: HttpCall, vhost: str, stream: str) -> Answer:
    """Return a stream with its groups, consumers and segments."""
    return Answer(200, await show_stream(call, vhost, stream))


async def show_stream(call: HttpCall, vhost: str, stream: str) -> JsonObject:
    """Return a stream, each group and consumer with its position and lag, and its segments.

    Raises:
        HttpError: the stream does not exist, or the user does not see it.
    """
    row = find_row(await read_rows(call, STREAMS, vhost), vhost=vhost, name=stream)
    groups = await read_rows(call, GROUPS, vhost)
    queue = await call.broker.ask("show queue", vhost=vhost, name=stream)
    return {
        **row,
        "groups": [
            group for group in groups if (group["vhost"], group["stream"]) == (vhost, stream)
        ],
        **{name: queue[name] for name in ("consumer_list", "segment_count", "segments")},
    }
