# SPDX-License-Identifier: Apache-2.0
"""Relayed connections, at the broker that a client connected to and at the serving broker.

The first broker logs the client in, and sends its user and address to the serving broker. The
serving broker trusts these, and checks every permission itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Protocol, cast

from headrace.gateway.oauth.scopes import ScopeError, Scopes
from headrace.gateway.security.remote_peer import RemotePeer
from headrace.gateway.security.user import User
from headrace.gateway.v0_x.connection.connection import RELAYED, GatewayConnection
from headrace.gateway.v0_x.quirks import client_quirks
from headrace.protocol.codec_0_x import ConnectionOpen, ConnectionTuneOk, encode_method
from headrace.protocol.v0_x.frames import FRAME_METHOD, make_frame
from headrace.server.cluster_relay.ends import RelayedOpening, RelayEnd
from headrace.server.cluster_relay.preamble import (
    CHALLENGE_SIZE,
    Preamble,
    PreambleError,
    derive_key,
    pack,
    unpack,
)
from headrace.server.net.client_socket import with_peer
from headrace.server.net.transport import Transport
from headrace.spec.tables import V0_8, V0_9, V0_9_1

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.gateway.connection.client import Client, RelayableClient
    from headrace.gateway.connection.cluster_port import ServingBroker
    from headrace.gateway.connection.context import Context
    from headrace.gateway.security.access import Access
    from headrace.gateway.v0_x.connection.context import V0xContext
    from headrace.protocol.endpoint import Endpoint
    from headrace.server.login.login import LoginService
    from headrace.server.net.transport import Reactor
    from headrace.wire.table import Table

log = logging.getLogger(__name__)

CONNECT_S = 5.0  # The time that the other broker has to answer.
WAIT_S = 12.0  # The time that a client waits for a virtual host that no broker serves.
POLL_S = 0.05  # The interval at which a wait checks for a serving broker.
TICKS_PER_S = 2  # Ticks of the transports' timeouts.
# The number of kept challenges: a broker that receives one of its own has connected to itself.
CHALLENGES = 1000
VERSIONS = {version.label: version for version in (V0_8, V0_9, V0_9_1)}


class AcceptsLinks(Protocol):
    """The part of :class:`headrace.server.cluster_relay.links.OperatorLinks` that relays use."""

    def is_proved(self, opening: RelayedOpening, text: bytes, mac: bytes) -> bool:
        """Return True if the answer to a challenge begins a link, not a relayed connection."""

    def accept(self, opening: RelayedOpening, text: bytes, mac: bytes) -> Endpoint:
        """Begin to serve a link, and return its endpoint.

        Raises:
            PreambleError, ScopeError: the link is not accepted.
        """

    def close(self) -> None:
        """End the links of other brokers."""


class Relays:
    """The relayed connections of a broker, in both roles: relaying and serving."""

    def __init__(
        self,
        context: V0xContext,
        access: Access,
        reactor: Reactor,
        login: LoginService,
        *,
        secret: bytes,
        broker: str,
        serving: Callable[[str], ServingBroker | None],
        brokers: Callable[[], Sequence[ServingBroker]],
    ) -> None:
        """Serve the relayed connections of other brokers from now on.

        Args:
            context: the context of the connections of all versions.
            access: the accounts of the users that other brokers log in.
            reactor: the loop and its transports.
            login: the logins of this broker, which watch the expiry of relayed credentials.
            secret: the secret of the cluster.
            broker: the name of this broker.
            serving: returns the other broker that serves a virtual host; None if there is none.
            brokers: returns the brokers of the cluster that have not left.
        """
        self._context = context
        self._access = access
        self._reactor = reactor
        self._login = login
        self._key = derive_key(secret)
        self._broker = broker
        self.serving = serving
        self.brokers = brokers
        self.links: AcceptsLinks | None = None  # Links begin like relayed connections.
        self._tasks: set[asyncio.Task[None]] = set()
        self._challenges: deque[bytes] = deque(maxlen=CHALLENGES)
        context.make_relayed = self.make_opening

    def close(self) -> None:
        """Cancel the connections that are being made."""
        for task in self._tasks:
            task.cancel()
        if self.links is not None:
            self.links.close()

    def _keep_task(self, task: asyncio.Task[None]) -> None:
        """Keep a reference to a task until it ends."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- Waiting ----------------------------------------------------------------------------

    def wait(self, connection: Client, vhost: str, served: Callable[[], None]) -> None:
        loop = self._reactor.loop
        self._keep_task(loop.create_task(self._wait(connection, vhost, served)))

    async def _wait(self, connection: Client, vhost: str, served: Callable[[], None]) -> None:
        """Call ``served`` once a broker serves a virtual host; after ``WAIT_S``, close."""
        transport = cast("Transport", connection.transport)
        transport.hold()
        transport.handshake_ticks += int(WAIT_S * TICKS_PER_S)
        deadline_s = self._reactor.loop.time() + WAIT_S
        while not (self._context.serves(vhost) or self.serving(vhost)):
            if connection.ended or self._reactor.loop.time() > deadline_s:
                break
            await asyncio.sleep(POLL_S)
        if connection.ended:
            return
        transport.unhold()
        if self._context.serves(vhost) or self.serving(vhost):
            served()
        else:
            connection.force_close(f"vhost '{vhost}' is served by no broker now: try again later")
        self._reactor.turn()

    # --- The relaying broker ----------------------------------------------------------------

    def relay(self, connection: RelayableClient, vhost: str, served: Callable[[], None]) -> None:
        loop = self._reactor.loop
        self._keep_task(loop.create_task(self._relay(connection, vhost, served)))

    async def _relay(
        self, connection: RelayableClient, vhost: str, served: Callable[[], None]
    ) -> None:
        """Relay a connection to the broker that serves its virtual host.

        Call ``served`` if this broker comes to serve it; close the connection after ``WAIT_S``.
        """
        transport = cast("Transport", connection.transport)
        transport.hold()
        transport.handshake_ticks += int(WAIT_S * TICKS_PER_S)
        sock, problem = None, "no broker serves it"
        deadline_s = self._reactor.loop.time() + WAIT_S
        while sock is None and not connection.ended and not self._context.serves(vhost):
            broker = self.serving(vhost)
            if broker is not None:
                try:
                    async with asyncio.timeout(CONNECT_S):
                        sock = await self._connect(connection, vhost, broker)
                except (OSError, TimeoutError, PreambleError) as error:
                    reason = str(error) or "no answer"
                    problem = f"broker '{broker.name}' at {broker}: {reason}"
            if self._reactor.loop.time() > deadline_s:
                break
            if sock is None:
                await asyncio.sleep(POLL_S)
        if sock is None:
            if not connection.ended:
                transport.unhold()
                if self._context.serves(vhost):
                    served()
                else:
                    log.warning("connection %d: vhost '%s': %s", connection.number, vhost, problem)
                    connection.force_close(f"vhost '{vhost}' cannot be reached: try again later")
                self._reactor.turn()
        elif connection.ended or transport.closing:
            sock.close()
        else:
            log.info("connection %d is relayed to %s", connection.number, broker)
            self._join(connection, transport, sock)

    def _join(self, connection: RelayableClient, transport: Transport, sock: socket.socket) -> None:
        """Replace the connection by a relay between the client's socket and the other broker's."""
        pool = self._context.pool
        client, server = RelayEnd(pool, connection.number), RelayEnd(pool, connection.number)
        client.other, server.other = server, client
        transport.flush()
        connection.ended = True
        transport.become(client)
        transport.stop_handshake_timer()
        transport.set_heartbeat(0)  # Heartbeats pass through.
        self._context.remove_connection(connection)
        Transport(self._reactor, sock, server)
        transport.unhold()
        self._reactor.turn()

    async def _connect(
        self, connection: RelayableClient, vhost: str, broker: ServingBroker
    ) -> socket.socket:
        """Connect to the other broker, and send the preamble.

        Raises:
            OSError: the broker cannot be reached, has no relays, or is this broker.
            PreambleError: the client's properties are too long.
        """
        sock, challenge = await self.reach(broker)
        try:
            introduction = self._introduction(connection, vhost, challenge)
            await self._reactor.loop.sock_sendall(sock, introduction)
        except BaseException:
            sock.close()
            raise
        return sock

    async def reach(self, broker: ServingBroker) -> tuple[socket.socket, bytes]:
        """Connect to another broker; return the socket and its challenge.

        Raises:
            OSError: the broker cannot be reached, has no relays, or is this broker.
        """
        loop = self._reactor.loop
        (resolved, *_) = await loop.getaddrinfo(broker.host, broker.port, type=socket.SOCK_STREAM)
        sock = socket.socket(resolved[0], socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, resolved[4])
            await loop.sock_sendall(sock, RELAYED)
            challenge = b""
            while len(challenge) < CHALLENGE_SIZE:
                received = await loop.sock_recv(sock, CHALLENGE_SIZE - len(challenge))
                if not received:
                    raise ConnectionResetError("it knows no relayed connections")
                challenge += received
            if challenge in self._challenges:
                raise ConnectionError(
                    "its address leads back to this broker: set its cluster_address"
                )
        except BaseException:
            sock.close()
            raise
        return sock, challenge

    def _introduction(self, connection: RelayableClient, vhost: str, challenge: bytes) -> bytes:
        """Return the answer to a challenge, and the client's tune-ok and open for the new peer."""
        peer = self._context.peer(connection.number)
        user = connection.user
        preamble = Preamble(
            broker=self._broker,
            user=user.name,
            host=peer.host,
            port=peer.port,
            loopback=peer.loopback,
            encrypted=peer.encrypted,
            version=connection.version.label,
            mechanism=connection.mechanism,
            properties=connection.client_properties,
            scopes=user.grants.texts if isinstance(user.grants, Scopes) else None,
            source=user.source,
            expires_s=user.expires_s,
        )
        tune = ConnectionTuneOk(
            channel_max=connection.channel_max,
            frame_max=connection.frame_max,
            heartbeat=connection.heartbeat_s,
        )
        methods = (tune, ConnectionOpen(virtual_host=vhost, insist=True))
        frames = [
            make_frame(FRAME_METHOD, 0, encode_method(connection.version, method))
            for method in methods
        ]
        return b"".join((pack(self._key, challenge, preamble), *frames))

    # --- The serving broker -----------------------------------------------------------------

    def make_opening(self, context: Context, number: int, loopback: bool) -> RelayedOpening:
        """Return the endpoint of a connection from another broker, with a new challenge."""
        challenge = os.urandom(CHALLENGE_SIZE)
        self._challenges.append(challenge)
        return RelayedOpening(context.pool, number, challenge, self._accept)

    def _accept(self, opening: RelayedOpening, text: bytes, mac: bytes) -> Endpoint | None:
        """Return the connection of a client that another broker has logged in, or a link.

        Return None if the connection is refused.
        """
        number = opening.number
        links = self.links
        try:
            if links is not None and links.is_proved(opening, text, mac):
                return links.accept(opening, text, mac)
            preamble = unpack(self._key, opening.challenge, text, mac)
            peer = RemotePeer(
                preamble.host, preamble.port, preamble.loopback, encrypted=preamble.encrypted
            )
            user = self.authorize_user(preamble, peer)
            if preamble.version not in VERSIONS:
                raise PreambleError(f"version '{preamble.version}' is not known here")
        except (PreambleError, ScopeError) as error:
            log.warning("connection %d: %s", number, error)
            return None
        context = self._context
        context.peers[number] = peer
        self._login.gate.leave(number)
        connection = GatewayConnection(context, number, preamble.loopback)
        context.connections[number] = connection
        connection.await_tune_ok(VERSIONS[preamble.version])
        connection.user = user
        self._login.watch(number, user)
        connection.mechanism = preamble.mechanism
        set_client_properties(connection, preamble.properties)
        transport = cast("Transport", opening.transport)
        transport.sock = with_peer(transport.sock, (preamble.host, preamble.port))
        return connection

    def authorize_user(self, preamble: Preamble, peer: RemotePeer) -> User:
        """Return the user that another broker has logged in, with its rights here.

        Raises:
            PreambleError: the account does not exist, or the token's issuer is not trusted here.
            ScopeError: the token has too many scopes.
        """
        if preamble.scopes is None and not preamble.source:
            account = self._access.account(preamble.user)
            if account is None:
                raise PreambleError(f"user '{preamble.user}' is not known here")
            return User(self._access, account.name, account.tags, peer)
        grants = Scopes.from_texts(preamble.scopes or ())
        user = User(
            self._access,
            preamble.user,
            grants.tags,
            peer,
            grants=grants,
            source=preamble.source,
            expires_s=preamble.expires_s,
        )
        if not self._login.logins.trusts(user):
            raise PreambleError(
                f"user '{preamble.user}' has a token of '{preamble.source}', untrusted here"
            )
        return user


def set_client_properties(connection: GatewayConnection, properties: Mapping[str, object]) -> None:
    """Apply the client properties that another broker received in connection.start-ok."""
    connection.client_properties = properties
    capabilities = properties.get("capabilities")
    connection.capabilities = capabilities if isinstance(capabilities, dict) else {}
    connection.quirks = client_quirks(cast("Table", properties))
    connection.speaks_extensions = connection.is_early and connection.quirks.qpid
    connection.publish_receiver.absolute_expirations = connection.quirks.expiration_moment
