# SPDX-License-Identifier: Apache-2.0
"""Connections of HTTP clients: their number, and how long one may wait for its client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from operator import itemgetter
from typing import TYPE_CHECKING

from aiohttp.web_protocol import RequestHandler
from aiohttp.web_response import Response
from aiohttp.web_server import Server

from headrace.console.auth.addresses import ProxiedRequest
from headrace.console.http.limits import (
    CONNECTIONS_MAX,
    FIELD_BYTES_MAX,
    FIELDS_MAX,
    WAIT_S,
    WRITE_S,
)
from headrace.console.http.respond import error_body
from headrace.console.http.security_headers import secure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse

log = logging.getLogger(__name__)

NO_ACCESS_LOG = logging.getLogger(f"{__name__}.access")  # Paths have names, queries secrets.
NO_ACCESS_LOG.setLevel(logging.CRITICAL)  # The broker audits the operations of users.


class SecuredRequest(ProxiedRequest):
    """A request whose answer has the security headers, even if no handler makes the answer."""

    async def _prepare_hook(self, response: StreamResponse) -> None:
        # aiohttp calls this before it sends the head of any answer, even the answer to a request
        # that it cannot parse.
        secure(response.headers, encrypted=self.secure)


class HttpConnection(RequestHandler):
    """The connection of one client."""

    __slots__ = ("_on_gone", "_owner", "is_served")

    def __init__(self, owner: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            owner,
            loop=loop,
            keepalive_timeout=WAIT_S,
            max_line_size=FIELD_BYTES_MAX,
            max_field_size=FIELD_BYTES_MAX,
            max_headers=FIELDS_MAX,
            lingering_time=2.0,
            auto_decompress=False,  # A small body must not become a large one.
            logger=log,
            access_log=NO_ACCESS_LOG,
        )
        self._owner = owner
        self._on_gone: Callable[[], None] | None = None
        self.is_served = False  # True while the server handles a request of the connection.

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the client disconnects, even if no answer is written then."""
        self._on_gone = callback

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # aiohttp caches these on first use. A request may be served after its client disconnected,
        # and its address must still be known then.
        _ = (self.peername, self.sockname, self.ssl_context)
        self._owner.wait(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._owner.stall(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._owner.resume(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._owner.forget(self)
        super().connection_lost(exc)
        if self._on_gone is not None:
            self._on_gone()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer a request that is not HTTP, or whose handler failed."""
        if status >= 500 and not isinstance(exc, ConnectionError):  # The client has gone.
            log.error("a request from %s failed", request.remote, exc_info=exc)
        reason = "internal error; see the console's log" if status >= 500 else "not HTTP"
        answer = Response(
            status=status, body=error_body(status, reason), content_type="application/json"
        )
        answer.force_close()
        return answer

    def hang_up(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()


def receiving_connection(request: BaseRequest) -> HttpConnection:
    """Return the connection that a request arrived on."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    return connection


class HttpServer(Server):
    """Makes a connection for each client, and closes those that wait for too long."""

    def __init__(
        self, handle: Callable[[BaseRequest], Awaitable[StreamResponse]], outer_origin: str = ""
    ) -> None:
        """``outer_origin`` is scheme and host of a proxy before the console; empty without one."""
        super().__init__(handle, request_factory=self._make_request)
        self._outer_origin = outer_origin
        self.clock: Callable[[], float] = self._loop.time
        # Connections that wait for a request, with the start of the wait, the longest wait first.
        self._waiting: dict[HttpConnection, float] = {}
        # Connections that wait for the body of a request without a login, or for a client that does
        # not read its answer.
        self._stalled: dict[HttpConnection, float] = {}
        self._leaving: set[HttpConnection] = set()  # Closed, but still among ``connections``.

    def __call__(self) -> HttpConnection:
        return HttpConnection(self, self._loop)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> BaseRequest:
        request = SecuredRequest(message, payload, protocol, writer, task, self._loop)
        request.outer_origin = self._outer_origin
        return request

    def wait(self, connection: HttpConnection) -> None:
        """Note that a connection waits for a request; above the limit close the longest wait."""
        connection.is_served = False
        self._waiting.pop(connection, None)
        if connection.transport is None or connection in self._stalled:
            return  # Closed, or its answer is not sent yet.
        self._waiting[connection] = self.clock()
        if len(self.connections) - len(self._leaving) > CONNECTIONS_MAX:
            queues = (self._waiting, self._stalled)
            longest = [next(iter(queue.items())) for queue in queues if queue]
            self._dismiss(min(longest, key=itemgetter(1))[0])

    def serve(self, connection: HttpConnection) -> None:
        """Note that a connection's request is served."""
        connection.is_served = True
        self._waiting.pop(connection, None)

    def stall(self, connection: HttpConnection) -> None:
        """Note that a request waits for its client."""
        if connection not in self._leaving:
            self._waiting.pop(connection, None)
            self._stalled[connection] = self.clock()

    def resume(self, connection: HttpConnection) -> None:
        """Note that a request no longer waits for its client."""
        if self._stalled.pop(connection, None) is not None and not connection.is_served:
            self.wait(connection)

    @contextlib.contextmanager
    def reading(self, connection: HttpConnection) -> Iterator[None]:
        """Mark a request as waiting for its client while the block reads its body."""
        self.stall(connection)
        try:
            yield
        finally:
            self.resume(connection)

    def end_stalled(self, candidates: Collection[HttpConnection]) -> HttpConnection | None:
        """Close and return the candidate that is stalled longest; None if none is stalled."""
        for connection in self._stalled:
            if connection in candidates:
                self._dismiss(connection)
                return connection
        return None

    def forget(self, connection: HttpConnection) -> None:
        """Note that a connection has ended."""
        self._waiting.pop(connection, None)
        self._stalled.pop(connection, None)
        self._leaving.discard(connection)

    def close_silent(self) -> None:
        """Close the connections that have waited for their clients for too long."""
        now = self.clock()
        for connection, since in list(self._waiting.items()):
            if since > now - WAIT_S:
                break
            self._dismiss(connection)
        for connection, since in list(self._stalled.items()):
            if since > now - WRITE_S:
                break
            if connection.writing_paused:  # A body has a time limit of its own.
                self._dismiss(connection)

    def _dismiss(self, connection: HttpConnection) -> None:
        """Close a waiting connection; aiohttp calls ``connection_lost`` later."""
        self._waiting.pop(connection, None)
        self._stalled.pop(connection, None)
        self._leaving.add(connection)
        connection.hang_up()
