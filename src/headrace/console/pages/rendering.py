# SPDX-License-Identifier: Apache-2.0
"""HTML from the templates, which escape every value."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headrace.console.http.answers import Answer, Text
from headrace.console.pages import texts
from headrace.console.pages.assets import asset_address
from headrace.console.pages.navigation import menu_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.console.auth.sessions import Session
    from headrace.console.http.call import HttpCall
    from headrace.console.http_errors import HttpError

HTML = "text/html; charset=utf-8"
TEMPLATES = Path(__file__).parent / "templates"
#: Functions that return a value as text or HTML, by the kind of its column.
FORMATTERS: dict[str, Callable[[object], object]] = {
    "text": texts.safe_text,
    "number": texts.number,
    "bytes": texts.size,
    "rate": texts.rate,
    "time": texts.moment,
    "duration": texts.duration,
    "flag": texts.flag,
    "ack": texts.ack_mode,
    "json": texts.compact_text,
    "address": texts.safe_text,
    "byte-limit": texts.byte_limit,
    "exchange": texts.exchange,
    "time-limit": texts.time_limit,
    "state": texts.state,
    "job-state": texts.job_state,
    "share": texts.share,
}
NUMERIC = frozenset(("number", "bytes", "rate", "duration"))  # Kinds that are aligned to the right.

ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters.update(
    safe_text=texts.safe_text,
    escape_hidden=texts.escape_hidden,
    segment=texts.segment,
    multiline_text=texts.multiline_text,
    json_type=texts.json_type,
    pluralize=texts.pluralize,
    **FORMATTERS,
)


def cell(value: object, kind: str) -> object:
    """Return a value as text or HTML by the kind of its column."""
    return FORMATTERS[kind](value)


ENVIRONMENT.globals.update(asset=asset_address, cell=cell)


def page(
    call: HttpCall, template: str, title: str, *, status: int = 200, **context: object
) -> Text:
    """Return a page with the menu of the user of a request, and the notices for this user.

    The template also has the path of the request as ``path``.
    """
    identity = call.identity
    body = ENVIRONMENT.get_template(template).render(
        title=title,
        user=identity.name,
        menu=menu_for(identity.tags),
        menu_path=call.template,
        path=call.request.rel_url.raw_path,
        csrf=call.csrf,
        notices=call.notices(),
        **context,
    )
    return html_answer(body, status)


def bare_page(template: str, title: str, *, status: int = 200, **context: object) -> Text:
    """Return a page without menu, for users who have not logged in."""
    return html_answer(ENVIRONMENT.get_template(template).render(title=title, **context), status)


def error_page(error: HttpError, session: Session | None) -> bytes:
    """Return the page of an error; without a session it links to the login."""
    title = f"{error.status} {HTTPStatus(error.status).phrase.capitalize()}"
    logs_in = session is None
    return bare_page("error.html", title, status=error.status, error=error, logs_in=logs_in).body


def html_answer(body: str, status: int) -> Text:
    """Return an answer of HTML; lone surrogates are escaped."""
    return Text(body.encode(errors="backslashreplace"), HTML, status)


def redirect(address: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer that sends the browser to another page by GET."""
    return Answer(303, headers={"Location": address, **(headers or {})})
