# SPDX-License-Identifier: Apache-2.0
"""Responses of aiohttp from what handlers return."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from aiohttp.web_response import Response, StreamResponse

from headrace.console.http.answers import (
    Answer,
    Described,
    Item,
    Listed,
    Streamed,
    Text,
    no_content,
)
from headrace.console.http.errors import WORDS, HttpError
from headrace.console.http.paging import (
    Query,
    chosen,
    chosen_items,
    columns_of,
    cut,
    paged,
    searched,
    searched_items,
)
from headrace.console.http.routes import JSON

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

LONG = 1000  # Rows of a list that is sent in pieces,
ROWS = 50  # of so many.
SAMPLES = ("_age", "_incr")  # The ends of parameters that ask for samples.
COMPRESSED_MIN = 4096  # Bytes of a body that is worth compressing.


async def respond(found: object, request: BaseRequest) -> StreamResponse:
    """Return the response for the value that a handler returned; None has nothing to say."""
    if found is None:
        found = no_content()
    if isinstance(found, Streamed):
        return await found.send(request)
    if isinstance(found, Text):
        response = Response(status=found.status, body=found.body, headers=found.headers)
        response.headers["Content-Type"] = found.content_type
    elif isinstance(found, Answer):
        body = None if found.value is None else encoded(found.value)
        response = Response(status=found.status, body=body, headers=found.headers)
        if body is not None:
            response.content_type = JSON
    elif isinstance(found, Described) and is_long(found, request.query):
        return await send_long(found, request)
    else:
        if isinstance(found, Listed | Described):
            found, fits = await searched(found, request.query)
            found = paged(found, request.query, fits)
        elif isinstance(found, dict):
            found = chosen(found, columns_of(request.query))
        response = Response(body=encoded(found), content_type=JSON)
    if isinstance(response.body, bytes) and len(response.body) >= COMPRESSED_MIN:
        response.enable_compression()
    return response


def is_long(listed: Described[Item], query: Query) -> bool:
    """Return True for answers that take long to make: long lists, and samples of many rows."""
    if any(name.endswith(SAMPLES) for name in query):
        return len(listed.items) > ROWS
    return len(listed.items) > LONG and "page" not in query


async def send_long(listed: Described[Item], request: BaseRequest) -> StreamResponse:
    """Send a list row by row, so that it begins at once and others are served meanwhile.

    Raises:
        HttpError: there is no such page.
    """
    query = request.query
    listed, fits = await searched_items(listed, query)
    facts, items = cut(chosen_items(listed, query, fits), len(listed.items), query)
    columns = columns_of(query)
    marks = [listed.mark(one) for one in items]
    response = StreamResponse()
    response.content_type = JSON
    await response.prepare(request)
    if request.method == "HEAD":
        await response.write_eof()
        return response
    begin, end = (b"[", b"]") if facts is None else (encoded(facts)[:-1] + b',"items":[', b"]}")
    await response.write(begin)
    between = b""
    for at in range(0, len(items), ROWS):
        some = zip(items[at : at + ROWS], marks[at : at + ROWS], strict=True)
        still = [one for one, mark in some if listed.mark(one) == mark]
        rows = [chosen(listed.describe(one), columns) for one in still]
        if rows:
            await response.write(between + encoded(rows)[1:-1])
            between = b","
        await asyncio.sleep(0)
    await response.write(end)
    await response.write_eof()
    return response


def of_error(error: HttpError) -> Response:
    """Return the response for an error."""
    body = json.dumps({"error": error.error, "reason": error.reason}).encode()
    response = Response(status=error.status, body=body, headers=error.headers, content_type=JSON)
    if error.closes:
        response.force_close()
    return response


def error_body(status: int, reason: str) -> bytes:
    """Return the body of an error."""
    return encoded({"error": WORDS.get(status, "error"), "reason": reason})


def encoded(value: object) -> bytes:
    """Return JSON; ASCII, so that names with lone surrogates pass."""
    return json.dumps(value, separators=(",", ":")).encode()
