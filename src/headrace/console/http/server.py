# SPDX-License-Identifier: Apache-2.0
"""One port of the console: checks every request in the same order, then runs its route's handler.

The order: host, size of the header, route, origin, login, rights, number of requests. The body is
read last, by the handler that needs it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aiohttp.web_response import Response

from headrace.console.broker.errors import BrokerGone, OperationRefused
from headrace.console.broker.logins import ENDED
from headrace.console.http.call import HttpCall
from headrace.console.http.connections import HttpConnection, HttpServer
from headrace.console.http.errors import HttpError, of_operation
from headrace.console.http.hosts import AllowedHosts
from headrace.console.http.limits import (
    HEADERS_BYTES_MAX,
    REQUESTS_OF_PEER_MAX,
    REQUESTS_OF_USER_MAX,
    Running,
)
from headrace.console.http.respond import of_error, respond
from headrace.console.http.routes import (
    ADMINISTRATOR,
    MANAGEMENT,
    MONITORING,
    NOBODY,
    POLICYMAKER,
    SAFE,
    Route,
    Router,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse

    from headrace.console.broker.link import BrokerLink
    from headrace.console.broker.logins import Identity
    from headrace.console.http.authentication import Authentication
    from headrace.console.settings import ConsoleSettings
    from headrace.console.state.state import State

log = logging.getLogger(__name__)

LACKS = {  # RabbitMQ's words.
    MANAGEMENT: "Not management user",
    POLICYMAKER: "Not policymaker user",
    MONITORING: "Not monitor user",
    ADMINISTRATOR: "Not administrator user",
}
FOREIGN = frozenset(("cross-site", "same-site"))  # Values of Sec-Fetch-Site.


class Port:
    """Serves the routes of one port."""

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        link: BrokerLink,
        state: State,
        settings: ConsoleSettings,
        authentication: Authentication,
    ) -> None:
        self.router = Router(routes)
        self._link = link
        self._state = state
        self._settings = settings
        self._authentication = authentication
        self._hosts = AllowedHosts((*settings.names, *settings.hosts))
        self._of_peer = Running(REQUESTS_OF_PEER_MAX)
        self._of_user = Running(REQUESTS_OF_USER_MAX)
        self.server = HttpServer(self.handle)

    async def handle(self, request: BaseRequest) -> StreamResponse:
        """Answer a request, whatever happens."""
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        self.server.serve(connection)
        try:
            with self._of_peer.one(request.remote or ""):
                return await self._answer(request)
        except HttpError as error:
            return of_error(error)
        except OperationRefused as error:
            return of_error(of_operation(error))
        except BrokerGone as error:
            return of_error(HttpError(503, str(error)))
        except ConnectionError:
            raise  # The client has gone.
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            reason = "internal error; the console's log says more"
            return of_error(HttpError(500, reason, closes=True))
        finally:
            self.server.wait(connection)

    async def _run(self, call: HttpCall) -> object:
        """Run the handler; once more when the ticket ended, as with the broker's restart."""
        try:
            return await call.route.handler(call)
        except OperationRefused as error:
            if error.text != ENDED or call.route.tag == NOBODY:
                raise
        self._authentication.forget(call.identity)
        call.act_as(await self._authentication.identify(call.request))
        return await call.route.handler(call)

    async def _answer(self, request: BaseRequest) -> StreamResponse:
        if not self._hosts.allow(request.headers.get("Host")):
            reason = "the Host header names no host of this server; console_names allows others"
            raise HttpError(421, reason)
        if sum(len(name) + len(value) for name, value in request.raw_headers) > HEADERS_BYTES_MAX:
            raise HttpError(431, f"headers have {HEADERS_BYTES_MAX} bytes at most", closes=True)
        path = request.rel_url.raw_path
        if request.method == "OPTIONS":
            return Response(headers={"Allow": self.router.methods(path)})
        identity: Identity | None = None
        try:
            route, parameters = self.router.find(request.method, path)
        except HttpError:
            if path.startswith("/api"):  # Who has not logged in is not told what there is.
                await self._authentication.identify(request)
            raise
        if request.method not in SAFE and request.headers.get("Sec-Fetch-Site") in FOREIGN:
            raise HttpError(403, "a page of another site may not change anything here")
        if route.tag != NOBODY:
            identity = await self._authentication.identify(request)
            if not route.allows(identity.tags):
                raise HttpError(401, LACKS[route.tag])
        call = HttpCall(
            request,
            route=route,
            path=parameters,
            identity=identity,
            link=self._link,
            state=self._state,
            settings=self._settings,
        )
        with self._of_user.one("" if identity is None else identity.name):
            try:
                return await respond(await self._run(call), request)
            finally:
                if request.method not in SAFE:
                    self._state.forget()
