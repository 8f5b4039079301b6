# SPDX-License-Identifier: Apache-2.0
"""Where a request comes from: its address, its cookies, and whether one of our pages sends it."""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp.web_request import BaseRequest

COOKIE = "headrace"
SECURE_COOKIE = "__Host-headrace"  # Browsers take one of this name by TLS only, for all paths.
TOKEN_HEADER = "X-CSRF-Token"  # noqa: S105 - a name.
TOKEN_FIELD = "csrf"  # noqa: S105
SAME_ORIGIN = "same-origin"
OWN_SITES = frozenset((SAME_ORIGIN, "none"))  # Values of Sec-Fetch-Site; none: no page asked.
PORTS = {"http": 80, "https": 443}  # That browsers leave out.
ATTRIBUTES = "Path=/; HttpOnly; SameSite=Strict"
NEXT_MAX = 2000  # Characters of an address that a login leads to.


class OuterRequest(BaseRequest):
    """A request that may have come by a proxy."""

    outer = ""  # The console's scheme and host before the proxy; empty: those of the request.


def outer_of(request: BaseRequest) -> str:
    """Return the scheme and host under which the browser of a request has the console."""
    scheme = "https" if request.secure else "http"
    outer = request.outer if isinstance(request, OuterRequest) else ""
    return outer or f"{scheme}://{request.headers.get('Host', '')}"


def is_encrypted(request: BaseRequest) -> bool:
    """Return True if the browser speaks TLS, with the console or a proxy before it."""
    return outer_of(request).startswith("https:")


def check_url(url: str) -> str:
    """Return an outer address as browsers send it in Origin: scheme and host, nothing more.

    Raises:
        ValueError: it is no address of http or https, or has a path.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(
            f"console_url is {url!r}: give scheme and host, such as https://mq.example"
        )
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"console_url is {url!r}: the console needs a host of its own, no path")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def cookie_of(request: BaseRequest) -> str | None:
    """Return the identifier of the session that a request names."""
    return request.cookies.get(SECURE_COOKIE if is_encrypted(request) else COOKIE)


def set_cookie(request: BaseRequest, mark: str) -> dict[str, str]:
    """Return the header that gives a browser an identifier; an empty one takes it back."""
    secure = "; Secure" if is_encrypted(request) else ""
    name = SECURE_COOKIE if is_encrypted(request) else COOKIE
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
    return origin == outer_of(request)


def is_foreign(request: BaseRequest) -> bool:
    """Return True if a browser says that a page of another site sends the request.

    A browser says so by Sec-Fetch-Site, which it leaves out in clear text to other machines, else
    by Origin, and old ones by Referer. Programs that are no browsers send none of these.
    """
    sites = request.headers.getall("Sec-Fetch-Site", ())
    if sites:
        return not OWN_SITES.issuperset(sites)
    pages = request.headers.getall("Origin", ()) or request.headers.getall("Referer", ())
    if not pages:
        return False
    host = request.headers.get("Host", "")
    own = {place_of(outer_of(request)), place_of(f"https://{host}")}  # A proxy may end TLS.
    if not request.secure:
        own.add(place_of(f"http://{host}"))
    return not all(place is not None and place in own for place in map(place_of, pages))


def place_of(address: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an address; None for none, such as the origin ``null``."""
    try:
        parts = urlsplit(address)
        port = parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not parts.hostname or port is None:
        return None
    return parts.scheme, parts.hostname, port


def local_path(wanted: str) -> str:
    """Return a path of this server to go on with after the login; ``/`` for anything else."""
    fits = wanted.startswith("/") and wanted.isprintable() and len(wanted) <= NEXT_MAX
    if not fits or wanted.startswith(("//", "/\\")) or "\\" in wanted:
        return "/"
    parts = urlsplit(wanted)
    return "/" if parts.scheme or parts.netloc else wanted


def peer_of(request: BaseRequest) -> str:
    """Return the address and port of the client, also when it has gone."""
    peername = request.protocol.peername
    if not isinstance(peername, tuple):
        return "0.0.0.0:0"
    host, port = peername[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
