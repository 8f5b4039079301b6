# SPDX-License-Identifier: Apache-2.0
"""Browsing: reading messages of a queue or stream without removing them.

:mod:`.messages` publishes and gets messages, :mod:`.dead_letters` groups dead letters.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from headrace.console.api.common.schemas import (
    FLAG,
    OBJECT,
    TEXT,
    WHOLE,
    WHOLE_OR_NONE,
    array,
    record,
)
from headrace.console.broker.lists import MESSAGES
from headrace.console.http.answers import Answer, Text
from headrace.console.http.routes import Parameter, Routes
from headrace.console.http_errors import bad_request, not_found
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

QUEUE = "/api/headrace/queues/{vhost}/{queue}"
READ = "read on the queue"
COUNT, COUNT_MAX = 20, 500  # Messages of an answer.
SHOWN, SHOWN_MAX = 4096, 1 << 20  # Bytes of each body.
SELECTOR_MAX = 4096  # Characters.
OCTETS = "application/octet-stream"
DOWNLOAD = {
    "Content-Disposition": 'attachment; filename="message"',
    "Content-Security-Policy": "sandbox",
}
QUERY = (
    Parameter("selector", "A filter on headers and properties: \"region = 'north'\"."),
    Parameter(
        "from",
        "In order of position, from here: a number, first, last, next, or a time; "
        "of a stream also an interval such as 7D.",
    ),
    Parameter("count", f"Messages, {COUNT} by default, {COUNT_MAX} at most.", "integer"),
    Parameter("bytes", f"Bytes of each body, {SHOWN} by default.", "integer"),
)
MESSAGE_SCHEMA = record(
    position=WHOLE,
    class_=TEXT,
    exchange=TEXT,
    routing_key=TEXT,
    redelivered=FLAG,
    deliveries=WHOLE,
    persistent={"type": ["boolean", "null"]},
    headers=OBJECT,
    bytes=WHOLE,
) | {"anyOf": [{"required": ["body"]}, {"required": ["body_base64"]}]}
MESSAGES_SCHEMA = record(messages=array(MESSAGE_SCHEMA), next=WHOLE_OR_NONE)
ROUTES = Routes()


@ROUTES.get(
    {f"{QUEUE}/messages": "Messages of a queue or stream, which stay unchanged."},
    tag=MANAGEMENT,
    permission=READ,
    query=QUERY,
    shows_payloads=True,
    answer=MESSAGES_SCHEMA,
)
async def get_messages(call: HttpCall, vhost: str, queue: str) -> Answer:
    """Return messages in the order of delivery or position; ``next`` is the next position."""
    page = await read_messages(
        call,
        vhost,
        queue,
        count=parse_count(call.query),
        shown=parse_number(call.query, "bytes", SHOWN, 0, SHOWN_MAX),
        selector=call.query.get("selector", ""),
        start=parse_position(call.query.get("from", "")),
    )
    return Answer(200, page)


def parse_count(query: Mapping[str, str]) -> int:
    """Return the number of messages that a query selects.

    Raises:
        HttpError: the count is not a number, or out of bounds.
    """
    return parse_number(query, "count", COUNT, 1, COUNT_MAX)


async def read_messages(
    call: HttpCall,
    vhost: str,
    queue: str,
    *,
    count: int,
    shown: int,
    selector: str = "",
    start: int | str | None = None,
) -> JsonObject:
    """Return ``count`` messages of a queue at most, with ``shown`` bytes of each body.

    The messages are in the order of delivery, or with ``start`` in the order of position.

    Raises:
        HttpError: the selector is too long.
    """
    if len(selector) > SELECTOR_MAX:
        raise bad_request(f"'selector' has more than {SELECTOR_MAX} characters")
    rows = await call.broker.rows(
        MESSAGES,
        vhost=vhost,
        queue=queue,
        selector=selector or None,
        count=count,
        bytes=shown,
        **{"from": start},
    )
    has_more = len(rows) == count and start is not None
    return {"messages": rows, "next": rows[-1]["position"] + 1 if has_more else None}


@ROUTES.get(
    {
        f"{QUEUE}/messages/{{position}}/body": "The body of one message, as a file; 400 if it has "
        "more than 1 MiB."
    },
    tag=MANAGEMENT,
    permission=READ,
    media=OCTETS,
    shows_payloads=True,
)
async def get_message_body(call: HttpCall, vhost: str, queue: str, position: str) -> Text:
    """Return the body of the message at a position, as a download."""
    if not position.isascii() or not position.isdecimal() or len(position) > 18:
        raise not_found()
    rows = await call.broker.rows(
        MESSAGES,
        vhost=vhost,
        queue=queue,
        count=1,
        bytes=SHOWN_MAX,
        **{"from": int(position)},
    )
    if not rows or rows[0]["position"] != int(position):
        raise not_found("the message at this position is no longer ready")
    row = rows[0]
    if row.get("cut"):
        raise bad_request(f"the body has more than {SHOWN_MAX} bytes: {row['bytes']}")
    return Text(decode_body(row), OCTETS, headers=DOWNLOAD)


def decode_body(row: JsonObject) -> bytes:
    """Return the bytes of a body in a row."""
    if "body_base64" in row:
        return base64.b64decode(row["body_base64"])
    return str(row.get("body", "")).encode()


def parse_position(text: str) -> int | str | None:
    """Return a position for the operation ``peek``: a number, a word or a time."""
    if not text:
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else text


def parse_number(
    query: Mapping[str, str], name: str, default: int, minimum: int, maximum: int
) -> int:
    """Return a number of a query.

    Raises:
        HttpError: the text is not a number, or is out of bounds.
    """
    text = query.get(name, "")
    if not text:
        return default
    if text.isascii() and text.isdecimal() and len(text) <= 18 and minimum <= int(text) <= maximum:
        return int(text)
    raise bad_request(f"'{name}' is a number from {minimum} to {maximum}")
