# SPDX-License-Identifier: Apache-2.0
"""One port of the console: checks every request in the same order, then runs its route's handler.

The order: host, size of the header, route, origin, number of requests, login, rights, token. The
body is read last, by the handler that needs it, or for the token of a form.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp.web_response import Response

from headrace.console.auth.logins import ENDED, LoginFailed
from headrace.console.auth.origin import (
    TOKEN_FIELD,
    TOKEN_HEADER,
    cookie_of,
    is_foreign,
    is_own,
    local_path,
)
from headrace.console.broker.errors import BrokerGone, OperationRefused
from headrace.console.http.bodies import Bodies
from headrace.console.http.call import HttpCall
from headrace.console.http.connections import HttpConnection, HttpServer
from headrace.console.http.errors import NOT_FOUND, HttpError, not_found, of_login, of_operation
from headrace.console.http.hosts import AllowedHosts, name_of
from headrace.console.http.limits import (
    HEADERS_BYTES_MAX,
    REQUESTS_OF_PEER_MAX,
    REQUESTS_OF_STRANGERS_MAX,
    REQUESTS_OF_USER_MAX,
    Running,
    network_of,
)
from headrace.console.http.respond import of_error, respond
from headrace.console.http.routes import NOBODY, SAFE, Route, Router
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER, VIEWER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse

    from headrace.console.auth.basic_bearer import Authentication
    from headrace.console.auth.logins import Identity
    from headrace.console.auth.sessions import Session, Sessions
    from headrace.console.broker.link import BrokerLink
    from headrace.console.settings import ConsoleSettings
    from headrace.console.state.broker_mirror import BrokerMirror

log = logging.getLogger(__name__)

LACKS = {  # RabbitMQ's words.
    MANAGEMENT: "Not management user",
    POLICYMAKER: "Not policymaker user",
    MONITORING: "Not monitor user",
    ADMINISTRATOR: "Not administrator user",
}
VIEWERS_CHANGE = "You may view, not change"
VIEWERS_PAYLOADS = "You may not view the payloads of messages"
RETRY = {"Retry-After": "2"}


class Port:
    """Serves the routes of one port."""

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        link: BrokerLink,
        state: BrokerMirror,
        settings: ConsoleSettings,
        authentication: Authentication,
        sessions: Sessions,
        error_page: Callable[[HttpError], bytes] | None = None,
    ) -> None:
        """``error_page`` makes the HTML of errors; None where there are no pages."""
        self.router = Router(routes)
        self._link = link
        self._state = state
        self._settings = settings
        self._authentication = authentication
        self._sessions = sessions
        self._error_page = error_page
        outer = (name_of(settings.url.partition("://")[2]),) if settings.url else ()
        self._hosts = AllowedHosts((*settings.names, *settings.hosts, *outer))
        self.server = HttpServer(self.handle, settings.url)
        self._of_peer: Running[HttpConnection] = Running(REQUESTS_OF_PEER_MAX)
        self._of_user: Running[HttpConnection] = Running(REQUESTS_OF_USER_MAX)
        self._bodies = Bodies()
        self._of_strangers = Running(REQUESTS_OF_STRANGERS_MAX, self.server.give_up)

    async def handle(self, request: BaseRequest) -> StreamResponse:
        """Answer a request, whatever happens."""
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        self.server.serve(connection)
        try:
            return await self._answer(request, connection)
        except HttpError as error:
            return self._told(request, error)
        except OperationRefused as error:
            return self._told(request, of_operation(error))
        except BrokerGone as error:
            return self._told(request, HttpError(503, str(error), headers=RETRY))
        except ConnectionError:
            raise  # The client has gone.
        except Exception as error:
            if isinstance(error, OSError) and connection.transport is None:  # Its network has, too.
                raise ConnectionResetError(str(error)) from None
            log.exception("%s %s failed", request.method, request.path)
            reason = "internal error; see the console's log"
            return self._told(request, HttpError(500, reason, closes=True))
        finally:
            self.server.wait(connection)

    def _told(self, request: BaseRequest, error: HttpError) -> Response:
        """Return the answer for an error: JSON, or a page where a browser asks for one."""
        answer = of_error(error)
        path = request.rel_url.raw_path
        if self._error_page is not None and not path.startswith("/api"):
            answer.body = self._error_page(error)
            answer.content_type, answer.charset = "text/html", "utf-8"
        return answer

    async def _run(self, call: HttpCall) -> object:
        """Run the handler; once more when the ticket ended, as with the broker's restart."""
        try:
            return await handled(call)
        except OperationRefused as error:
            if error.text != ENDED or call.route.tag == NOBODY:
                raise
        if call.session is not None:
            self._sessions.end(cookie_of(call.request))
            raise logged_out(call.request, call.route)
        self._authentication.forget(call.identity)
        call.act_as(await self._log_in(call.request))
        return await handled(call)

    async def _answer(self, request: BaseRequest, connection: HttpConnection) -> StreamResponse:
        if not self._hosts.allow(request.headers.get("Host")):
            reason = "the Host header names no host of this server; console_names allows others"
            raise HttpError(421, reason)
        if sum(len(name) + len(value) for name, value in request.raw_headers) > HEADERS_BYTES_MAX:
            raise HttpError(431, f"headers have {HEADERS_BYTES_MAX} bytes at most", closes=True)
        path = request.rel_url.raw_path
        if request.method == "OPTIONS":
            return Response(headers={"Allow": self.router.methods(path)})
        try:
            route, parameters = self.router.find(request.method, path)
        except HttpError:
            if path.startswith("/api"):  # Paths are hidden before a login.
                await self._identify(request, None, connection)
            raise
        if request.method not in SAFE and is_foreign(request):
            raise HttpError(403, "cross-site requests may not log in or change anything")
        identity: Identity | None = None
        session: Session | None = None
        place = network_of(request.remote or "")
        with contextlib.ExitStack() as counted:
            if not route.is_free:
                counted.enter_context(self._of_peer.one(place, connection))
            if route.tag != NOBODY:
                identity, session = await self._identify(request, route, connection)
                if not route.allows(identity.tags):
                    raise HttpError(401, lacking(route, identity.tags))
            if not route.is_free:
                if identity is None:
                    counted.enter_context(self._of_strangers.one(place, connection))
                else:
                    counted.enter_context(self._of_user.one(identity.name, connection))
            call = HttpCall(
                request,
                route=route,
                path=parameters,
                identity=identity,
                link=self._link,
                state=self._state,
                settings=self._settings,
                sessions=self._sessions,
                session=session,
                bodies=None if identity is None else self._bodies,
                reading=functools.partial(self.server.reading, connection)
                if identity is None
                else contextlib.nullcontext,
            )
            try:
                if session is not None and request.method not in SAFE:
                    await check_own(call, session)
                return await respond(await self._run(call), request)
            finally:
                call.close()
                if request.method not in SAFE:
                    self._state.forget()

    async def _log_in(self, request: BaseRequest) -> Identity:
        """Return the user of a request with Basic or Bearer.

        Raises:
            HttpError: the request has no login, or a wrong one.
        """
        try:
            return await self._authentication.identify(request)
        except LoginFailed as error:
            raise of_login(error) from None

    async def _identify(
        self, request: BaseRequest, route: Route | None, connection: HttpConnection
    ) -> tuple[Identity, Session | None]:
        """Return the user of a request, and the session where it is a browser's.

        Raises:
            HttpError: the request has no login, or a wrong one.
        """
        is_page = route is not None and route.page
        session_id = cookie_of(request)
        if not is_page and (session_id is None or "Authorization" in request.headers):
            if self._authentication.remembers(request):
                return await self._log_in(request), None
            with self._of_strangers.one(network_of(request.remote or ""), connection):
                return await self._log_in(request), None
        session = await self._sessions.find(session_id)
        if session is None:
            raise logged_out(request, route)
        return session.identity, session


