# SPDX-License-Identifier: Apache-2.0
"""Addresses of a request: that of its client, and that of the console as the browser sees it.

A proxy may end TLS before the console: the browser then sees another scheme and host.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp.web_request import BaseRequest

NEXT_MAX = 2000  # Characters of a path that a login leads to.


class ProxiedRequest(BaseRequest):
    """A request that may have come through a proxy."""

    outer_origin = ""  # Scheme and host of the proxy; empty without one.


def console_origin(request: BaseRequest) -> str:
    """Return scheme and host of the console as the browser of a request sees them."""
    scheme = "https" if request.secure else "http"
    outer_origin = request.outer_origin if isinstance(request, ProxiedRequest) else ""
    return outer_origin or f"{scheme}://{request.headers.get('Host', '')}"


def is_encrypted(request: BaseRequest) -> bool:
    """Return True if the browser uses TLS, with the console or with a proxy before it."""
    return console_origin(request).startswith("https:")


def check_url(url: str) -> str:
    """Return the setting ``console_url`` as browsers send it in Origin: scheme and host.

    Raises:
        ValueError: the setting is not a URL of http or https, or has a path.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(
            f"console_url is {url!r}: give scheme and host, such as https://mq.example"
        )
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"console_url is {url!r}: the console needs a host of its own, no path")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def local_path(path: str) -> str:
    """Return the path of this server that a login leads to; ``/`` for any other address."""
    fits = path.startswith("/") and path.isprintable() and len(path) <= NEXT_MAX
    if not fits or path.startswith(("//", "/\\")) or "\\" in path:
        return "/"
    parts = urlsplit(path)
    return "/" if parts.scheme or parts.netloc else path


def client_address(request: BaseRequest) -> str:
    """Return address and port of the client, even after it has disconnected."""
    peername = request.protocol.peername
    if not isinstance(peername, tuple):
        return "0.0.0.0:0"
    host, port = peername[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
