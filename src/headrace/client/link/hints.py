# SPDX-License-Identifier: Apache-2.0
"""Hints at the probable cause of a failed connection."""

from __future__ import annotations

import errno
import socket
import ssl
from ipaddress import ip_address
from typing import TYPE_CHECKING

from headrace import certificate_faults

if TYPE_CHECKING:
    from headrace.client.errors import Closed
    from headrace.client.url import Settings

_REFUSED_TEXT = f"[Errno {errno.ECONNREFUSED}]"
_UNTRUSTED_CODES = (18, 19, 20, 21)  # X509_V_ERR: no known authority signed it.
_NO_TLS_REASONS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "UNEXPECTED_EOF",
)


def connect_hint(error: OSError, settings: Settings) -> str:
    """Return a hint at the cause of a failed connect: host, port, TLS."""
    address = _address(settings)
    match error:
        case socket.gaierror():
            return f"the host name '{settings.host}' is not known"
        case ssl.SSLCertVerificationError():
            text = certificate_faults.fault_text(error)
            if error.verify_code in _UNTRUSTED_CODES:
                text += "; ?cacertfile= in the URL names the authority that signed it"
            return f"the broker's certificate is refused: {text}"
        case ssl.SSLError() if any(
            name in (error.reason or str(error)) for name in _NO_TLS_REASONS
        ):
            return (
                f"{address} does not speak TLS; the URL of a port without TLS begins with amqp://, "
                "and the usual port of amqps:// is 5671"
            )
        case ConnectionResetError() if settings.tls:
            return f"{address} hung up in the TLS handshake; is it a port with TLS?"
    # For a name with several addresses asyncio joins the texts of all errors.
    if isinstance(error, ConnectionRefusedError) or _REFUSED_TEXT in str(error):
        return f"nothing listens on {address}; is `headrace serve` running there?"
    return str(error)


def greeting_hint(settings: Settings) -> str:
    """Return a hint when the connection ended before the broker's first bytes."""
    if settings.tls:
        return " (before it sent anything: is it an AMQP broker?)"
    return " (before it sent anything: does the port need TLS, as with amqps://?)"


def close_hint(reason: Closed, settings: Settings) -> str:
    """Return a hint when the broker closes a connection that is being opened."""
    text = reason.text.lower()
    if "vhost" in text or "virtual host" in text:
        if reason.code == 403:
            return f" (`headrace permission set` lets user '{settings.username}' in)"
        return " (the path of the URL names the virtual host; `headrace vhost add` makes one)"
    if "login was refused" in text:
        hint = f"is the name or the password of user '{settings.username}' right?"
        if settings.username == "guest" and not _is_loopback(settings.host):
            hint = (
                f"guest may log in over loopback only unless guest_loopback_only is false; {hint}"
            )
        return f" ({hint})"
    return ""


def _address(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}:{settings.port}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
