# SPDX-License-Identifier: Apache-2.0
"""Cookies, and whether a request that changes something comes from the console's own pages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

COOKIE = "headrace"
SECURE_COOKIE = "__Host-headrace"  # Browsers take one of this name by TLS only, for all paths.
TOKEN_HEADER = "X-CSRF-Token"  # noqa: S105 - a name.
TOKEN_FIELD = "csrf"  # noqa: S105
SAME_ORIGIN = "same-origin"
ATTRIBUTES = "Path=/; HttpOnly; SameSite=Strict"
NEXT_MAX = 2000  # Characters of an address that a login leads to.


def cookie_of(request: BaseRequest) -> str | None:
    """Return the identifier of the session that a request names."""
    return request.cookies.get(SECURE_COOKIE if request.secure else COOKIE)


def set_cookie(request: BaseRequest, mark: str) -> dict[str, str]:
    """Return the header that gives a browser an identifier; an empty one takes it back."""
    secure = "; Secure" if request.secure else ""
    name = SECURE_COOKIE if request.secure else COOKIE
    ends = "" if mark else "; Max-Age=0"
    return {"Set-Cookie": f"{name}={mark}; {ATTRIBUTES}{secure}{ends}"}


def is_own(request: BaseRequest) -> bool:
    """Return True if a browser says that one of our own pages sends the request."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == SAME_ORIGIN
    origin = request.headers.get("Origin")
    if origin is None:
        return False
    scheme = "https" if request.secure else "http"
    return origin == f"{scheme}://{request.headers.get('Host', '')}"


def local_path(wanted: str) -> str:
    """Return a path of this server to go on with after the login; ``/`` for anything else."""
    fits = wanted.startswith("/") and wanted.isprintable() and len(wanted) <= NEXT_MAX
    if not fits or wanted.startswith(("//", "/\\")) or "\\" in wanted:
        return "/"
    parts = urlsplit(wanted)
    return "/" if parts.scheme or parts.netloc else wanted
