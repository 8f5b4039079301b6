# SPDX-License-Identifier: Apache-2.0
"""``/api/login``: a session for scripts of a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.schema_parts import TEXT, record
from headrace.console.auth.logins import LoginFailed, log_in
from headrace.console.auth.origin import TOKEN_HEADER, cookie_of, is_own, peer_of, set_cookie
from headrace.console.http.answers import Answer
from headrace.console.http.errors import HttpError, bad_request, of_login
from headrace.console.http.forms import URLENCODED
from headrace.console.http.limits import STRANGERS_BYTES_MAX
from headrace.console.http.routes import NOBODY, Routes

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

SECRET_MAX = 65536  # Characters of a password.
ROUTES = Routes()


@ROUTES.post(
    {
        "/api/login": "Begin a session: 204 with a cookie, and the token for changes in "
        "`X-CSRF-Token`."
    },
    tag=NOBODY,
    body=record(username=TEXT, password=TEXT),
    body_max=STRANGERS_BYTES_MAX,
)
async def log_in_by_body(call: HttpCall) -> object:
    """Begin a session: its cookie, and its token in a header."""
    username, password = await credentials(call)
    session_id = await begin(call, username=username, password=password)
    session = call.sessions.peek(session_id)
    assert session is not None
    headers = {**set_cookie(call.request, session_id), TOKEN_HEADER: session.csrf}
    return Answer(204, headers=headers)


async def begin(call: HttpCall, *, username: str = "", password: str = "", token: str = "") -> str:
    """Begin a session of a user; the browser's earlier one ends. Return its identifier.

    The user has a password, or an access token, with which the session ends.

    Raises:
        HttpError: the broker does not let the user in.
    """
    request = call.request
    try:
        identity = await log_in(
            call.link,
            peer=peer_of(request),
            encrypted=request.secure,
            username=username,
            password=password,
            token=token,
        )
    except LoginFailed as error:
        raise of_login(error) from None
    call.sessions.end(cookie_of(request))
    return call.sessions.begin(identity)


async def credentials(call: HttpCall) -> tuple[str, str]:
    """Return the user's name and password of a body.

    Raises:
        HttpError: it has none.
    """
    if call.request.headers.get("Content-Type", "").lower().startswith(URLENCODED):
        form = await call.form()
        given: JsonObject = {name: form.get(name) for name in ("username", "password")}
    else:
        given = await call.body()
    username, password = given.get("username"), given.get("password")
    if not isinstance(username, str) or not isinstance(password, str) or not username:
        raise bad_request("'username' and 'password' are two strings")
    if len(username) + len(password) > SECRET_MAX:
        raise bad_request("'username' and 'password' are too long")
    return username, password


@ROUTES.delete({"/api/login": "End the session."}, tag=NOBODY)
async def log_out(call: HttpCall) -> object:
    """End the session, and the broker's ticket with it."""
    if not is_own(call.request):
        raise HttpError(403, "only the console's own pages may end a session")
    await end(call)
    return Answer(204, headers=set_cookie(call.request, ""))


async def end(call: HttpCall) -> None:
    """End the session of a request, and its ticket."""
    session = call.sessions.end(cookie_of(call.request))
    if session is not None:
        await call.link.ask("logout", ticket=session.identity.ticket)
