# SPDX-License-Identifier: Apache-2.0
"""Port of a client's connection, of any version, for logins, limits and requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.spec.tables import Version

if TYPE_CHECKING:
    from headrace.gateway.security.user import User
    from headrace.model.policy.rate_limit import RateLimit
    from headrace.model.vhost.virtual_host import VirtualHost


class ClientTransport(Protocol):
    """The socket of a connection."""

    def measure(self, meters: tuple[RateLimit, ...]) -> None:
        """Read no more messages than these rates allow."""


class Identified(Protocol):
    """A connection with its user and virtual host, for logs."""

    @property
    def number(self) -> int:
        """Its number, unique in this broker."""

    @property
    def user(self) -> User | None:
        """The user; None before the login."""

    @property
    def vhost(self) -> VirtualHost | None:
        """The virtual host; None before connection.open."""


class ClientConnection(Identified, Protocol):
    """A connection; the last five methods are the results of a login."""

    user: User | None
    vhost: VirtualHost | None
    ended: bool
    body_max: int  # Bytes of a body.
    transport: ClientTransport | None

    def channel_count(self) -> int:
        """Return the number of channels, or of attached sessions."""

    def force_close(self, reason: str) -> None:
        """Close the connection with code 320."""

    def accept_login(self, user: User) -> None:
        """Accept the login."""

    def refuse_login(self) -> None:
        """Refuse the login."""

    def challenge(self, data: bytes) -> None:
        """Send a challenge of the SASL mechanism."""

    def accept_secret(self, user: User) -> None:
        """Accept a renewed secret."""

    def refuse_secret(self) -> None:
        """Refuse a renewed secret."""


def client_version(connection: object) -> str:
    """Return the version of AMQP that a connection speaks, as "0-9-1"."""
    version = getattr(connection, "version", None)
    return (version if isinstance(version, Version) else Version.V0_10).label
