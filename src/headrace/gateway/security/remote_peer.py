# SPDX-License-Identifier: Apache-2.0
"""The other end of a connection, for logins, permissions and the audit log."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

Names: TypeAlias = tuple[tuple[tuple[str, str], ...], ...]  # Relative distinguished names.


class Certificate(TypedDict, total=False):
    """A verified certificate, as ``ssl.SSLSocket.getpeercert`` returns it; without other fields."""

    subject: Names
    issuer: Names
    subjectAltName: tuple[tuple[str, str], ...]
    serialNumber: str
    notBefore: str
    notAfter: str


class LoginRefused(Exception):
    """The login is not accepted. The reason is for the log, not for the client."""

    user = ""  # The user name of the login, if the client sent one.


def is_loopback(host: str) -> bool:
    """Return True for a loopback address; False for any other text."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(slots=True)
class RemotePeer:
    """The other end of a connection."""

    host: str = "127.0.0.1"
    port: int = 0
    loopback: bool = True
    encrypted: bool = False
    certificate: Certificate | None = None  # Verified.

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
