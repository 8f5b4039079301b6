# SPDX-License-Identifier: Apache-2.0
"""The pages on which users log in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.login import begin, credentials, end
from headrace.console.auth.origin import cookie_of, local_path, set_cookie
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Answer
from headrace.console.http.errors import HttpError
from headrace.console.http.limits import STRANGERS_BYTES_MAX
from headrace.console.http.routes import NOBODY, Parameter, Route
from headrace.console.pages.rendering import bare
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Text
    from headrace.console.http.call import HttpCall

WORDS = {
    "Not_Authorized": "The user name or the password is wrong.",
    "Not management user": "This user has no tag that gives access to the console.",
}


async def show(call: HttpCall) -> object:
    """Return the form; a user with a session goes on."""
    wanted = local_path(call.query.get("next", "/"))
    if await call.sessions.find(cookie_of(call.request)) is not None:
        return Answer(303, headers={"Location": wanted})
    return form(call, wanted)


async def log_in(call: HttpCall) -> object:
    """Begin a session, and go on to the page that was asked for."""
    sent = await call.form()
    wanted = local_path(sent.get("next", "/"))
    try:
        username, password = await credentials(call)
        session_id = await begin(call, username=username, password=password)
    except HttpError as error:
        said = WORDS.get(error.reason, error.reason)
        return form(call, wanted, sent.get("username"), said, error)
    except OperationRefused as error:
        return form(call, wanted, sent.get("username"), error.text)
    return Answer(303, headers={"Location": wanted, **set_cookie(call.request, session_id)})


def form(
    call: HttpCall,
    wanted: str,
    username: str = "",
    said: str = "",
    error: HttpError | None = None,
) -> Text:
    """Return the form, with what was wrong the last time."""
    return bare(
        "login.html",
        "Log in",
        status=200 if not said else 400 if error is None else error.status,
        wanted=wanted,
        username=username,
        said=said,
        has_oauth=call.settings.oauth is not None,
    )


async def log_out(call: HttpCall) -> object:
    """End the session."""
    await end(call)
    return Answer(303, headers={"Location": "/login", **set_cookie(call.request, "")})


ROUTES = (
    Route(
        "GET",
        "/login",
        show,
        NOBODY,
        "",
        "The form to log in.",
        (Parameter("next", "The page to continue with."),),
        page=True,
    ),
    Route(
        "POST",
        "/login",
        log_in,
        NOBODY,
        "",
        "Begin a session.",
        body_max=STRANGERS_BYTES_MAX,
        page=True,
    ),
    Route("POST", "/logout", log_out, MANAGEMENT, "", "End the session.", page=True),
)
