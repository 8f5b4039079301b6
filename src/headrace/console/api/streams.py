# SPDX-License-Identifier: Apache-2.0
"""Streams with their offsets, limits, groups and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.lookups import only, rows_of
from headrace.console.broker.lists import GROUPS, STREAMS
from headrace.console.http.answers import Answer, Listed
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

ROUTES = Routes()


@ROUTES.get(
    {
        "/api/headrace/streams": "Streams with their offsets and limits.",
        "/api/headrace/streams/{vhost}": "The streams of one virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_streams(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the streams with their offsets, limits and numbers of readers."""
    return Listed(await rows_of(call, STREAMS, vhost))


@ROUTES.get(
    {
        "/api/headrace/streams/{vhost}/{stream}": "A stream with the positions and lags of its "
        "groups and consumers, and its segments."
    },
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def get_stream(call: HttpCall, vhost: str, stream: str) -> Answer:
    """Return a stream with its groups, consumers and segments."""
    return Answer(200, await show_stream(call, vhost, stream))


async def show_stream(call: HttpCall, vhost: str, stream: str) -> JsonObject:
    """Return a stream, each group and consumer with its position and lag, and its segments.

    Raises:
        HttpError: the stream does not exist, or the user does not see it.
    """
    row = only(await rows_of(call, STREAMS, vhost), vhost=vhost, name=stream)
    groups = await rows_of(call, GROUPS, vhost)
    queue = await call.ask("show queue", vhost=vhost, name=stream)
    return {
        **row,
        "groups": [
            group for group in groups if (group["vhost"], group["stream"]) == (vhost, stream)
        ],
        **{name: queue[name] for name in ("consumer_list", "segment_count", "segments")},
    }
