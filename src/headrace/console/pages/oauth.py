# SPDX-License-Identifier: Apache-2.0
"""The login by way of an OAuth 2 authorization server, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.login import begin
from headrace.console.auth.oauth import (
    ATTEMPT_S,
    MARK_MAX,
    AuthorizationError,
    address_of,
    code_of,
    token_of,
)
from headrace.console.auth.origin import is_encrypted, local_path, outer_of, set_cookie
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Answer, Text
from headrace.console.http.errors import HttpError, not_found
from headrace.console.http.routes import NOBODY, Parameter, Route
from headrace.console.pages.login import WORDS, form
from headrace.console.pages.rendering import bare

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from headrace.console.http.call import HttpCall
    from headrace.console.settings import OAuthClient

RETURN = "/login/oauth/return"
COOKIE = "headrace-login"
SECURE_COOKIE = "__Host-headrace-login"


def client_of(call: HttpCall) -> OAuthClient:
    """Return the settings of the login.

    Raises:
        HttpError: there are none.
    """
    if call.settings.oauth is None:
        raise not_found("Not Found")
    return call.settings.oauth


def name_of(request: BaseRequest) -> str:
    """Return the name of the cookie that keeps an attempt."""
    return SECURE_COOKIE if is_encrypted(request) else COOKIE


def redirect_of(request: BaseRequest) -> str:
    """Return the address to which the authorization server sends the browser back."""
    return f"{outer_of(request)}{RETURN}"


async def start(call: HttpCall) -> object:
    """Lead to the authorization server."""
    client, request = client_of(call), call.request
    marks = call.sessions.authorizations
    mark = marks.begin(local_path(call.query.get("next", "/")))
    # Lax: the browser comes back from another site, and sends no cookie that is Strict.
    secure = "; Secure" if is_encrypted(request) else ""
    ends = f"; Max-Age={ATTEMPT_S:.0f}; Path=/; HttpOnly; SameSite=Lax{secure}"
    headers = {
        "Location": address_of(client, marks, mark, redirect_of(request)),
        "Set-Cookie": f"{name_of(request)}={mark}{ends}",
    }
    return Answer(303, headers=headers)


async def finish(call: HttpCall) -> object:
    """Begin a session of the user for whom the authorization server gives a token."""
    client, request = client_of(call), call.request
    marks = call.sessions.authorizations
    mark = request.cookies.get(name_of(request), "")[:MARK_MAX]
    try:
        wanted = local_path(marks.wanted(mark, call.query.get("state", "")))
        code = code_of(client, call.query)
        token = await token_of(client, marks, mark, code, redirect_of(request))
        session = await begin(call, token=token)
    except AuthorizationError as error:
        return form(call, "/", said=f"{error}.", error=HttpError(401, str(error)))
    except HttpError as error:
        return form(call, "/", said=WORDS.get(error.reason, error.reason), error=error)
    except OperationRefused as error:
        return form(call, "/", said=error.text)
    # A page and no redirect: after one, the browser would not send the session's cookie, as the
    # first request of the chain came from another site.
    page = bare("logged-in.html", "Logged in", wanted=wanted)
    return Text(page.body, page.content_type, headers=set_cookie(request, session))


ROUTES = (
    Route(
        "GET",
        "/login/oauth",
        start,
        NOBODY,
        "",
        "Log in at the authorization server.",
        (Parameter("next", "The page to continue with."),),
        page=True,
    ),
    Route("GET", RETURN, finish, NOBODY, "", "Return from the authorization server.", page=True),
)
