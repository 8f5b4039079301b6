# SPDX-License-Identifier: Apache-2.0
"""``/api/login``: sessions of browsers, begun and ended by a script or by the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.schemas import TEXT, record
from headrace.console.auth.addresses import client_address
from headrace.console.auth.broker_login import log_in
from headrace.console.auth.cookies import read_cookie, set_cookie
from headrace.console.auth.csrf import TOKEN_HEADER, is_from_console
from headrace.console.http.answers import Answer
from headrace.console.http.forms import URLENCODED
from headrace.console.http.limits import STRANGERS_BYTES_MAX
from headrace.console.http.routes import NOBODY, Routes
from headrace.console.http_errors import HttpError, bad_request

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
async def post_login(call: HttpCall) -> Answer:
    """Begin a session: the answer has its cookie, and its CSRF token in a header."""
    username, password = await read_credentials(call)
    session_id = await begin_session(call, username=username, password=password)
    session = call.sessions.peek(session_id)
    assert session is not None
    headers = {**set_cookie(call.request, session_id), TOKEN_HEADER: session.csrf}
    return Answer(204, headers=headers)


async def begin_session(
    call: HttpCall, *, username: str = "", password: str = "", token: str = ""
) -> str:
    """Begin a session and end the browser's earlier one; return the new identifier.

    The user logs in with a password, or with an access token; the session ends with the token.

    Raises:
        HttpError: 401, the broker refused the login.
    """
    request = call.request
    identity = await log_in(
        call.link,
        peer=client_address(request),
        encrypted=request.secure,
        username=username,
        password=password,
        token=token,
    )
    call.sessions.end(read_cookie(request))
    return call.sessions.begin(identity)


async def read_credentials(call: HttpCall) -> tuple[str, str]:
    """Return the name and the password in a body, JSON or a form.

    Raises:
        HttpError: a field is missing, not a string, or too long.
    """
    if call.request.headers.get("Content-Type", "").lower().startswith(URLENCODED):
        form = await call.body.form()
        fields: JsonObject = {name: form.get(name) for name in ("username", "password")}
    else:
        fields = await call.body.json_object()
    username, password = fields.get("username"), fields.get("password")
    if not isinstance(username, str) or not isinstance(password, str) or not username:
        raise bad_request("'username' and 'password' must be strings")
    if len(username) + len(password) > SECRET_MAX:
        raise bad_request("'username' and 'password' are too long")
    return username, password


@ROUTES.delete({"/api/login": "End the session."}, tag=NOBODY)
async def log_out(call: HttpCall) -> Answer:
    """End the session and its ticket."""
    if not is_from_console(call.request):
        raise HttpError(403, "only the console's own pages may end a session")
    await end_session(call)
    return Answer(204, headers=set_cookie(call.request, ""))


async def end_session(call: HttpCall) -> None:
    """End the session of a request and its ticket."""
    session = call.sessions.end(read_cookie(call.request))
    if session is not None:
        await call.link.ask("logout", ticket=session.identity.ticket)
