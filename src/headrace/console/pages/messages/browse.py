# SPDX-License-Identifier: Apache-2.0
"""The pages of the messages of a queue or stream, and of one message. Browsing changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace.console.api import browse
from headrace.console.api.queues import show_queue
from headrace.console.broker.errors import OperationRefused
from headrace.console.http_errors import HttpError, not_found, refusal_error
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.exports import FORMATS, export_rows
from headrace.console.pages.links import path_to
from headrace.console.pages.messages.payload_forms import AUTO, FORMS, render_payload
from headrace.console.pages.rendering import page
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import (
    DELIVERY_MODES,
    compact_text,
    exchange,
    safe_text,
)
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup

    from headrace.console.http.answers import Text
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

PAGE_BODY_BYTES = 400  # Bytes of each body on the page.
FILE_BODY_BYTES = 64 << 10  # Bytes of each body in a file.
MESSAGES_PATH = "/queues/{vhost}/{queue}/messages"
FORM_FIELDS = ("selector", "from", "count")
READ_PERMISSION = "read on the queue"
PAGES = ResourcePages()
FILE_COLUMNS = (  # The page shows messages as cards.
    Column("Position", "position", "number"),
    Column("Exchange", "exchange"),
    Column("Routing key", "routing_key"),
    Column("Redelivered", "redelivered", "flag"),
    Column("Content type", "content_type"),
    Column("Time", "timestamp"),
    Column("Headers", "headers", "json"),
    Column("Bytes", "bytes", "number"),
    Column("Payload in base64", "body_base64"),
    Column("Payload", "body"),
)
#: Fields of a row that the page of a message does not list as properties.
NOT_PROPERTIES = frozenset(("body", "body_base64", "headers", "cut", "position", "bytes"))


def messages_address(vhost: str, queue: str) -> str:
    """Return the address of the page of a queue's messages."""
    return f"{path_to('queues', vhost, queue)}/messages"


@PAGES.get(
    {MESSAGES_PATH: "Messages of a queue."},
    tag=MANAGEMENT,
    permission=READ_PERMISSION,
    query=browse.QUERY,
    shows_payloads=True,
)
async def show_messages(call: HttpCall, vhost: str, queue: str) -> Text:
    """Return the page of messages, or the messages as a file."""
    queue_row = await show_queue(call, vhost, queue)
    query = {name: call.query.get(name, "") for name in FORM_FIELDS}
    file_format = call.query.get("format", "")
    body_bytes = FILE_BODY_BYTES if file_format else PAGE_BODY_BYTES
    answer, problem = await read_messages(call, vhost, queue, query, body_bytes)
    if file_format and not problem:
        return export_rows("messages", FILE_COLUMNS, answer["messages"], file_format)
    address = messages_address(vhost, queue)
    parameters = {name: value for name, value in query.items() if value}
    next_page = {**parameters, "from": str(answer["next"])}
    return page(
        call,
        "messages.html",
        f"Messages of {queue}",
        status=400 if problem else 200,
        queue=queue_row,
        queue_address=path_to("queues", vhost, queue),
        messages_address=address,
        query=query,
        problem=problem,
        rows=[(row, *render_payload(row, AUTO)) for row in answer["messages"]],
        next_address=f"{address}?{urlencode(next_page)}" if answer["next"] else "",
        files=[
            (each.upper(), f"{address}?{urlencode({**parameters, 'format': each})}")
            for each in FORMATS
        ],
        command=command_line(
            "peek",
            queue,
            vhost=vhost,
            selector=query["selector"],
            **{"from": query["from"]},
        ),
    )


async def read_messages(
    call: HttpCall, vhost: str, queue: str, query: Mapping[str, str], body_bytes: int
) -> tuple[JsonObject, str]:
    """Return the messages that the form selects, or no messages and what is wrong with the form.

    Raises:
        HttpError: the queue does not exist, or the user may not read it.
    """
    try:
        answer = await browse.read_messages(
            call,
            vhost,
            queue,
            count=browse.parse_count(query),
            shown=body_bytes,
            selector=query["selector"],
            start=browse.parse_position(query["from"] or "first"),
        )
    except (HttpError, OperationRefused) as error:
        refusal = refusal_error(error)
        if refusal.status != 400:
            raise refusal from None
        return {"messages": [], "next": None}, refusal.reason
    return answer, ""


@PAGES.get(
    {f"{MESSAGES_PATH}/{{position}}": "One message."},
    tag=MANAGEMENT,
    permission=READ_PERMISSION,
    shows_payloads=True,
)
async def show_message(call: HttpCall, vhost: str, queue: str, position: str) -> Text:
    """Return the page of one message."""
    if not position.isascii() or not position.isdecimal():
        raise not_found()
    answer = await browse.read_messages(
        call, vhost, queue, count=1, shown=browse.SHOWN_MAX, start=browse.parse_position(position)
    )
    rows: list[JsonObject] = answer["messages"]
    if not rows or rows[0]["position"] != int(position):
        raise not_found("The message at this position is no longer ready.")
    row, form = rows[0], call.query.get("form", AUTO)
    text, form = render_payload(row, form if form in FORMS else AUTO)
    address = messages_address(vhost, queue)
    return page(
        call,
        "message.html",
        f"Message {position}",
        queue=queue,
        queue_address=path_to("queues", vhost, queue),
        messages_address=address,
        row=row,
        properties=[
            (name, format_property(name, value))
            for name, value in row.items()
            if name not in NOT_PROPERTIES
        ],
        headers=sorted((row.get("headers") or {}).items()),
        text=text,
        form=form,
        forms=FORMS[1:],
        download=f"/api/headrace{address}/{position}/body",
        command=command_line(
            "peek",
            queue,
            vhost=vhost,
            limit=1,
            format="json",
            **{"from": position},
        ),
    )


def format_property(name: str, value: object) -> Markup:
    """Return the value of a message's property as HTML."""
    if name == "exchange":
        return exchange(value)
    if name == "delivery_mode":
        return safe_text(DELIVERY_MODES.get(str(value), value))
    return compact_text(value)
