# SPDX-License-Identifier: Apache-2.0
"""The messages of a queue or stream, and one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace.console.api import browse
from headrace.console.api.queues import show_queue
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.errors import HttpError, not_found, of_operation
from headrace.console.http.routes import Route
from headrace.console.pages.commands import line
from headrace.console.pages.listings import CSV, JSON, Column, file_of
from headrace.console.pages.messages.payloads import AUTO, FORMS, shown_as
from headrace.console.pages.objects.queues import here as queue_at
from headrace.console.pages.rendering import page
from headrace.console.pages.texts import (
    DELIVERY_MODES,
    compact_shown,
    exchange,
    shown,
)
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from markupsafe import Markup

    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

BYTES = 400  # Of each body in the list.
PATH = "/queues/{vhost}/{queue}/messages"
PARTS = ("selector", "from", "count")
FILE_BYTES = 64 << 10  # Of each body in a file.
COLUMNS = (  # Of a file; the page shows messages as they are.
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
# What is not told beside the properties: the body, and what has a place of its own.
APART = frozenset(("body", "body_base64", "headers", "cut", "position", "bytes"))


def here(call: HttpCall) -> str:
    """Return the address of the messages of the queue in a path."""
    return f"{queue_at(call)}/messages"


async def show_list(call: HttpCall) -> object:
    """Return the page of messages, or the messages as a file."""
    queue = await show_queue(call, **call.path)
    query = {name: call.query.get(name, "") for name in PARTS}
    form = call.query.get("format", "")
    said = ""
    found: JsonObject = {"messages": [], "next": None}
    try:
        found = await browse.page_of_messages(
            call,
            **call.path,
            count=browse.count_in(query),
            shown=FILE_BYTES if form else BYTES,
            selector=query["selector"],
            start=browse.place(query["from"] or "first"),
        )
    except HttpError as error:
        if error.status != 400:
            raise
        said = error.reason
    except OperationRefused as error:
        refusal = of_operation(error)
        if refusal.status != 400:
            raise refusal from None
        said = refusal.reason
    if form and not said:
        return file_of("messages", COLUMNS, found["messages"], form)
    asked = {name: value for name, value in query.items() if value}
    more = {**asked, "from": str(found["next"])}
    return page(
        call,
        "messages.html",
        f"Messages of {call.path['queue']}",
        status=400 if said else 200,
        queue=queue,
        queue_at=queue_at(call),
        at=here(call),
        query=query,
        said=said,
        rows=[(row, *shown_as(row, AUTO)) for row in found["messages"]],
        more=f"{here(call)}?{urlencode(more)}" if found["next"] else "",
        files=[
            (one.upper(), f"{here(call)}?{urlencode({**asked, 'format': one})}")
            for one in (CSV, JSON)
        ],
        command=line(
            "peek",
            call.path["queue"],
            vhost=call.path["vhost"],
            selector=query["selector"],
            **{"from": query["from"]},
        ),
    )


async def show_one(call: HttpCall) -> object:
    """Return the page of one message."""
    vhost, queue, position = (call.path[name] for name in ("vhost", "queue", "position"))
    if not position.isascii() or not position.isdecimal():
        raise not_found()
    found = await browse.page_of_messages(
        call, vhost, queue, count=1, shown=browse.SHOWN_MAX, start=browse.place(position)
    )
    rows: list[JsonObject] = found["messages"]
    if not rows or rows[0]["position"] != int(position):
        raise not_found("The message at this position is no longer ready.")
    row, form = rows[0], call.query.get("form", AUTO)
    text, form = shown_as(row, form if form in FORMS else AUTO)
    at = here(call)
    return page(
        call,
        "message.html",
        f"Message {position}",
        queue=queue,
        queue_at=queue_at(call),
        at=at,
        row=row,
        properties=[
            (name, property_shown(name, value)) for name, value in row.items() if name not in APART
        ],
        headers=sorted((row.get("headers") or {}).items()),
        text=text,
        form=form,
        forms=FORMS[1:],
        download=f"/api/headrace{at}/{position}/body",
        command=line(
            "peek",
            queue,
            vhost=vhost,
            limit=1,
            format="json",
            **{"from": position},
        ),
    )


def property_shown(name: str, value: object) -> Markup:
    """Return the value of a property as text."""
    if name == "exchange":
        return exchange(value)
    if name == "delivery_mode":
        return shown(DELIVERY_MODES.get(str(value), value))
    return compact_shown(value)


ROUTES = (
    Route(
        "GET",
        PATH,
        show_list,
        MANAGEMENT,
        "read on the queue",
        "Messages of a queue.",
        browse.QUERY,
        payloads=True,
        page=True,
    ),
    Route(
        "GET",
        f"{PATH}/{{position}}",
        show_one,
        MANAGEMENT,
        "read on the queue",
        "One message.",
        payloads=True,
        page=True,
    ),
)
