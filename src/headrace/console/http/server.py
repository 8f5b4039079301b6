# SPDX-License-Identifier: Apache-2.0
"""One port of the console: checks each request, and runs the handler of its route.

The order of checks is host, size of the headers, route, origin, number of requests, login, rights,
CSRF token. A handler reads the body after all checks; the check of the token reads it for a form.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp.web_response import Response

from headrace.console.auth.addresses import client_address, local_path
from headrace.console.auth.broker_login import ENDED
from headrace.console.auth.cookies import read_cookie
from headrace.console.auth.csrf import check_change, is_foreign
from headrace.console.auth.hosts import AllowedHosts, host_name
from headrace.console.broker.errors import BrokerGone, OperationRefused
from headrace.console.broker.user_link import UserLink
from headrace.console.http.body_memory import BodyMemory
from headrace.console.http.call import HttpCall
from headrace.console.http.connections import HttpConnection, HttpServer, receiving_connection
from headrace.console.http.limits import (
    HEADERS_BYTES_MAX,
    REQUESTS_OF_PEER_MAX,
    REQUESTS_OF_STRANGERS_MAX,
    REQUESTS_OF_USER_MAX,
    RunningRequests,
    client_network,
)
from headrace.console.http.request_body import RequestBody
from headrace.console.http.respond import error_response, respond
from headrace.console.http.routes import NOBODY, SAFE, Route, Router
from headrace.console.http_errors import (
    NOT_FOUND,
    HttpError,
    broker_gone_error,
    not_found,
    refusal_error,
)
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER, VIEWER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse

    from headrace.console.auth.basic_bearer import Authentication
    from headrace.console.auth.broker_login import Identity
    from headrace.console.auth.sessions import Session, Sessions
    from headrace.console.broker.link import BrokerLink
    from headrace.console.settings import ConsoleSettings
    from headrace.console.state.broker_mirror import BrokerMirror

log = logging.getLogger(__name__)

MISSING_TAG_REASONS = {  # RabbitMQ's texts for a user without the tag of a route.
    MANAGEMENT: "Not management user",
    POLICYMAKER: "Not policymaker user",
    MONITORING: "Not monitor user",
    ADMINISTRATOR: "Not administrator user",
}
VIEWER_CHANGE_REASON = "You may view, not change"
VIEWER_PAYLOAD_REASON = "You may not view the payloads of messages"


class HttpApplication:
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
        error_page: Callable[[HttpError, Session | None], bytes] | None = None,
    ) -> None:
        """``error_page`` makes the HTML of an error; None for a port without pages.

        It takes the session of the request, or None without one.
        """
        self.router = Router(routes)
        self._link = link
        self._state = state
        self._settings = settings
        self._authentication = authentication
        self._sessions = sessions
        self._error_page = error_page
        proxy_names = (host_name(settings.url.partition("://")[2]),) if settings.url else ()
        self._hosts = AllowedHosts((*settings.names, *settings.hosts, *proxy_names))
        self.server = HttpServer(self.handle, settings.url)
        self._of_peer: RunningRequests[HttpConnection] = RunningRequests(REQUESTS_OF_PEER_MAX)
        self._of_user: RunningRequests[HttpConnection] = RunningRequests(REQUESTS_OF_USER_MAX)
        self._bodies = BodyMemory()
        self._of_strangers = RunningRequests(REQUESTS_OF_STRANGERS_MAX, self.server.end_stalled)

    async def handle(self, request: BaseRequest) -> StreamResponse:
        """Answer a request; an error of its handler becomes the answer."""
        connection = receiving_connection(request)
        self.server.serve(connection)
        try:
            return await self._answer(request)
        except (HttpError, OperationRefused) as error:
            return self._error_answer(request, refusal_error(error))
        except BrokerGone as error:
            gone = broker_gone_error(error, retries=request.method in SAFE)
            return self._error_answer(request, gone)
        except ConnectionError:
            raise  # The client disconnected.
        except Exception as error:
            if isinstance(error, OSError) and connection.transport is None:  # Its network failed.
                raise ConnectionResetError(str(error)) from None
            log.exception("%s %s failed", request.method, request.path)
            reason = "internal error; see the console's log"
            return self._error_answer(request, HttpError(500, reason, closes=True))
        finally:
            self.server.wait(connection)

    def _error_answer(self, request: BaseRequest, error: HttpError) -> Response:
        """Return the answer for an error: JSON for the API, a page for other paths."""
        answer = error_response(error)
        path = request.rel_url.raw_path
        if self._error_page is not None and not path.startswith("/api"):
            session = self._sessions.peek(read_cookie(request))
            answer.body = self._error_page(error, session)
            answer.content_type, answer.charset = "text/html", "utf-8"
        return answer

    async def _run(self, call: HttpCall, route: Route) -> object:
        """Run the handler; once more with a new ticket if the broker no longer knows the old one.

        A broker that restarts forgets tickets of tokens, and without a data directory all tickets.
        """
        try:
            return await run_handler(call, route)
        except OperationRefused as error:
            if error.text != ENDED or route.tag == NOBODY:
                raise
        if call.session is not None:
            self._sessions.end(read_cookie(call.request))
            raise no_session_error(call.request, route)
        self._authentication.forget(call.identity)
        call.broker.act_as(await self._authentication.identify(call.request))
        return await run_handler(call, route)

    async def _answer(self, request: BaseRequest) -> StreamResponse:
        """Check a request, and run its handler."""
        self._check_headers(request)
        path = request.rel_url.raw_path
        if request.method == "OPTIONS":
            return Response(headers={"Allow": self.router.methods(path)})
        try:
            route, parameters = self.router.find(request.method, path)
        except HttpError:
            # Without a login 401, as for known paths. They are no secret: OPTIONS needs no login.
            if path.startswith("/api"):
                await self._identify(request, None)
            raise
        if request.method not in SAFE and is_foreign(request):
            raise HttpError(403, "cross-site requests may not log in or change anything")
        identity: Identity | None = None
        session: Session | None = None
        connection = receiving_connection(request)
        network = client_network(request.remote or "")
        with contextlib.ExitStack() as counts:
            if not route.is_free:
                counts.enter_context(self._of_peer.count(network, connection))
            if route.tag != NOBODY:
                identity, session = await self._identify(request, route)
                if not route.allows(identity.tags):
                    raise HttpError(401, missing_tag_reason(route, identity.tags))
            if not route.is_free:
                if identity is None:
                    counts.enter_context(self._of_strangers.count(network, connection))
                else:
                    counts.enter_context(self._of_user.count(identity.name, connection))
            call = self._make_call(request, route, parameters, identity, session)
            try:
                if session is not None and request.method not in SAFE:
                    await check_change(request, session, call.body.form if route.page else None)
                return await respond(await self._run(call, route), request)
            finally:
                call.body.release()
                if request.method not in SAFE:
                    self._state.invalidate()

    def _make_call(
        self,
        request: BaseRequest,
        route: Route,
        parameters: Mapping[str, str],
        identity: Identity | None,
        session: Session | None,
    ) -> HttpCall:
        """Return the argument of a handler. The memory for bodies of users is bounded.

        While a request without a login waits for its body, its connection counts as stalled: other
        requests from the same address may end it.
        """
        if identity is None:
            reading = functools.partial(self.server.reading, receiving_connection(request))
            body = RequestBody(request, route.body_max, reading=reading)
        else:
            body = RequestBody(request, route.body_max, memory=self._bodies)
        agent = request.headers.get("User-Agent", "")
        return HttpCall(
            request,
            parameters,
            template=route.path,
            required_fields=route.required_fields,
            body=body,
            broker=UserLink(self._link, identity, peer=client_address(request), agent=agent),
            session=session,
            link=self._link,
            state=self._state,
            settings=self._settings,
            sessions=self._sessions,
        )

    def _check_headers(self, request: BaseRequest) -> None:
        """Raise HttpError for a foreign Host header, or for headers that are too long."""
        if not self._hosts.allow(request.headers.get("Host")):
            reason = "the Host header names no host of this server; console_names allows others"
            raise HttpError(421, reason)
        if sum(len(name) + len(value) for name, value in request.raw_headers) > HEADERS_BYTES_MAX:
            raise HttpError(431, f"headers may have at most {HEADERS_BYTES_MAX} bytes", closes=True)

    async def _identify(
        self, request: BaseRequest, route: Route | None
    ) -> tuple[Identity, Session | None]:
        """Return the user of a request, and the session if the request has one.

        Raises:
            HttpError: the request has no login, a wrong one, or its session has ended.
        """
        is_page = route is not None and route.page
        session_id = read_cookie(request)
        if not is_page and (session_id is None or "Authorization" in request.headers):
            if self._authentication.remembers(request):
                return await self._authentication.identify(request), None
            network = client_network(request.remote or "")
            with self._of_strangers.count(network, receiving_connection(request)):
                return await self._authentication.identify(request), None
        session = await self._sessions.find(session_id)
        if session is None:
            raise no_session_error(request, route)
        return session.identity, session


async def run_handler(call: HttpCall, route: Route) -> object:
    """Run the handler of a request.

    Raises:
        HttpError: 404 with RabbitMQ's text, if an object of a path of RabbitMQ does not exist.
    """
    try:
        return await route.handler(call)
    except OperationRefused as error:
        is_rabbitmqs = route.is_rabbitmqs and not route.page
        if is_rabbitmqs and error.code == NOT_FOUND:
            raise not_found() from None
        raise


def missing_tag_reason(route: Route, tags: Iterable[str]) -> str:
    """Return the reason for refusing a route to a user with these tags."""
    if route.tag in (MANAGEMENT, MONITORING) and VIEWER in tags:
        return VIEWER_CHANGE_REASON if route.changes else VIEWER_PAYLOAD_REASON
    return MISSING_TAG_REASONS[route.tag]


def no_session_error(request: BaseRequest, route: Route | None) -> HttpError:
    """Return the error for a request without a session; a page redirects to the login."""
    if route is None or not route.page:  # No challenge, or browsers ask for a password.
        return HttpError(401, "the session has ended", error="not_authorized")
    here = request.rel_url.raw_path_qs if request.method in SAFE else "/"
    path = f"/login?next={quote(local_path(here), safe='/')}"
    return HttpError(303, "log in first", headers={"Location": path})
