# SPDX-License-Identifier: Apache-2.0
"""The broker's events, as Server-Sent Events.

A stream ends with the user's ticket or session; the broker limits the number of streams. The broker
keeps no past events: a browser that reconnects with ``Last-Event-ID`` receives an event ``gap``,
with the time from which events may be missing. Above ``BUFFER_BYTES_MAX`` the events for a slow
reader are dropped; an event ``lost`` has their number.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import deque
from typing import TYPE_CHECKING

from aiohttp.web_response import StreamResponse

from headrace.console.auth.cookies import read_cookie
from headrace.console.broker.errors import BrokerGone, OperationRefused
from headrace.console.http.answers import StreamedAnswer
from headrace.console.http.connections import receiving_connection
from headrace.console.http.routes import ACCESS, Parameter, Routes
from headrace.console.http_errors import bad_request, too_many
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from aiohttp.web_request import BaseRequest

    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

MEDIA = "text/event-stream"
BUFFER_BYTES_MAX = 1 << 20  # Events of one stream that wait for its reader.
UNREAD_S = 60.0  # A reader that reads nothing for this time is disconnected.
RETRY_MS = 5000  # The time after which a browser reconnects.
KINDS_MAX = 32  # In one query.
LAST_ID = re.compile(r"[0-9]{1,15}")
KEEP_ALIVE = b":\n\n"  # A comment, for each busy line of the broker: at least every 10 s.
QUERY = (
    Parameter("kind", "Only these kinds, separated by commas: `queue` or `queue.created`."),
    Parameter("vhost", "Only events of this virtual host."),
)
ROUTES = Routes()


class Buffer:
    """Pieces of a stream that the reader has not received."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._bytes = 0
        self._lost = 0
        self._changed = asyncio.Event()

    def put(self, piece: bytes) -> None:
        """Add a piece; drop it if it would exceed ``BUFFER_BYTES_MAX``."""
        if self._bytes + len(piece) > BUFFER_BYTES_MAX:
            self._lost += 1
        else:
            self._pieces.append(piece)
            self._bytes += len(piece)
        self._changed.set()

    def lose(self, count: int) -> None:
        """Count events that the broker dropped."""
        self._lost += count
        self._changed.set()

    def wake(self) -> None:
        """End :meth:`wait`."""
        self._changed.set()

    async def wait(self) -> None:
        """Wait for a piece, or for :meth:`wake`."""
        await self._changed.wait()
        self._changed.clear()

    def take(self) -> bytes:
        """Remove and return the pieces, with an event ``lost`` if events were dropped."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._bytes = 0
        if self._lost:
            data += encode_event("lost", {"lost": self._lost})
            self._lost = 0
        return data


@ROUTES.get(
    {"/api/headrace/events": "The broker's events from now on, as Server-Sent Events."},
    tag=MANAGEMENT,
    permission=ACCESS,
    query=QUERY,
    media=MEDIA,
)
async def get_events(call: HttpCall) -> StreamedAnswer:
    """Stream the events that the user may see, from now on.

    Raises:
        HttpError: too many streams are open, or a parameter is wrong.
    """
    last = call.request.headers.get("Last-Event-ID", "")
    if last and not LAST_ID.fullmatch(last):
        raise bad_request("Last-Event-ID is not from this server")
    kinds = [kind.strip() for kind in call.query.get("kind", "").split(",") if kind.strip()]
    if len(kinds) > KINDS_MAX:
        raise bad_request(f"'kind' has more than {KINDS_MAX} kinds")
    lines = call.broker.lines("events", kinds=kinds or None, vhost=call.query.get("vhost") or None)
    try:
        await anext(lines)  # A busy line: the broker now sends all events.
    except OperationRefused as error:
        if error.code == "limit":
            raise too_many(error.text) from None
        raise

    async def send(request: BaseRequest) -> StreamResponse:
        response = StreamResponse(headers={"Content-Type": MEDIA})
        async with contextlib.aclosing(lines):
            await response.prepare(request)
            if request.method != "HEAD":
                await send_events(call, lines, response, last)
        await response.write_eof()
        return response

    return StreamedAnswer(send)


async def send_events(
    call: HttpCall, lines: AsyncGenerator[JsonObject, None], response: StreamResponse, last: str
) -> None:
    """Send lines of the broker until they end, the session ends, or the reader disconnects."""
    buffer = Buffer()
    buffer.put(b"retry: %d\n\n" % RETRY_MS)
    if last:
        buffer.put(encode_event("gap", {"since_ms": int(last)}))
    reading = asyncio.create_task(fill_buffer(call, lines, buffer))
    reading.add_done_callback(lambda _: buffer.wake())
    receiving_connection(call.request).when_gone(buffer.wake)
    try:
        while not reading.done():
            await buffer.wait()
            await write_chunk(call.request, response, buffer.take())
        await write_chunk(call.request, response, encode_event("end", {"reason": reading.result()}))
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def fill_buffer(
    call: HttpCall, lines: AsyncGenerator[JsonObject, None], buffer: Buffer
) -> str:
    """Put lines of the broker into a buffer until they end; return the reason for the end."""
    session_id = read_cookie(call.request)
    try:
        async for line in lines:
            if call.session is not None and call.sessions.peek(session_id) is not call.session:
                return "the session has ended"
            item = line.get("item")
            if item is None:
                buffer.put(KEEP_ALIVE)
            elif "lost" in item:
                buffer.lose(item["lost"])
            else:
                buffer.put(b"id: %d\n" % item["at_ms"] + encode_event("", item))
    except OperationRefused as error:
        return error.text
    except BrokerGone as error:
        return str(error)
    return "the broker ended the stream"


async def write_chunk(request: BaseRequest, response: StreamResponse, piece: bytes) -> None:
    """Send a piece.

    Raises:
        ConnectionError: the reader disconnected, or read nothing for ``UNREAD_S``.
    """
    if request.transport is None or request.transport.is_closing():
        raise ConnectionError("the reader of events has gone")
    try:
        async with asyncio.timeout(UNREAD_S):
            await response.write(piece)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionError(f"the reader of events read nothing for {UNREAD_S:.0f} s") from None


def encode_event(name: str, value: JsonObject) -> bytes:
    """Return an event of Server-Sent Events; without a name its type is ``message``."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()
