# SPDX-License-Identifier: Apache-2.0
"""Listening sockets: they accept connections within limits, and give each a transport."""

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from headrace.gateway.connection.connection_events import plain_address
from headrace.gateway.security.audit import SILENT, Audit
from headrace.gateway.security.remote_peer import RemotePeer
from headrace.gateway.v0_x.connection.connection import GatewayConnection
from headrace.gateway.v0_x.connection.context import V0xContext
from headrace.protocol.endpoint import Endpoint
from headrace.server.net.client_socket import with_peer
from headrace.server.net.connection_gate import ConnectionGate
from headrace.server.net.proxy_header import AwaitedHeaders
from headrace.server.net.tls_transport import TlsTransport
from headrace.server.net.transport import Reactor, Transport

log = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_S = 0.1  # The pause of accepting when the process has no free file descriptor.
RELAY_PAUSE_S = 0.02  # The interval of checks for a ready relay.
TICK_S = 0.5  # The interval of the transports' ticks, the unit of their timeouts.
# The kernel detects a lost peer of a connection without heartbeats. The values are the seconds
# until the first probe, the seconds between two probes, and the number of unanswered probes.
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
)


class SocketRelays(Protocol):
    """The relay processes as a listener uses them; they own the clients' sockets."""

    def is_waited_for(self) -> bool:
        """Return True if accepting must wait for a relay."""

    def hand_over(
        self,
        sock: socket.socket,
        address: tuple[str, int],
        connection: Endpoint,
        peer: RemotePeer,
        on_failure: Callable[[Transport, str], None],
    ) -> Transport | None:
        """Give a client's socket to a relay process.

        Return the transport of its connection; None if the broker keeps the socket.
        """


