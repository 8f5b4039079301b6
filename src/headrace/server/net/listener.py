# SPDX-License-Identifier: Apache-2.0
"""Listening sockets: accept, limit, hand over to a transport."""

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl

from headrace.gateway.connection.connection_events import plain_address
from headrace.gateway.security.audit import SILENT, Audit
from headrace.gateway.security.remote_peer import RemotePeer
from headrace.gateway.v0_x.connection.connection import GatewayConnection
from headrace.gateway.v0_x.connection.context import V0xContext
from headrace.server.net.connection_gate import ConnectionGate
from headrace.server.net.tls_transport import TlsTransport
from headrace.server.net.transport import Reactor, Transport

log = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_S = 0.1  # When the process is out of file descriptors.
TICK_S = 0.5  # The unit of the transports' timeouts.
# Without heartbeats the kernel finds out that a peer is gone: first asked after so many seconds,
# then so often, and given up after so many questions without an answer.
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
)


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
    ) -> None:
        self.context = context
        self.reactor = reactor
        self.transports = transports  # Of all listeners; connections_max limits them.
        self.connections_max = connections_max
        self.handshake_s = handshake_s
        self.gate = gate  # Of all listeners.
        self.audit = audit
        self.tls = tls  # Replaced when certificates are read again.
        self.introduction = introduction  # Server properties of this port, if it has its own.
        self.socket: socket.socket | None = None
        self.address = ("", 0)  # Where it listens, or did,
        self.both = False  # and whether on both families.
        self.handshakes: set[asyncio.Task[None]] = set()

    def open(self, host: str, port: int, both: bool = False) -> tuple[str, int]:
        """Listen; return the address, with the port chosen for 0.

        With ``both``, an IPv6 address accepts IPv4 connections, too.

        Raises:
            OSError: the address is in use, or not ours.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, reuse_port=False, dualstack_ipv6=both
        )
        self.both = both
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
            OSError: another process has taken it.
        """
        if self.socket is None:
            self.open(*self.address, self.both)

    def close(self) -> None:
        """Stop accepting."""
        if self.socket is not None:
            self.reactor.loop.remove_reader(self.socket.fileno())
            self.socket.close()
            self.socket = None
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
                self.reactor.loop.remove_reader(self.socket.fileno())
                self.reactor.loop.call_later(ACCEPT_PAUSE_S, self.listen_again)
                return
            self.accept(sock, plain_address(str(address[0])), int(address[1]))

    def listen_again(self) -> None:
        """Try to accept once more."""
        if self.socket is not None:
            self.reactor.loop.add_reader(self.socket.fileno(), self.on_acceptable)

    def accept(self, sock: socket.socket, host: str, port: int) -> None:
        """Serve a new connection, unless a limit is reached."""
        if len(self.transports) >= self.connections_max:
            self.transports.difference_update([one for one in self.transports if one.closed])
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
            context.introductions[number] = self.introduction
        if self.tls is None:
            self.keep(Transport(self.reactor, sock, connection))
            return
        transport = TlsTransport(self.reactor, sock, connection, peer)
        self.keep(transport)
        task = self.reactor.loop.create_task(self.encrypt(sock, transport))
        self.handshakes.add(task)
        task.add_done_callback(self.handshakes.discard)

    def refuse(self, host: str, port: int, why: str) -> None:
        """Log that a connection is refused."""
        log.warning("connection from %s refused: %s", host, why)
        if self.audit.active:
            peer = RemotePeer(host, port)
            self.audit.tell("connection.refused", peer=peer, allowed=False, reason=why)

    def keep(self, transport: Transport) -> None:
        """Register a transport, and limit the time of its handshake."""
        transport.handshake_ticks = max(1, round(self.handshake_s / TICK_S)) + 1
        self.transports.add(transport)

    async def encrypt(self, sock: socket.socket, transport: TlsTransport) -> None:
        """Do the TLS handshake.

        Never raises. A connection that fails is dropped, and so is one that began before the
        certificates were reloaded, as it may be revoked since.
        """
        tls = self.tls
        try:
            await self.reactor.loop.connect_accepted_socket(
                lambda: transport, sock, ssl=tls, ssl_handshake_timeout=self.handshake_s
            )
            if tls is not self.tls:
                transport.lost()
        except (OSError, asyncio.CancelledError) as error:
            number, host = transport.connection.number, transport.peer.host
            reason = "it took too long" if isinstance(error, TimeoutError) else str(error)
            log.info("connection %d: TLS handshake with %s failed: %s", number, host, reason)
            if self.audit.active and not isinstance(error, asyncio.CancelledError):
                self.audit.tell(
                    "connection.refused",
                    peer=transport.peer,
                    allowed=False,
                    reason=f"TLS handshake failed: {reason}",
                )
            transport.lost()


def is_loopback(host: str) -> bool:
    """Return True if a peer's address is this machine's own."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
