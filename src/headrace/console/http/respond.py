# SPDX-License-Identifier: Apache-2.0
"""Responses of aiohttp from what handlers return."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiohttp.web_response import Response

from headrace.console.http.answers import Answer, Described, Listed, Streamed, Text
from headrace.console.http.errors import WORDS, HttpError
from headrace.console.http.paging import chosen, columns_of, paged

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse

JSON = "application/json"
COMPRESSED_MIN = 4096  # Bytes of a body that is worth compressing.


async def respond(found: object, request: BaseRequest) -> StreamResponse:
    """Return the response for the value that a handler returned."""
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
    else:
        if isinstance(found, Listed | Described):
            found = paged(found, request.query)
        elif isinstance(found, dict):
            found = chosen(found, columns_of(request.query))
        response = Response(body=encoded(found), content_type=JSON)
    if isinstance(response.body, bytes) and len(response.body) >= COMPRESSED_MIN:
        response.enable_compression()
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
