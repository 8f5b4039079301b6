# SPDX-License-Identifier: Apache-2.0
"""Requests about places in streams."""

from headrace.gateway.service.requests import NUMBER_MAX, Answered, Call, Handler

WORDS = ("first", "last", "next")


def stream_offset(call: Call) -> Answered:
    """Where a word or a moment lies in a stream."""
    stream = call.stream()
    at = call.request.get("at")
    if isinstance(at, str) and at in WORDS:
        offset = stream.resolve(at)
    elif isinstance(at, int) and not isinstance(at, bool) and 0 <= at <= NUMBER_MAX:
        offset = stream.log.offset_at(at)
    else:
        call.refuse("bad-request", f"'at' is neither {', '.join(WORDS)} nor a time in milliseconds")
    return {"stream": stream.name, "id": stream.id, "offset": offset}


HANDLERS: dict[str, Handler] = {"stream.offset": stream_offset}
