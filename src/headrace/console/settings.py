# SPDX-License-Identifier: Apache-2.0
"""The settings of the console's process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HTTP_PORT = 15672  # The port of RabbitMQ's management plug-in.
METRICS_PORT = 15692  # The port of RabbitMQ's Prometheus plug-in.
RABBITMQ_VERSION = "4.1.0"  # The version of the API, by which clients choose their requests.
HISTORY = Path("console") / "history.sqlite"
NO_HISTORY = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The console as a public client of an OAuth 2 authorization server, without a secret."""

    client_id: str
    authorization_endpoint: str  # Where browsers log in.
    token_endpoint: str
    scopes: str = "openid"
    issuer: str = ""  # Required issuer of answers that name one; empty: any.
    authorities: Path | None = None  # For the token endpoint's certificate; None: the system's.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of the console's process."""

    socket: Path  # The broker's management socket.
    host: str = "127.0.0.1"  # Addresses to listen on, separated by commas.
    port: int = HTTP_PORT
    metrics_port: int | None = METRICS_PORT  # None: no metrics.
    http_fds: tuple[int, ...] = ()  # Listening sockets of the port; empty: the console opens them.
    metrics_fds: tuple[int, ...] = ()  # Listening sockets of the metrics' port.
    names: tuple[str, ...] = ()  # Further host names that requests may have.
    url: str = ""  # The address of the console behind a proxy; empty: that of the requests.
    tls_cert: Path | None = None
    tls_key: Path | None = None
    plain_ok: bool = False  # Allow HTTP without TLS on addresses that are not loopback.
    rabbitmq_version: str = RABBITMQ_VERSION
    pipelines: tuple[Path, ...] = ()  # Directories of pipelines, and files of query listeners.
    history: str = ""  # Path of the history's file; empty: beside the socket; "none": no file.
    oauth: OAuthClient | None = None  # None: users log in with passwords only.

    @property
    def hosts(self) -> list[str]:
        """The addresses to listen on."""
        return [host.strip() for host in self.host.split(",") if host.strip()]

    @property
    def history_path(self) -> Path | None:
        """The file of the history; None for none."""
        if self.history == NO_HISTORY:
            return None
        return Path(self.history) if self.history else self.socket.parent / HISTORY
