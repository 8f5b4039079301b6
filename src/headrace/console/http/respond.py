# SPDX-License-Identifier: Apache-2.0
"""Responses of aiohttp, made from the values that handlers return (:mod:`.answers`)."""

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
from headrace.console.http.columns import chosen, columns_of
from headrace.console.http.name_filter import searched, searched_items
from headrace.console.http.paging import chosen_items, cut, paged
from headrace.console.http.routes import JSON
from headrace.console.http_errors import WORDS, HttpError

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from headrace.console.http.query import Query

LONG = 1000  # Rows; a longer list is sent in pieces.
ROWS = 50  # Of a piece.
SAMPLES = ("_age", "_incr")  # Endings of parameters that ask for samples.
COMPRESSED_MIN = 4096  # Bytes of a body that is compressed.


async def respond(value: object, request: BaseRequest) -> StreamResponse:
    """Return the response for the value of a handler; None is an answer without a body."""
    if value is None:
        value = no_content()
    if isinstance(value, Streamed):
        return await value.send(request)
    if isinstance(value, Text):
        response = Response(status=value.status, body=value.body, headers=value.headers)
        response.headers["Content-Type"] = value.content_type
    elif isinstance(value, Answer):
        body = None if value.value is None else encoded(value.value)
        response = Response(status=value.status, body=body, headers=value.headers)
        if body is not None:
            response.content_type = JSON
    elif isinstance(value, Described) and is_long(value, request.query):
        return await send_long(value, request)
    else:
        if isinstance(value, Listed | Described):
            listed, fits = await searched(value, request.query)
            value = paged(listed, request.query, fits)
        elif isinstance(value, dict):
            value = chosen(value, columns_of(request.query))
        response = Response(body=encoded(value), content_type=JSON)
    if isinstance(response.body, bytes) and len(response.body) >= COMPRESSED_MIN:
        response.enable_compression()
    return response


def is_long(listed: Described[Item], query: Query) -> bool:
    """Return True for an answer that takes long: a long list, or samples of many rows."""
    if any(name.endswith(SAMPLES) for name in query):
        return len(listed.items) > ROWS
    return len(listed.items) > LONG and "page" not in query


async def send_long(listed: Described[Item], request: BaseRequest) -> StreamResponse:
    """Send a list in pieces: it begins at once, and other requests are served between pieces.

    Raises:
        HttpError: the page does not exist, or a parameter is wrong.
    """
    query = request.query
    listed, fits = await searched_items(listed, query)
    facts, items = cut(chosen_items(listed, query, fits), len(listed.items), query)
    columns = columns_of(query)
    marks = [listed.mark(item) for item in items]
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
        piece = zip(items[at : at + ROWS], marks[at : at + ROWS], strict=True)
        present = [item for item, mark in piece if listed.mark(item) == mark]
        rows = [chosen(listed.describe(item), columns) for item in present]
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
    """Return JSON in ASCII, so that names may have lone surrogates."""
    return json.dumps(value, separators=(",", ":")).encode()
