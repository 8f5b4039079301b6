# SPDX-License-Identifier: Apache-2.0
"""The security headers of every answer: content policy, framing, caching, transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multidict import CIMultiDict

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'"
)
ALWAYS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # For browsers that do not know frame-ancestors.
    "Referrer-Policy": "same-origin",  # Without a referrer, browsers send the origin ``null``.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Server": "headrace",
}
UNLESS_SET = {"Cache-Control": "no-store", "Vary": "accept, accept-encoding, origin"}
STRICT_TRANSPORT = "max-age=31536000"


def secure(headers: CIMultiDict[str], *, encrypted: bool) -> None:
    """Add the headers to an answer; they replace the handler's."""
    policy = headers.get("Content-Security-Policy", "")
    headers.update(ALWAYS)
    if policy.startswith("sandbox"):  # A download, which keeps the sandbox.
        headers["Content-Security-Policy"] = f"{policy}; {POLICY}"
    for name, value in UNLESS_SET.items():
        headers.setdefault(name, value)
    if encrypted:
        headers["Strict-Transport-Security"] = STRICT_TRANSPORT
