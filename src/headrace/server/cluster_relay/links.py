# SPDX-License-Identifier: Apache-2.0
"""Links: connections by which a broker of a cluster sends an operator's request to another one.

A link begins as a relayed connection does (:mod:`.preamble`): the asking broker answers a challenge
under a key that comes from the secret of the cluster. Then each side sends lines. A line is an HMAC
of its number and its text, a space, and the text. The keys of the two directions differ. Both come
from the challenge and from the preamble, in which the asking broker puts a random number.

A peer without the secret cannot send, change or replay a line. Lines are not encrypted.

The number of links, the length of a line, and the time to connect and to wait for a line are
bounded.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import socket
from typing import TYPE_CHECKING, NamedTuple, cast

from headrace.gateway.oauth.scopes import Scopes
from headrace.gateway.security.remote_peer import RemotePeer
from headrace.server.cluster_relay.ends import RelayEnd
from headrace.server.cluster_relay.preamble import (
    LINKS,
    MAC_SIZE,
    Preamble,
    PreambleError,
    derive_key,
    is_proved,
    pack,
    unpack,
)
from headrace.server.cluster_relay.relays import CONNECT_S
from headrace.server.net.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.gateway.connection.cluster_port import ServingBroker
    from headrace.gateway.connection.context import Context
    from headrace.gateway.security.user import User
    from headrace.protocol.endpoint import Endpoint
    from headrace.server.cluster_relay.ends import RelayedOpening
    from headrace.server.cluster_relay.relays import Relays
    from headrace.server.login.login import LoginService
    from headrace.server.net.transport import Reactor

log = logging.getLogger(__name__)

LINKS_MAX = 64  # Links that this broker serves at the same time.
LINE_BYTES_MAX = 4 << 20  # An operator's line has up to 1 MiB, which may grow threefold as ASCII.
ANSWER_BYTES_MAX = 64 << 20  # A line of a sample has 64 queues with their arguments.
LINE_S = 60.0  # The time that either side waits for a line, or for room to send one.
MAC_DIGITS = 64
NONCE_BYTES = 16
ASKED, ANSWERED = b"asked", b"answered"  # The purposes of the keys of the two directions.


class Asker(NamedTuple):
    """The operator on whose behalf another broker sends a request."""

    broker: str  # The name of the asking broker.
    words: str  # The operator as the log names it.
    name: str  # The operator as events and the audit log name it.
    address: str  # The operator's address in events and the audit log.
    user: User | None  # None: the system user of the asking broker, with all rights.


class OperatorLink:
    """Authenticated lines of JSON in both directions."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        sending: bytes,
        receiving: bytes,
    ) -> None:
        """``sending`` and ``receiving`` are the keys of the two directions."""
        self._reader = reader
        self._writer = writer
        self._sending = sending
        self._receiving = receiving
        self._sent = 0  # The number of lines so far, which authenticates the next one.
        self._received = 0

    async def send(self, *texts: str) -> None:
        """Send lines, and wait while the other broker has too much to read.

        Raises:
            OSError: the link is lost.
            TimeoutError: the other broker does not read.
        """
        for text in texts:
            line = text.encode()
            self._writer.write(line_mac(self._sending, self._sent, line) + b" " + line + b"\n")
            self._sent += 1
        async with asyncio.timeout(LINE_S):
            await self._writer.drain()

    async def receive(self) -> str:
        """Return the next line; empty at the end.

        Raises:
            OSError: the link is lost, or the line was not sent by the other broker.
            TimeoutError: no line came within ``LINE_S``.
        """
        try:
            async with asyncio.timeout(LINE_S):
                line = await self._reader.readline()
        except ValueError:
            raise ConnectionError("a line is longer than the limit of links") from None
        if not line:
            return ""
        text = line[MAC_DIGITS + 1 : -1]
        mac = line_mac(self._receiving, self._received, text)
        if not hmac.compare_digest(mac + b" " + text + b"\n", line):
            raise ConnectionError("a line does not prove that the broker sent it")
        self._received += 1
        return text.decode()

    def close(self) -> None:
        """Close the link; lines in its write buffer are still sent."""
        self._writer.close()


