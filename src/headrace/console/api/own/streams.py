# SPDX-License-Identifier: Apache-2.0
"""Streams with their offsets, limits, groups and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.rows import only, rows_of
from headrace.console.http.answers import Answer, Listed
from headrace.console.http.routes import Route
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall

ACCESS = "access to the virtual host"


async def list_streams(call: HttpCall) -> object:
    """Return the streams with their offsets, limits and numbers of readers."""
    return Listed(await rows_of(call, "list streams"))


async def show_stream(call: HttpCall) -> object:
    """Return a stream, each group and consumer with its position and lag, and its segments.

    Raises:
        HttpError: there is no such stream, or the user does not see it.
    """
    vhost, name = call.path["vhost"], call.path["stream"]
    found = only(await rows_of(call, "list streams"), vhost=vhost, name=name)
    groups = await rows_of(call, "list groups")
    queue = await call.ask("show queue", vhost=vhost, name=name)
    return Answer(
        200,
        {
            **found,
            "groups": [one for one in groups if (one["vhost"], one["stream"]) == (vhost, name)],
            **{name: queue[name] for name in ("consumer_list", "segment_count", "segments")},
        },
    )


ROUTES = (
    *(
        Route(
            "GET",
            f"/api/headrace/{path}",
            list_streams,
            MANAGEMENT,
            ACCESS,
            summary,
            paged=True,
        )
        for path, summary in (
            ("streams", "Streams with their offsets and limits."),
            ("streams/{vhost}", "The streams of one virtual host."),
        )
    ),
    Route(
        "GET",
        "/api/headrace/streams/{vhost}/{stream}",
        show_stream,
        MANAGEMENT,
        ACCESS,
        "A stream with the positions and lags of its groups and consumers, and its segments.",
    ),
)
