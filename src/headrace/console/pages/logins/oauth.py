# SPDX-License-Identifier: Apache-2.0
"""The pages that log users in at an OAuth 2 authorization server.

One page redirects the browser to the server, which redirects it back to the other.
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
from headrace.console.http.answers import Text
from headrace.console.http.routes import NOBODY, Parameter
from headrace.console.http_errors import HttpError, not_found
from headrace.console.pages.logins.password import login_form, refused_login
from headrace.console.pages.rendering import bare_page, redirect
from headrace.console.pages.resource_pages import ResourcePages

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.console.settings import OAuthClient

RETURN_PATH = "/login/oauth/return"
PAGES = ResourcePages()
# Names of the cookie of an attempt to log in: over HTTP, and over TLS.
COOKIE = "headrace-login"
SECURE_COOKIE = "__Host-headrace-login"


def oauth_client(call: HttpCall) -> OAuthClient:
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


def redirect_uri(request: BaseRequest) -> str:
    """Return the redirect URI of OAuth: where the authorization server sends the browser back."""
    return f"{console_origin(request)}{RETURN_PATH}"


@PAGES.get(
    {"/login/oauth": "Log in at the authorization server."},
    tag=NOBODY,
    query=(Parameter("next", "The page to continue with."),),
)
async def start_login(call: HttpCall) -> Answer:
    """Begin an attempt to log in, and redirect to the authorization server."""
    client, request = oauth_client(call), call.request
    pending = call.sessions.pending_logins
    attempt = pending.begin(local_path(call.query.get("next", "/")))
    # Lax, as the browser comes back from another site and would not send a Strict cookie.
    secure = "; Secure" if is_encrypted(request) else ""
    attributes = f"; Max-Age={ATTEMPT_S:.0f}; Path=/; HttpOnly; SameSite=Lax{secure}"
    address = authorization_url(client, pending, attempt, redirect_uri(request))
    return redirect(address, {"Set-Cookie": f"{cookie_name(request)}={attempt}{attributes}"})


@PAGES.get({RETURN_PATH: "Return from the authorization server."}, tag=NOBODY)
async def finish_login(call: HttpCall) -> Text:
    """Begin a session with the token that the authorization server issues for the user."""
    client, request = oauth_client(call), call.request
    pending = call.sessions.pending_logins
    attempt = request.cookies.get(cookie_name(request), "")[:ATTEMPT_MAX]
    try:
        next_path = local_path(pending.next_path(attempt, call.query.get("state", "")))
        code = read_code(client, call.query)
        token = await fetch_token(client, pending, attempt, code, redirect_uri(request))
        session_id = await begin_session(call, token=token)
    except AuthorizationError as error:
        return login_form(call, "/", problem=f"{error}.", status=401)
    except (HttpError, OperationRefused) as error:
        return refused_login(call, "/", error)
    # A page instead of a redirect: a browser does not send the session's cookie after a chain of
    # redirects that another site began.
    page = bare_page("logged-in.html", "Logged in", next=next_path)
    return Text(page.body, page.content_type, headers=set_cookie(request, session_id))
