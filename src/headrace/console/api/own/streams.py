# SPDX-License-Identifier: Apache-2.0
"""Streams with their offsets, limits, groups and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.rows import absent, only, rows_of
from headrace.console.http.answers import Answer, Listed
from headrace.console.http.routes import MANAGEMENT, Route

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

ACCESS = "access to the virtual host"
INTEGER: JsonObject = {"type": "integer"}
STRING: JsonObject = {"type": "string"}
LIMIT: JsonObject = {"type": ["integer", "null"]}
OBJECTS: JsonObject = {"type": "array", "items": {"type": "object"}}
FACTS: JsonObject = {
    "name": STRING,
    "vhost": STRING,
    "first_offset": INTEGER,
    "next_offset": INTEGER,
    "durable_offset": INTEGER,
    "bytes": INTEGER,
    "max_bytes": LIMIT,
    "max_age_ms": LIMIT,
    "consumers": INTEGER,
    "arguments": {"type": "object"},
}
ROW: JsonObject = {
    "type": "object",
    "properties": {**FACTS, "groups": INTEGER},
    "required": [*FACTS, "groups"],
}
DETAILS: JsonObject = {
    "type": "object",
    "properties": {**FACTS, "groups": OBJECTS, "consumer_list": OBJECTS},
    "required": [*FACTS, "groups", "consumer_list"],
}


async def list_streams(call: HttpCall) -> object:
    """Return the streams with their offsets, limits and numbers of readers."""
    return Listed(await rows_of(call, "list streams"))


async def show_stream(call: HttpCall) -> object:
    """Return a stream, each group with its position and lag, and its consumers.

    Raises:
        HttpError: there is no such stream, or the user does not see it.
    """
    vhost, name = call.path["vhost"], call.path["stream"]
    found = only(await rows_of(call, "list streams"), vhost=vhost, name=name)
    groups = await rows_of(call, "list groups")
    with absent():
        queue = await call.ask("show queue", vhost=vhost, name=name)
    return Answer(
        200,
        {
            **found,
            "groups": [one for one in groups if (one["vhost"], one["stream"]) == (vhost, name)],
            "consumer_list": queue["consumer_list"],
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
            answer={"type": "array", "items": ROW},
            paged=True,
        )
        for path, summary in (
            ("streams", "Streams with their offsets and limits."),
            ("streams/{vhost}", "Likewise, in one virtual host."),
        )
    ),
    Route(
        "GET",
        "/api/headrace/streams/{vhost}/{stream}",
        show_stream,
        MANAGEMENT,
        ACCESS,
        "A stream with the positions and lags of its groups, and its consumers.",
        answer=DETAILS,
    ),
)
