# SPDX-License-Identifier: Apache-2.0
"""Protection from cross-site requests: a change must come from one of the console's own pages.

:func:`is_foreign` refuses every change from another site, also logins. A change with a session
needs the session's token as well (:func:`check_change`). :mod:`headrace.console.http.server` calls
both before the handler runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.console.auth.addresses import console_origin
from headrace.console.http_errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.web_request import BaseRequest

    from headrace.console.auth.sessions import Session
    from headrace.console.http.forms import Form

TOKEN_HEADER = "X-CSRF-Token"  # noqa: S105 - a name.
TOKEN_FIELD = "csrf"  # noqa: S105
SAME_ORIGIN = "same-origin"
OWN_SITES = frozenset((SAME_ORIGIN, "none"))  # Of Sec-Fetch-Site; none: typed or a bookmark.
PORTS = {"http": 80, "https": 443}  # Browsers leave these out of an origin.
Origin = tuple[str, str, int]  # Scheme, host and port.


def is_from_console(request: BaseRequest) -> bool:
    """Return True if a browser declares that one of the console's pages sent the request."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == SAME_ORIGIN
    origin = request.headers.get("Origin")
    return origin is not None and origin == console_origin(request)


def is_foreign(request: BaseRequest) -> bool:
    """Return True if a browser declares that a page of another site sent the request.

    Browsers send Sec-Fetch-Site, except in clear text to other machines, where they send Origin;
    old browsers send Referer. Programs other than browsers send none of these.
    """
    sites = request.headers.getall("Sec-Fetch-Site", ())
    if sites:
        return not OWN_SITES.issuperset(sites)
    pages = request.headers.getall("Origin", ()) or request.headers.getall("Referer", ())
    if not pages:
        return False
    host = request.headers.get("Host", "")
    # A proxy may end TLS: the browser then uses https, the request does not.
    own_origins = {parse_origin(console_origin(request)), parse_origin(f"https://{host}")}
    if not request.secure:
        own_origins.add(parse_origin(f"http://{host}"))
    return not all(
        origin is not None and origin in own_origins for origin in map(parse_origin, pages)
    )


def parse_origin(address: str) -> Origin | None:
    """Return scheme, host and port of an address; None if it lacks one, such as ``null``."""
    try:
        parts = urlsplit(address)
        port = parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not parts.hostname or port is None:
        return None
    return parts.scheme, parts.hostname, port


async def check_change(
    request: BaseRequest, session: Session, form: Callable[[], Awaitable[Form]] | None
) -> None:
    """Refuse a change with a session unless a page of the console sent it, with the token.

    ``form`` reads the fields of a page's form, which may have the token; None for the API.

    Raises:
        HttpError: the request is not from a page of the console, or its token is missing or wrong.
    """
    if not is_from_console(request):
        raise HttpError(403, "only the console's own pages may change anything with a session")
    token = request.headers.get(TOKEN_HEADER)
    if token is None and form is not None:
        token = (await form()).get(TOKEN_FIELD)
    if not session.proves(token or ""):
        field = "" if form is None else f" or in the form field {TOKEN_FIELD}"
        raise HttpError(403, f"missing or wrong CSRF token: send it in {TOKEN_HEADER}{field}")
