# SPDX-License-Identifier: Apache-2.0
"""The login at an OAuth 2 authorization server: leads the browser there, and receives it back.

:mod:`headrace.console.auth.oauth` has the protocol: state, PKCE and the token endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.login import begin_session
from headrace.console.auth.addresses import console_origin, is_encrypted, local_path
from headrace.console.auth.cookies import set_cookie
from headrace.console.auth.oauth import (
    ATTEMPT_MAX,
    ATTEMPT_S,
    AuthorizationError,
    authorization_url,
    fetch_token,
    read_code,
)
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Answer, Text
from headrace.console.http.routes import NOBODY, Parameter
from headrace.console.http_errors import HttpError, not_found
from headrace.console.pages.logins.password import form, refused_form
from headrace.console.pages.rendering import bare_page
from headrace.console.pages.resource_pages import ResourcePages

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from headrace.console.http.call import HttpCall
    from headrace.console.settings import OAuthClient

RETURN = "/login/oauth/return"
PAGES = ResourcePages()
COOKIE = "headrace-login"
SECURE_COOKIE = "__Host-headrace-login"


def client_of(call: HttpCall) -> OAuthClient:
    """Return the console as a client of the authorization server.

    Raises:
        HttpError: 404, the settings name no authorization server.
    """
    if call.settings.oauth is None:
        raise not_found("Not Found")
    return call.settings.oauth


def cookie_name(request: BaseRequest) -> str:
    """Return the name of the cookie of an attempt to log in."""
    return SECURE_COOKIE if is_encrypted(request) else COOKIE


def redirect_of(request: BaseRequest) -> str:
    """Return the address to which the authorization server sends the browser back."""
    return f"{console_origin(request)}{RETURN}"


@PAGES.get(
    {"/login/oauth": "Log in at the authorization server."},
    tag=NOBODY,
    query=(Parameter("next", "The page to continue with."),),
)
async def start(call: HttpCall) -> Answer:
    """Begin an attempt to log in, and redirect to the authorization server."""
    client, request = client_of(call), call.request
    pending = call.sessions.pending_logins
    attempt = pending.begin(local_path(call.query.get("next", "/")))
    # Lax: the browser returns from another site, and sends no Strict cookie then.
    secure = "; Secure" if is_encrypted(request) else ""
    attributes = f"; Max-Age={ATTEMPT_S:.0f}; Path=/; HttpOnly; SameSite=Lax{secure}"
    headers = {
        "Location": authorization_url(client, pending, attempt, redirect_of(request)),
        "Set-Cookie": f"{cookie_name(request)}={attempt}{attributes}",
    }
    return Answer(303, headers=headers)


@PAGES.get({RETURN: "Return from the authorization server."}, tag=NOBODY)
async def finish(call: HttpCall) -> Text:
    """Begin a session of the user whose token the authorization server gives."""
    client, request = client_of(call), call.request
    pending = call.sessions.pending_logins
    attempt = request.cookies.get(cookie_name(request), "")[:ATTEMPT_MAX]
    try:
        next_path = local_path(pending.next_path(attempt, call.query.get("state", "")))
        code = read_code(client, call.query)
        token = await fetch_token(client, pending, attempt, code, redirect_of(request))
        session_id = await begin_session(call, token=token)
    except AuthorizationError as error:
        return form(call, "/", problem=f"{error}.", status=401)
    except (HttpError, OperationRefused) as error:
        return refused_form(call, "/", error)
    # A page instead of a redirect: after a redirect the browser would not send the session's
    # cookie, since the first request of the chain came from another site.
    page = bare_page("logged-in.html", "Logged in", next=next_path)
    return Text(page.body, page.content_type, headers=set_cookie(request, session_id))
