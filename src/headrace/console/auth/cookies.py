# SPDX-License-Identifier: Apache-2.0
"""The cookie that holds the identifier of a session (:mod:`.sessions`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.auth.addresses import is_encrypted

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

COOKIE = "headrace"
SECURE_COOKIE = "__Host-headrace"  # Browsers accept this name over TLS only, and for all paths.
ATTRIBUTES = "Path=/; HttpOnly; SameSite=Strict"


def cookie_name(request: BaseRequest) -> str:
    """Return the name of the cookie."""
    return SECURE_COOKIE if is_encrypted(request) else COOKIE


def read_cookie(request: BaseRequest) -> str | None:
    """Return the identifier of the session in a request; None without one."""
    return request.cookies.get(cookie_name(request))


def set_cookie(request: BaseRequest, session_id: str) -> dict[str, str]:
    """Return the header that sets the cookie; an empty identifier deletes it."""
    secure = "; Secure" if is_encrypted(request) else ""
    expires = "" if session_id else "; Max-Age=0"
    value = f"{cookie_name(request)}={session_id}; {ATTRIBUTES}{secure}{expires}"
    return {"Set-Cookie": value}
