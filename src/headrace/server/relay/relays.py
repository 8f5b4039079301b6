# SPDX-License-Identifier: Apache-2.0
"""Makes relayed connections: at the broker that a client has found, and at the one that serves it.

The first logs the client in, and says to the other who it is. The other one trusts it for that, and
checks every right itself: its connection has the client's user and address.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, cast

from headrace.gateway.oauth.scopes import ScopeError, Scopes
from headrace.gateway.security.remote_peer import RemotePeer
from headrace.gateway.security.user import User
from headrace.gateway.v0_x.connection.connection import RELAYED, GatewayConnection
from headrace.gateway.v0_x.quirks import quirks_of
from headrace.protocol.codec_0_x import ConnectionOpen, ConnectionTuneOk, encode_method
from headrace.protocol.v0_x.frames import FRAME_METHOD, framed
from headrace.server.net.client_socket import seen_from
from headrace.server.net.transport import Transport
from headrace.server.relay.ends import RelayedOpening, RelayEnd
from headrace.server.relay.preamble import (
    CHALLENGE_SIZE,
    Preamble,
    PreambleError,
    key_of,
    pack,
    unpack,
)
from headrace.spec.tables import V0_8, V0_9, V0_9_1

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.gateway.connection.client import Client, RelayableClient
    from headrace.gateway.connection.context import Context
    from headrace.gateway.connection.elsewhere import ServingBroker
    from headrace.gateway.security.access import Access
    from headrace.gateway.v0_x.connection.context import V0xContext
    from headrace.protocol.endpoint import Endpoint
    from headrace.server.login.login import LoginService
    from headrace.server.net.transport import Reactor
    from headrace.wire.table import Table

log = logging.getLogger(__name__)

CONNECT_S = 5.0  # How long the other broker may take to answer.
WAIT_S = 12.0  # How long a client waits for a virtual host that no broker serves.
LOOK_S = 0.05
TICKS_PER_S = 2  # Of the transports' timeouts.
CHALLENGES = 1000  # Of the last ones, by which a broker knows itself.
VERSIONS = {version.label: version for version in (V0_8, V0_9, V0_9_1)}


class Relays:
    """See the module."""

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
        """``broker`` is the name of this one; ``serving`` tells who else serves a virtual host,
        ``brokers`` who lives.
        """
        self._context = context
        self._access = access
        self._reactor = reactor
        self._login = login
        self._key = key_of(secret)
        self._broker = broker
        self.serving = serving
        self.brokers = brokers
        self._tasks: set[asyncio.Task[None]] = set()
        self._challenges: deque[bytes] = deque(maxlen=CHALLENGES)
        context.make_relayed = self.make_opening

    def close(self) -> None:
        """End what waits."""
        for task in self._tasks:
            task.cancel()

    def _begin(self, work: asyncio.Task[None]) -> None:
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    # --- Waiting ----------------------------------------------------------------------------

    def wait(self, connection: Client, vhost: str, served: Callable[[], None]) -> None:
        """See :class:`headrace.gateway.connection.elsewhere.Elsewhere`."""
        loop = self._reactor.loop
        self._begin(loop.create_task(self._wait(connection, vhost, served)))

    async def _wait(self, connection: Client, vhost: str, served: Callable[[], None]) -> None:
        transport = cast("Transport", connection.transport)
        transport.hold()
        transport.handshake_ticks += int(WAIT_S * TICKS_PER_S)
        until = self._reactor.loop.time() + WAIT_S
        while not (self._context.serves(vhost) or self.serving(vhost)):
            if connection.ended or self._reactor.loop.time() > until:
                break
            await asyncio.sleep(LOOK_S)
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
        """See :class:`headrace.gateway.connection.elsewhere.Elsewhere`."""
        loop = self._reactor.loop
        self._begin(loop.create_task(self._relay(connection, vhost, served)))

    async def _relay(
        self, connection: RelayableClient, vhost: str, served: Callable[[], None]
    ) -> None:
        transport = cast("Transport", connection.transport)
        transport.hold()
        transport.handshake_ticks += int(WAIT_S * TICKS_PER_S)
        sock, trouble = None, "it is served by none"
        until = self._reactor.loop.time() + WAIT_S
        while sock is None and not connection.ended and not self._context.serves(vhost):
            broker = self.serving(vhost)
            if broker is not None:
                try:
                    async with asyncio.timeout(CONNECT_S):
                        sock = await self._connect(connection, vhost, broker)
                except (OSError, TimeoutError, PreambleError) as error:
                    why = str(error) or "no answer"
                    trouble = f"broker '{broker.name}' at {broker}: {why}"
            if self._reactor.loop.time() > until:
                break
            if sock is None:
                await asyncio.sleep(LOOK_S)
        if sock is None:
            if not connection.ended:
                transport.unhold()
                if self._context.serves(vhost):
                    served()
                else:
                    log.warning("connection %d: vhost '%s': %s", connection.number, vhost, trouble)
                    connection.force_close(f"vhost '{vhost}' cannot be reached: try again later")
                self._reactor.turn()
        elif connection.ended or transport.closing:
            sock.close()
        else:
            log.info("connection %d is relayed to %s", connection.number, broker)
            self._join(connection, transport, sock)

    def _join(self, connection: RelayableClient, transport: Transport, sock: socket.socket) -> None:
        """Pass on between a client and another broker from now on."""
        pool = self._context.pool
        client, server = RelayEnd(pool, connection.number), RelayEnd(pool, connection.number)
        client.other, server.other = server, client
        transport.flush()
        connection.ended = True
        transport.become(client)
        transport.opened()
        transport.set_heartbeat(0)  # They pass through.
        self._context.forget(connection)
        Transport(self._reactor, sock, server)
        transport.unhold()
        self._reactor.turn()

    async def _connect(
        self, connection: RelayableClient, vhost: str, broker: ServingBroker
    ) -> socket.socket:
        """Connect to the other broker, and tell who the client is.

        Raises:
            OSError: it cannot be reached, does not know relays, or is this broker.
            PreambleError: there is too much to tell.
        """
        loop = self._reactor.loop
        (found, *_) = await loop.getaddrinfo(broker.host, broker.port, type=socket.SOCK_STREAM)
        sock = socket.socket(found[0], socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, found[4])
            await loop.sock_sendall(sock, RELAYED)
            challenge = b""
            while len(challenge) < CHALLENGE_SIZE:
                got = await loop.sock_recv(sock, CHALLENGE_SIZE - len(challenge))
                if not got:
                    raise ConnectionResetError("it knows no relayed connections")
                challenge += got
            if challenge in self._challenges:
                raise ConnectionError("that address leads back here: set its cluster_address")
            await loop.sock_sendall(sock, self._introduction(connection, vhost, challenge))
        except BaseException:
            sock.close()
            raise
        return sock

    def _introduction(self, connection: RelayableClient, vhost: str, challenge: bytes) -> bytes:
        """Return the answer to a challenge, and the client's last two methods again."""
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
            framed(FRAME_METHOD, 0, encode_method(connection.version, one)) for one in methods
        ]
        return b"".join((pack(self._key, challenge, preamble), *frames))

    # --- The serving broker -----------------------------------------------------------------

    def make_opening(self, context: Context, number: int, loopback: bool) -> RelayedOpening:
        """Return the beginning of a connection of another broker."""
        challenge = os.urandom(CHALLENGE_SIZE)
        self._challenges.append(challenge)
        return RelayedOpening(context.pool, number, challenge, self._accept)

    def _accept(self, opening: RelayedOpening, text: bytes, mac: bytes) -> Endpoint | None:
        """Return the connection of a client that another broker has logged in."""
        number = opening.number
        try:
            told = unpack(self._key, opening.challenge, text, mac)
            peer = RemotePeer(told.host, told.port, told.loopback, encrypted=told.encrypted)
            user = self._user(told, peer)
            if told.version not in VERSIONS:
                raise PreambleError(f"version '{told.version}' is not known here")
        except (PreambleError, ScopeError) as error:
            log.warning("connection %d: %s", number, error)
            return None
        context = self._context
        context.peers[number] = peer
        self._login.gate.leave(number)
        connection = GatewayConnection(context, number, told.loopback)
        context.connections[number] = connection
        connection.await_tune_ok(VERSIONS[told.version])
        connection.user = user
        self._login.watch(number, user)
        connection.mechanism = told.mechanism
        introduce(connection, told.properties)
        transport = cast("Transport", opening.transport)
        transport.sock = seen_from(transport.sock, (told.host, told.port))
        return connection

    def _user(self, told: Preamble, peer: RemotePeer) -> User:
        """Return the user that another broker has logged in.

        Raises:
            PreambleError: there is no such account, or its token's issuer is not trusted here.
            ScopeError: the token has too many scopes.
        """
        if told.scopes is None and not told.source:
            account = self._access.account(told.user)
            if account is None:
                raise PreambleError(f"user '{told.user}' is not known here")
            return User(self._access, account.name, account.tags, peer)
        grants = Scopes.again(told.scopes or ())
        user = User(
            self._access,
            told.user,
            grants.tags,
            peer,
            grants=grants,
            source=told.source,
            expires_s=told.expires_s,
        )
        if not self._login.logins.trusts(user):
            raise PreambleError(
                f"user '{told.user}' has a token of '{told.source}', untrusted here"
            )
        return user


def introduce(connection: GatewayConnection, properties: Mapping[str, object]) -> None:
    """Note what a client said of itself at another broker, as connection.start-ok does."""
    connection.client_properties = properties
    said = properties.get("capabilities")
    connection.capabilities = said if isinstance(said, dict) else {}
    connection.quirks = quirks_of(cast("Table", properties))
    connection.speaks_more = connection.early and connection.quirks.qpid
    connection.publisher.takes_moments = connection.quirks.expiration_moment
