# SPDX-License-Identifier: Apache-2.0
"""Limits of virtual hosts and users, applied to connections.

Limits of connections, channels and queues refuse new ones; existing ones stay, even above a limit
that is set later. The limit of messages per second makes publishers wait: the transport reads
their connections more slowly. The limit of the message size is set on every connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.model.errors import NotAllowed, PreconditionFailed
from headrace.model.policy.rate_limit import RateLimit
from headrace.model.policy.rules import NO_LIMITS, Limits

if TYPE_CHECKING:
    from headrace.gateway.security.client_connection import ClientConnection
    from headrace.model.vhost.virtual_host import VirtualHost

VHOST, USER = "vhost", "user"


class Quotas:
    """Counts connections of virtual hosts and users, and checks limits."""

    def __init__(
        self, body_max: int, limits_of_user: Callable[[str], Limits] | None = None
    ) -> None:
        """``body_max`` is the largest body of all users, in bytes."""
        self.body_max = body_max
        self._limits_of_user = limits_of_user
        self._members: dict[tuple[str, str], dict[ClientConnection, None]] = {}  # Connections.
        self._meters: dict[tuple[str, str], RateLimit] = {}

    def admit(self, connection: ClientConnection, vhost: VirtualHost) -> None:
        """Admit a connection, after its login, to a virtual host.

        Raises:
            NotAllowed: the limit of the user or of the virtual host is reached.
        """
        assert connection.user is not None
        user = connection.user.name
        maximum = vhost.rules.limits.connections
        if 0 <= maximum <= len(self._members.get((VHOST, vhost.name), ())):
            raise NotAllowed(
                f"access to vhost '{vhost.name}' refused for user '{user}': connection limit "
                f"({maximum}) is reached"
            )
        maximum = self.limits_of_user(user).connections
        if 0 <= maximum <= len(self._members.get((USER, user), ())):
            raise NotAllowed(
                f"connection refused for user '{user}': user connection limit ({maximum}) is "
                "reached"
            )
        for key in ((VHOST, vhost.name), (USER, user)):
            self._members.setdefault(key, {})[connection] = None
        self._measure(connection, vhost, user)

    def remove(self, connection: ClientConnection) -> None:
        """Remove a closed connection."""
        if connection.vhost is None or connection.user is None:
            return
        for key in ((VHOST, connection.vhost.name), (USER, connection.user.name)):
            members = self._members.get(key)
            if members is not None:
                members.pop(connection, None)
                if not members:
                    del self._members[key]
                    self._meters.pop(key, None)

    def apply_changes(self) -> None:
        """Apply changed limits to open connections."""
        for (key_type, user), members in self._members.items():
            if key_type == USER:
                for connection in members:
                    if connection.vhost is not None:
                        self._measure(connection, connection.vhost, user)

    def limits_of_user(self, user: str) -> Limits:
        """Return the limits of a user."""
        return NO_LIMITS if self._limits_of_user is None else self._limits_of_user(user)

    def check_channel(self, connection: ClientConnection, more: int) -> None:
        """Refuse channels, or attached sessions, beyond a limit; ``more`` are not counted yet.

        Raises:
            NotAllowed: the limit is reached.
        """
        vhost = connection.vhost
        assert vhost is not None
        assert connection.user is not None
        user = connection.user.name
        maximum = self.limits_of_user(user).channels
        if 0 <= maximum < more + _channels(self._members.get((USER, user), ())):
            raise NotAllowed(
                f"number of channels opened for user '{user}' has reached the maximum allowed "
                f"user limit of ({maximum})"
            )
        maximum = vhost.rules.limits.channels
        if 0 <= maximum < more + _channels(self._members.get((VHOST, vhost.name), ())):
            raise NotAllowed(
                f"number of channels opened in vhost '{vhost.name}' has reached the maximum "
                f"allowed limit of ({maximum})"
            )

    def check_queue(self, vhosts: Iterable[VirtualHost], user: str, name: str) -> None:
        """Refuse a new queue beyond the limit of its user.

        Raises:
            PreconditionFailed: the limit is reached.
        """
        maximum = self.limits_of_user(user).queues
        if 0 <= maximum <= sum(vhost.declared_queue_counts.get(user, 0) for vhost in vhosts):
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit of user '{user}' ({maximum}) is "
                "reached"
            )

    def _measure(self, connection: ClientConnection, vhost: VirtualHost, user: str) -> None:
        """Set the body size and message rate of a connection."""
        limits_by_key = (
            ((VHOST, vhost.name), vhost.rules.limits),
            ((USER, user), self.limits_of_user(user)),
        )
        sizes = [limits.message_size for _, limits in limits_by_key if limits.message_size >= 0]
        connection.body_max = min([self.body_max, *sizes])
        meters = []
        for key, limits in limits_by_key:
            if limits.message_rate < 1:
                self._meters.pop(key, None)
                continue
            meter = self._meters.get(key)
            if meter is None or meter.rate != limits.message_rate:
                meter = self._meters[key] = RateLimit(limits.message_rate)
            meters.append(meter)
        if connection.transport is not None:
            connection.transport.measure(tuple(meters))


def _channels(connections: Iterable[ClientConnection]) -> int:
    return sum(connection.channel_count() for connection in connections)
