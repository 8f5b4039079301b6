# SPDX-License-Identifier: Apache-2.0
"""The other end of a connection, as logins, permissions and the audit log know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class LoginRefused(Exception):
    """The login is not accepted. The reason is for the log, not for the client."""


@dataclass(slots=True)
class Peer:
    """The other end of a connection, as far as logins and the audit log care."""

    host: str = "127.0.0.1"
    port: int = 0
    loopback: bool = True
    encrypted: bool = False
    certificate: Mapping[str, Any] | None = None  # Verified; as `ssl.SSLSocket.getpeercert` has it.

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