async def handled(call: HttpCall) -> object:
    """Run the handler of a request.

    Raises:
        HttpError: RabbitMQ's 404, where the broker does not find an object on a path of RabbitMQ.
    """
    try:
        return await call.route.handler(call)
    except OperationRefused as error:
        if error.code == NOT_FOUND and call.route.is_rabbitmqs and not call.route.page:
            raise not_found() from None
        raise


def lacking(route: Route, tags: Iterable[str]) -> str:
    """Return why a user with these tags may not ask for a route."""
    if route.tag in (MANAGEMENT, MONITORING) and VIEWER in tags:
        return VIEWERS_PAYLOADS if route.method in SAFE else VIEWERS_CHANGE
    return LACKS[route.tag]


def logged_out(request: BaseRequest, route: Route | None) -> HttpError:
    """Return the error for a request without a session: a page leads to the login."""
    if route is None or not route.page:  # No challenge: a browser would ask for a password itself.
        return HttpError(401, "the session has ended", error="not_authorized")
    wanted = request.rel_url.raw_path_qs if request.method in SAFE else "/"
    path = f"/login?next={quote(local_path(wanted), safe='/')}"
    return HttpError(303, "log in first", headers={"Location": path})


async def check_own(call: HttpCall, session: Session) -> None:
    """Refuse a change that none of the console's own pages asks for.

    Raises:
        HttpError: the browser does not say so, or the session's token is missing.
    """
    if not is_own(call.request):
        raise HttpError(403, "only the console's own pages may change anything with a session")
    token = call.request.headers.get(TOKEN_HEADER)
    if token is None and call.route.page:
        token = (await call.form()).get(TOKEN_FIELD)
    if not session.proves(token or ""):
        field = f" or in the form field {TOKEN_FIELD}" if call.route.page else ""
        raise HttpError(403, f"missing or wrong CSRF token: send it in {TOKEN_HEADER}{field}")