class OperatorLinks:
    """Opens links to other brokers, and accepts links from them."""

    def __init__(
        self,
        relays: Relays,
        context: Context,
        reactor: Reactor,
        login: LoginService,
        *,
        secret: bytes,
        broker: str,
        serve: Callable[[OperatorLink, Asker], Awaitable[None]],
    ) -> None:
        """``broker`` is the name of this broker; ``serve`` answers requests on accepted links."""
        self._relays = relays
        self._context = context
        self._reactor = reactor
        self._login = login
        self._key = derive_key(secret, LINKS)
        self._broker = broker
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """End the links of other brokers."""
        for task in self._tasks:
            task.cancel()

    # --- The asking broker ------------------------------------------------------------------

    async def open(
        self, broker: ServingBroker, user: User | None, words: str, name: str, address: str
    ) -> OperatorLink:
        """Open a link to another broker on behalf of an operator.

        ``words``, ``name``, ``address`` and ``user`` are as in :class:`Asker`.

        Raises:
            OSError: the broker cannot be reached, has no relays, or is this broker.
            TimeoutError: the broker does not answer.
            PreambleError: the user's properties are too long.
        """
        async with asyncio.timeout(CONNECT_S):
            sock, challenge = await self._relays.reach(broker)
            try:
                answer = pack(self._key, challenge, self._preamble(user, words, name, address))
                await self._reactor.loop.sock_sendall(sock, answer)
                streams = await asyncio.open_connection(sock=sock, limit=ANSWER_BYTES_MAX)
            except BaseException:
                sock.close()
                raise
        asked, answered = self._keys(challenge, answer[4:-MAC_SIZE])
        return OperatorLink(*streams, sending=asked, receiving=answered)

    def _preamble(self, user: User | None, words: str, name: str, address: str) -> Preamble:
        peer = RemotePeer() if user is None else user.peer
        return Preamble(
            broker=self._broker,
            user="" if user is None else user.name,
            host=peer.host,
            port=peer.port,
            loopback=peer.loopback,
            encrypted=peer.encrypted,
            version="",
            mechanism="",
            properties={
                "words": words,
                "name": name,
                "address": address,
                "nonce": secrets.token_hex(NONCE_BYTES),
            },
            scopes=user.grants.texts if user and isinstance(user.grants, Scopes) else None,
            source="" if user is None else user.source,
            expires_s=None if user is None else user.expires_s,
        )

    # --- The asked broker -------------------------------------------------------------------

    def is_proved(self, opening: RelayedOpening, text: bytes, mac: bytes) -> bool:
        """Return True if the answer to a challenge begins a link, not a relayed connection."""
        return is_proved(self._key, opening.challenge, text, mac)

    def accept(self, opening: RelayedOpening, text: bytes, mac: bytes) -> Endpoint:
        """Begin to serve a link, and return its endpoint.

        The endpoint passes the bytes of the connection to a socket pair, which asyncio reads.

        Raises:
            PreambleError: this broker has too many links, or does not know the user.
            ScopeError: the token of the user has too many scopes.
        """
        preamble = unpack(self._key, opening.challenge, text, mac)
        asker = self._asker(preamble)
        if len(self._tasks) >= LINKS_MAX:
            raise PreambleError(f"{LINKS_MAX} links of other brokers are served at a time")
        self._login.gate.leave(opening.number)
        pool = self._context.pool
        outer, inner = RelayEnd(pool, opening.number), RelayEnd(pool, opening.number)
        outer.other, inner.other = inner, outer
        inner_sock, link_sock = socket.socketpair()
        for sock in (inner_sock, link_sock):
            sock.setblocking(False)
        Transport(self._reactor, inner_sock, inner)
        cast("Transport", opening.transport).stop_handshake_timer()
        asked, answered = self._keys(opening.challenge, text)
        work = self._run(link_sock, asker, sending=answered, receiving=asked)
        task = self._reactor.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return outer

    def _asker(self, preamble: Preamble) -> Asker:
        """Return the operator on whose behalf a link asks.

        Raises:
            PreambleError, ScopeError: the user is refused here.
        """
        facts = preamble.properties
        peer = RemotePeer(
            preamble.host, preamble.port, preamble.loopback, encrypted=preamble.encrypted
        )
        user = self._relays.authorize_user(preamble, peer) if preamble.user else None
        words, name, address = (str(facts.get(key, "")) for key in ("words", "name", "address"))
        return Asker(preamble.broker, words, name, address, user)

    async def _run(
        self, sock: socket.socket, asker: Asker, *, sending: bytes, receiving: bytes
    ) -> None:
        """Serve a link of another broker until its end."""
        streams = await asyncio.open_connection(sock=sock, limit=LINE_BYTES_MAX)
        link = OperatorLink(*streams, sending=sending, receiving=receiving)
        try:
            await self._serve(link, asker)
        except (OSError, TimeoutError) as error:
            log.warning(
                "link of broker '%s': %s", asker.broker, str(error) or "the broker does not answer"
            )
        finally:
            link.close()

    def _keys(self, challenge: bytes, text: bytes) -> tuple[bytes, bytes]:
        """Return the key of the requests and the key of the answers on a link."""
        asked, answered = (
            hmac.digest(self._key, purpose + challenge + text, "sha256")
            for purpose in (ASKED, ANSWERED)
        )
        return asked, answered


def line_mac(key: bytes, number: int, line: bytes) -> bytes:
    """Return the HMAC of the line with this number, in hexadecimal digits."""
    return hmac.digest(key, number.to_bytes(8, "big") + line, "sha256").hex().encode()
