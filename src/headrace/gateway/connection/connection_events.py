# SPDX-License-Identifier: Apache-2.0
"""Events of connections and channels, for consumers of the broker's events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.sasl.external import distinguished_name

if TYPE_CHECKING:
    from headrace.gateway.connection.client import Client
    from headrace.model.events import Events


TICKS_PER_S = 2  # The ticks of a transport in one second.

MAPPED = "::ffff:"  # The prefix of an IPv4-mapped IPv6 address.


class ConnectionEvents:
    """Emits an event for each opening and closing of a connection or channel.

    The event of a closing is emitted once, and only if the opening had an event.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.names: dict[int, str] = {}  # The names of open connections, by number.
        self._channels: dict[int, set[int]] = {}  # The open channels of these connections.

    def report_connection_opened(
        self, connection: Client, version: str, frame_max: int, channel_max: int
    ) -> None:
        """Report that a client has opened its virtual host.

        ``version`` is such as ``0-9-1``; ``frame_max`` and ``channel_max`` are the broker's offers.
        """
        number = connection.number
        peer, own = addresses(connection.transport)
        self.names[number] = f"{peer[0]}:{peer[1]} -> {own[0]}:{own[1]}"
        self._channels[number] = set()
        self.events.churn.connections_opened += 1
        if self.events.has_listeners:
            user = connection.user.name
            self.events.emit(
                "connection.created",
                pid=f"connection/{number}",
                name=self.names[number],
                type="network",
                peer_host=peer[0],
                peer_port=peer[1],
                host=own[0],
                port=own[1],
                protocol=version,
                auth_mechanism=connection.mechanism,
                user=user,
                vhost=connection.vhost.name,
                client_properties=connection.client_properties,
                user_provided_name=connection.client_properties.get("connection_name"),
                connected_at=getattr(connection.transport, "since_ms", None),
                timeout=getattr(connection.transport, "heartbeat_ticks", 0) // TICKS_PER_S,
                **tls_facts(connection.transport),
                frame_max=frame_max,
                channel_max=channel_max,
                user_who_performed_action=user,
            )

    def report_connection_closed(self, connection: Client) -> None:
        """Report the end of a connection and of all its channels."""
        number = connection.number
        for channel in self._channels.pop(number, ()):
            self._emit_channel_closed(connection, channel)
        name = self.names.pop(number, None)
        if name is None:
            return
        self.events.churn.connections_closed += 1
        if self.events.has_listeners:
            self.events.emit(
                "connection.closed",
                pid=f"connection/{number}",
                name=name,
                vhost=connection.vhost.name,
                user=connection.user.name,
                user_who_performed_action=connection.user.name,
            )

    def report_channel_opened(self, connection: Client, channel: int) -> None:
        """Report that a channel is open, or that a session is attached to it."""
        channels = self._channels.get(connection.number)
        if channels is None or channel in channels:
            return
        channels.add(channel)
        self.events.churn.channels_opened += 1
        if self.events.has_listeners:
            name = self.names[connection.number]
            self.events.emit(
                "channel.created",
                pid=f"connection/{connection.number}/{channel}",
                name=f"{name} ({channel})",
                connection=f"connection/{connection.number}",
                number=channel,
                user=connection.user.name,
                vhost=connection.vhost.name,
                user_who_performed_action=connection.user.name,
            )

    def report_channel_closed(self, connection: Client, channel: int) -> None:
        """Report that a channel is closed, or that its session is detached."""
        channels = self._channels.get(connection.number)
        if channels is not None and channel in channels:
            channels.discard(channel)
            self._emit_channel_closed(connection, channel)

    def _emit_channel_closed(self, connection: Client, channel: int) -> None:
        self.events.churn.channels_closed += 1
        if self.events.has_listeners:
            self.events.emit(
                "channel.closed",
                pid=f"connection/{connection.number}/{channel}",
                connection=f"connection/{connection.number}",
                number=channel,
                vhost=connection.vhost.name,
                user_who_performed_action=connection.user.name,
            )


def tls_facts(transport: Any) -> dict[str, object]:
    """Return the TLS version, cipher and client certificate of a connection, as event fields."""
    stream = getattr(transport, "stream", None)
    encrypted = None if stream is None else stream.get_extra_info("ssl_object")
    if encrypted is None:
        return {"ssl": False}
    cipher = encrypted.cipher()
    facts = {
        "ssl": True,
        "ssl_protocol": encrypted.version(),
        "ssl_cipher": cipher[0] if cipher else None,
    }
    certificate = encrypted.getpeercert()
    if certificate:
        validity = f"{certificate['notBefore']} - {certificate['notAfter']}"
        facts["peer_cert_subject"] = distinguished_name(certificate["subject"])
        facts["peer_cert_issuer"] = distinguished_name(certificate["issuer"])
        facts["peer_cert_validity"] = validity
    return facts


def addresses(transport: Any) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the remote and the local address and port of a connection's transport."""
    if transport is None:
        return ("", 0), ("", 0)
    try:
        peer, own = transport.sock.getpeername(), transport.sock.getsockname()
    except OSError:  # The socket is closed already.
        return ("", 0), ("", 0)
    return (plain_address(peer[0]), int(peer[1])), (plain_address(own[0]), int(own[1]))


def plain_address(host: str) -> str:
    """Return an address without the prefix of an IPv4 address on an IPv6 socket."""
    return host.removeprefix(MAPPED) if host.startswith(MAPPED) and "." in host else host
