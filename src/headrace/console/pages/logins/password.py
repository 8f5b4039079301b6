# SPDX-License-Identifier: Apache-2.0
"""The pages that log users in with a password, and log them out.

:mod:`.oauth` logs users in at an authorization server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.console.api.login import begin_session, end_session, read_credentials
from headrace.console.auth.addresses import local_path
from headrace.console.auth.cookies import read_cookie, set_cookie
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.limits import STRANGERS_BYTES_MAX
from headrace.console.http.routes import NOBODY, Parameter
from headrace.console.http_errors import HttpError, refusal_error
from headrace.console.pages.rendering import bare_page, redirect
from headrace.console.pages.resource_pages import ResourcePages
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer, Text
    from headrace.console.http.call import HttpCall

PAGES = ResourcePages()
REASONS = {  # Reasons of refused logins, by their texts in the API.
    "Not_Authorized": "The user name or the password is wrong.",
    "Not management user": "This user has no tag that gives access to the console.",
}


@PAGES.get(
    {"/login": "The form to log in."},
    tag=NOBODY,
    query=(Parameter("next", "The page to continue with."),),
)
async def show_form(call: HttpCall) -> Text | Answer:
    """Return the form; redirect a user who has a session to the next page."""
    next_path = local_path(call.query.get("next", "/"))
    if await call.sessions.find(read_cookie(call.request)) is not None:
        return redirect(next_path)
    return login_form(call, next_path)


@PAGES.post({"/login": "Begin a session."}, tag=NOBODY, body_max=STRANGERS_BYTES_MAX)
async def log_in(call: HttpCall) -> Text | Answer:
    """Begin a session, and redirect to the page that led to the login."""
    fields = await call.body.form()
    next_path = local_path(fields.get("next", "/"))
    try:
        username, password = await read_credentials(call)
        session_id = await begin_session(call, username=username, password=password)
    except (HttpError, OperationRefused) as error:
        return refused_login(call, next_path, error, fields.get("username"))
    return redirect(next_path, set_cookie(call.request, session_id))


def login_form(
    call: HttpCall,
    next_path: str,
    username: str = "",
    problem: str = "",
    status: int = 200,
) -> Text:
    """Return the page with the form.

    ``problem`` is the reason of a failed login, ``status`` the status of the answer to it.
    """
    return bare_page(
        "login.html",
        "Log in",
        status=status,
        next=next_path,
        username=username,
        problem=problem,
        has_oauth=call.settings.oauth is not None,
    )


def refused_login(
    call: HttpCall, next_path: str, error: HttpError | OperationRefused, username: str = ""
) -> Text:
    """Return the form with the reason of a refused login, and the status of the refusal."""
    refusal = refusal_error(error)
    problem = REASONS.get(refusal.reason, refusal.reason)
    form = login_form(call, next_path, username, problem, refusal.status)
    return replace(form, headers=refusal.headers)


@PAGES.post({"/logout": "End the session."}, tag=MANAGEMENT)
async def log_out(call: HttpCall) -> Answer:
    """End the session, and redirect to the login."""
    await end_session(call)
    return redirect("/login", set_cookie(call.request, ""))
