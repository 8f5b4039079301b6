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

_REFUSED = f"[Errno {errno.ECONNREFUSED}]"
_UNTRUSTED = (18, 19, 20, 21)  # X509_V_ERR: no known authority signed it.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "UNEXPECTED_EOF")


def of_socket(error: OSError, settings: Settings) -> str:
    """Return a hint at the cause of a failed connect: host, port, TLS."""
    place = _place(settings)
    match error:
        case socket.gaierror():
            return f"the host name '{settings.host}' is not known"
        case ssl.SSLCertVerificationError():
            text = certificate_faults.fault_text(error)
            if error.verify_code in _UNTRUSTED:
                text += "; ?cacertfile= in the URL names the authority that signed it"
            return f"the broker's certificate is refused: {text}"
        case ssl.SSLError() if any(name in (error.reason or str(error)) for name in _NO_TLS):
            return (
                f"{place} does not speak TLS; the URL of a port without TLS begins with amqp://, "
                "and the usual port of amqps:// is 5671"
            )
        case ConnectionResetError() if settings.tls:
            return f"{place} hung up in the TLS handshake; is it a port with TLS?"
    # For a name with several addresses asyncio joins the texts of all errors.
    if isinstance(error, ConnectionRefusedError) or _REFUSED in str(error):
        return f"nothing listens on {place}; is `headrace serve` running there?"
    return str(error)


def before_greeting(settings: Settings) -> str:
    """Return a hint when the connection ended before the broker's first bytes."""
    if settings.tls:
        return " (before it sent anything: is it an AMQP broker?)"
    return " (before it sent anything: does the port need TLS, as with amqps://?)"


def of_close(reason: Closed, settings: Settings) -> str:
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


def _place(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}:{settings.port}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