class Listener:
    """One listening socket."""

    def __init__(
        self,
        *,
        context: V0xContext,
        reactor: Reactor,
        transports: set[Transport],
        connections_max: int,
        handshake_s: float,
        gate: ConnectionGate,
        audit: Audit = SILENT,
        tls: ssl.SSLContext | None = None,
        introduction: dict[str, object] | None = None,
        relays: SocketRelays | None = None,
        is_proxy: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """``is_proxy`` returns True for an address whose connections begin with a PROXY header."""
        self.context = context
        self.reactor = reactor
        self.transports = transports  # The transports of all listeners, up to connections_max.
        self.connections_max = connections_max
        self.handshake_s = handshake_s
        self.gate = gate  # The limits that all listeners share.
        self.audit = audit
        self.tls = tls  # A reload of the certificates replaces it.
        self.introduction = introduction  # The server properties of the port, if they differ.
        self.relays = relays
        self.is_proxy = is_proxy
        self.headers = AwaitedHeaders(reactor.loop)
        self.socket: socket.socket | None = None
        self.address = ("", 0)  # The address of the last ``open``.
        self.dual_stack = False  # True: the port accepts IPv4 and IPv6.
        self.handshakes: set[asyncio.Task[None]] = set()

    def open(self, host: str, port: int, dual_stack: bool = False) -> tuple[str, int]:
        """Listen on an address; return it, with the chosen port in place of port 0.

        With ``dual_stack``, an IPv6 address accepts IPv4 connections, too.

        Raises:
            OSError: the address is in use, or is not an address of this machine.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.create_server(
            (host, port),
            family=family,
            backlog=BACKLOG,
            reuse_port=False,
            dualstack_ipv6=dual_stack,
        )
        self.dual_stack = dual_stack
        self.socket.setblocking(False)
        for level, option, value in KEEPALIVE:  # Accepted sockets inherit them.
            self.socket.setsockopt(level, option, value)
        self.reactor.loop.add_reader(self.socket.fileno(), self.on_acceptable)
        address = self.socket.getsockname()
        self.address = (address[0], address[1])
        return self.address

    def reopen(self) -> None:
        """Listen again on the same port.

        Raises:
            OSError: another process listens on the port.
        """
        if self.socket is None:
            self.open(*self.address, self.dual_stack)

    def close(self) -> None:
        """Close the port, and drop connections that wait for a PROXY header or a TLS handshake."""
        if self.socket is not None:
            self.reactor.loop.remove_reader(self.socket.fileno())
            self.socket.close()
            self.socket = None
        self.headers.close()
        for task in self.handshakes:
            task.cancel()

    def leave(self) -> None:
        """Accept the pending connections, then close the port."""
        if self.socket is not None:
            self.on_acceptable()
            self.reactor.loop.remove_reader(self.socket.fileno())
            self.socket.close()
            self.socket = None

    def on_acceptable(self) -> None:
        """Accept the pending connections."""
        if self.relays is not None and self.relays.is_waited_for():
            self.pause(RELAY_PAUSE_S)
            return
        for _ in range(ACCEPTS_PER_TURN):
            if self.socket is None:
                return
            try:
                sock, address = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                log.error("cannot accept a connection: %s", error.strerror)
                self.pause(ACCEPT_PAUSE_S)
                return
            host, port = plain_address(str(address[0])), int(address[1])
            if self.is_proxy(host):
                self.await_header(sock, host, port)
            else:
                self.accept(sock, host, port)

    def pause(self, pause_s: float) -> None:
        """Pause accepting for ``pause_s`` seconds; new connections wait in the kernel's backlog."""
        if self.socket is not None:
            self.reactor.loop.remove_reader(self.socket.fileno())
            self.reactor.loop.call_later(pause_s, self.listen_again)

    def listen_again(self) -> None:
        """Resume accepting after a pause."""
        if self.socket is not None:
            self.reactor.loop.add_reader(self.socket.fileno(), self.on_acceptable)

    def await_header(self, sock: socket.socket, host: str, port: int) -> None:
        """Accept a proxy's connection once its PROXY header is read."""

        def accept_client(client: tuple[str, int] | None) -> None:
            if client is None:
                self.accept(sock, host, port)
            else:
                self.accept(sock, *client, proxied=True)
            self.reactor.turn()

        def refuse_client(reason: str) -> None:
            self.refuse(host, port, reason)

        self.headers.wait(sock, self.handshake_s, accept_client, refuse_client)

    def accept(self, sock: socket.socket, host: str, port: int, proxied: bool = False) -> None:
        """Serve a new connection, or close its socket if a limit is reached.

        ``host`` and ``port`` are the client's. With ``proxied`` they differ from the peer of the
        socket.
        """
        if len(self.transports) >= self.connections_max:
            closed = [transport for transport in self.transports if transport.closed]
            self.transports.difference_update(closed)
        if len(self.transports) >= self.connections_max:
            self.refuse(host, port, "connections_max is reached")
            sock.close()
            return
        refusal = self.gate.refusal(host)
        if refusal:
            self.refuse(host, port, refusal)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = self.context
        number = context.next_number
        context.next_number = number + 1
        peer = RemotePeer(host, port, is_loopback(host), encrypted=self.tls is not None)
        connection = GatewayConnection(context, number, peer.loopback)
        context.connections[number] = connection
        context.peers[number] = peer
        self.gate.enter(number, host)
        if self.introduction is not None:
            context.port_properties[number] = self.introduction
        relayed = self.relays and self.relays.hand_over(
            sock, (host, port), connection, peer, self.fail_handshake
        )
        if relayed:
            self.keep(relayed)
            return
        client_sock = with_peer(sock, (host, port)) if proxied else sock
        if self.tls is None:
            self.keep(Transport(self.reactor, client_sock, connection))
            return
        transport = TlsTransport(self.reactor, client_sock, connection, peer)
        self.keep(transport)
        task = self.reactor.loop.create_task(self.encrypt(sock, transport))
        self.handshakes.add(task)
        task.add_done_callback(self.handshakes.discard)

    def refuse(self, host: str, port: int, reason: str) -> None:
        """Log and audit the refusal of a connection."""
        log.warning("connection from %s refused: %s", host, reason)
        if self.audit.active:
            peer = RemotePeer(host, port)
            self.audit.record("connection.refused", peer=peer, allowed=False, reason=reason)

    def keep(self, transport: Transport) -> None:
        """Register a transport, and limit the time of its handshake."""
        transport.handshake_ticks = max(1, round(self.handshake_s / TICK_S)) + 1
        self.transports.add(transport)

    async def encrypt(self, sock: socket.socket, transport: TlsTransport) -> None:
        """Perform the TLS handshake; drop the connection if it fails.

        A connection whose handshake began before the certificates were reloaded is dropped, too, as
        its certificate may have been revoked.
        """
        tls = self.tls
        try:
            await self.reactor.loop.connect_accepted_socket(
                lambda: transport, sock, ssl=tls, ssl_handshake_timeout=self.handshake_s
            )
            if tls is not self.tls:
                transport.abort()
        except (OSError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                transport.abort()
                return
            reason = "it took too long" if isinstance(error, TimeoutError) else str(error)
            self.fail_handshake(transport, reason)

    def fail_handshake(self, transport: Transport, reason: str) -> None:
        """Drop a connection whose TLS handshake failed."""
        number, host = transport.connection.number, transport.peer.host
        log.info("connection %d: TLS handshake with %s failed: %s", number, host, reason)
        if self.audit.active:
            self.audit.record(
                "connection.refused",
                peer=transport.peer,
                allowed=False,
                reason=f"TLS handshake failed: {reason}",
            )
        transport.abort()


def is_loopback(host: str) -> bool:
    """Return True for a loopback address, also for one of IPv4 mapped into IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
