# SPDX-License-Identifier: Apache-2.0
"""Responses of aiohttp, made from the values that handlers return (:mod:`.answers`)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from aiohttp.web_response import Response, StreamResponse

from headrace.console.http.answers import (
    Answer,
    Item,
    LazyList,
    RowList,
    StreamedAnswer,
    Text,
    no_content,
)
from headrace.console.http.columns import requested_columns, select_columns
from headrace.console.http.name_filter import apply_search, apply_search_to_items, present_items
from headrace.console.http.paging import cut_page, page_of_list, select_items
from headrace.console.http.routes import JSON
from headrace.console.http_errors import WORDS, HttpError

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from headrace.console.http.query import Query

LONG_LIST_ROWS = 1000  # A list of more rows is sent in chunks.
CHUNK_ROWS = 50  # Rows of one chunk.
SAMPLES = ("_age", "_incr")  # Endings of parameters that ask for samples.
COMPRESSED_MIN = 4096  # Bytes of a body that is compressed.


async def respond(value: object, request: BaseRequest) -> StreamResponse:
    """Return the response for the value of a handler; None is an answer without a body."""
    if value is None:
        value = no_content()
    if isinstance(value, StreamedAnswer):
        return await value.send(request)
    if isinstance(value, Text):
        response = Response(status=value.status, body=value.body, headers=value.headers)
        response.headers["Content-Type"] = value.content_type
    elif isinstance(value, Answer):
        body = None if value.value is None else encode_json(value.value)
        response = Response(status=value.status, body=body, headers=value.headers)
        if body is not None:
            response.content_type = JSON
    elif isinstance(value, LazyList) and is_long(value, request.query):
        return await send_in_chunks(value, request)
    else:
        if isinstance(value, RowList | LazyList):
            listed, fits = await apply_search(value, request.query)
            value = page_of_list(listed, request.query, fits)
        elif isinstance(value, dict):
            value = select_columns(value, requested_columns(request.query))
        response = Response(body=encode_json(value), content_type=JSON)
    if isinstance(response.body, bytes) and len(response.body) >= COMPRESSED_MIN:
        response.enable_compression()
    return response


def is_long(listed: LazyList[Item], query: Query) -> bool:
    """Return True for an answer that takes long: a long list, or samples of many rows."""
    if any(name.endswith(SAMPLES) for name in query):
        return len(listed.items) > CHUNK_ROWS
    return len(listed.items) > LONG_LIST_ROWS and "page" not in query


async def send_in_chunks(listed: LazyList[Item], request: BaseRequest) -> StreamResponse:
    """Send a list in pieces: it begins at once, and other requests are served between pieces.

    Raises:
        HttpError: the page does not exist, or a parameter is wrong.
    """
    query = request.query
    listed, fits = await apply_search_to_items(listed, query)
    facts, items = cut_page(select_items(listed, query, fits), len(listed.items), query)
    columns = requested_columns(query)
    versions = [listed.version(item) for item in items]
    response = StreamResponse()
    response.content_type = JSON
    await response.prepare(request)
    if request.method == "HEAD":
        await response.write_eof()
        return response
    begin, end = (b"[", b"]") if facts is None else (encode_json(facts)[:-1] + b',"items":[', b"]}")
    await response.write(begin)
    between = b""
    for start in range(0, len(items), CHUNK_ROWS):
        chunk = slice(start, start + CHUNK_ROWS)
        present = present_items(listed, items[chunk], versions[chunk])
        rows = [select_columns(listed.row(item), columns) for item in present]
        if rows:
            await response.write(between + encode_json(rows)[1:-1])
            between = b","
        await asyncio.sleep(0)
    await response.write(end)
    await response.write_eof()
    return response


def error_response(error: HttpError) -> Response:
    """Return the response for an error."""
    body = json.dumps({"error": error.error, "reason": error.reason}).encode()
    response = Response(status=error.status, body=body, headers=error.headers, content_type=JSON)
    if error.closes:
        response.force_close()
    return response


def error_body(status: int, reason: str) -> bytes:
    """Return the body of an error."""
    return encode_json({"error": WORDS.get(status, "error"), "reason": reason})


def encode_json(value: object) -> bytes:
    """Return JSON in ASCII, so that names may have lone surrogates."""
    return json.dumps(value, separators=(",", ":")).encode()
