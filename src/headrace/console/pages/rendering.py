# SPDX-License-Identifier: Apache-2.0
"""HTML from the templates, which escape every value."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headrace import __version__
from headrace.console.http.answers import Text
from headrace.console.pages import texts
from headrace.console.pages.assets import address_of
from headrace.console.pages.navigation import menu_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.console.auth.sessions import Session
    from headrace.console.http.call import HttpCall
    from headrace.console.http_errors import HttpError

HTML = "text/html; charset=utf-8"
TEMPLATES = Path(__file__).parent / "templates"
CELLS: dict[str, Callable[[object], object]] = {
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
    "bound": texts.bound,
    "exchange": texts.exchange,
    "span": texts.span,
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
    plain=texts.plain,
    segment=texts.segment,
    multiline_text=texts.multiline_text,
    type_of=texts.type_of,
    count_of=texts.count_of,
    **CELLS,
)
ENVIRONMENT.globals.update(asset=address_of, version=__version__, numeric=NUMERIC)


def cell(value: object, kind: str) -> object:
    """Return a value formatted by its kind."""
    return CELLS[kind](value)


ENVIRONMENT.globals["cell"] = cell


def page(
    call: HttpCall, template: str, title: str, *, status: int = 200, **context: object
) -> Text:
    """Return a page of the console for the user of a request."""
    identity = call.identity
    body = ENVIRONMENT.get_template(template).render(
        title=title,
        user=identity.name,
        tags=identity.tags,
        menu=menu_for(identity.tags),
        here=call.route.path,
        csrf=call.csrf,
        notices=call.notices(),
        **context,
    )
    return html(body, status)


def bare_page(template: str, title: str, *, status: int = 200, **context: object) -> Text:
    """Return a page without menu, for users who have not logged in."""
    return html(ENVIRONMENT.get_template(template).render(title=title, **context), status)


def error_page(error: HttpError, session: Session | None) -> bytes:
    """Return the page of an error; without a session it links to the login."""
    title = f"{error.status} {HTTPStatus(error.status).phrase.capitalize()}"
    logs_in = session is None
    return bare_page("error.html", title, status=error.status, error=error, logs_in=logs_in).body


def html(body: str, status: int) -> Text:
    """Return an answer of HTML; lone surrogates are escaped."""
    return Text(body.encode(errors="backslashreplace"), HTML, status)
