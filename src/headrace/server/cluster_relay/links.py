# SPDX-License-Identifier: Apache-2.0
"""Links: a broker of a cluster asks another one for an operator.

A link begins as a relayed connection does (:mod:`.preamble`): the asking broker answers a challenge
under a key that comes from the secret of the cluster. From then on each side sends lines, each an
HMAC of its number and its text, a space, and the text. Both keys come from the challenge and from
the preamble, which has a random number of the asking broker, and differ by direction. So nobody
without the secret can ask, answer, change a line, or send one again; lines are not encrypted.

Everything is bounded: links, the length of a line, the time to connect and to wait for a line.
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
    is_proved,
    key_of,
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

LINKS_MAX = 64  # That this broker serves at the same time.
LINE_BYTES_MAX = 4 << 20  # Of operators 1 MiB, which may grow threefold as ASCII.
ANSWER_BYTES_MAX = 64 << 20  # A line of a sample has 64 queues with their arguments.
LINE_S = 60.0  # The time that either side waits for a line, or for room to send one.
MAC_DIGITS = 64
NONCE_BYTES = 16
ASKED, ANSWERED = b"asked", b"answered"


class Asker(NamedTuple):
    """The operator for whom a broker asks."""

    broker: str  # That asks.
    words: str  # Who the operator is, for the log.
    name: str  # As events and the audit log name the operator,
    address: str  # and from where.
    user: User | None  # None: the system user of the broker that asks, with all rights.


class Link:
    """Lines in both directions; see the module."""

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
        self._sent = 0
        self._received = 0

    async def send(self, *texts: str) -> None:
        """Send lines of JSON, and wait while too much is unread.

        Raises:
            OSError: the link is lost.
            TimeoutError: the other broker does not read.
        """
        for text in texts:
            line = text.encode()
            self._writer.write(mac_of(self._sending, self._sent, line) + b" " + line + b"\n")
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
        mac = mac_of(self._receiving, self._received, text)
        if not hmac.compare_digest(mac + b" " + text + b"\n", line):
            raise ConnectionError("a line does not prove that the broker sent it")
        self._received += 1
        return text.decode()

    def close(self) -> None:
        """Close the link; lines in its write buffer are still sent."""
        self._writer.close()


class Links:
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
        serve: Callable[[Link, Asker], Awaitable[None]],
    ) -> None:
        """``broker`` is the name of this broker; ``serve`` answers requests on accepted links."""
        self._relays = relays
        self._context = context
        self._reactor = reactor
        self._login = login
        self._key = key_of(secret, LINKS)
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
    ) -> Link:
        """Return a link to another broker, for an operator as in :class:`Asker`.

        Raises:
            OSError: the broker cannot be reached, has no relays, or is this broker.
            TimeoutError: the broker does not answer.
            PreambleError: the facts of the user are too long.
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
        return Link(*streams, sending=asked, receiving=answered)

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
        """Return True if a broker of the cluster begins a link, not a relayed connection."""
        return is_proved(self._key, opening.challenge, text, mac)

    def accept(self, opening: RelayedOpening, text: bytes, mac: bytes) -> Endpoint:
        """Return the end of a link, which is served from now on.

        Raises:
            PreambleError: the broker has too many links, or does not have the user.
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
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        Transport(self._reactor, ours, inner)
        cast("Transport", opening.transport).stop_handshake_timer()
        asked, answered = self._keys(opening.challenge, text)
        work = self._run(theirs, asker, sending=answered, receiving=asked)
        task = self._reactor.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return outer

    def _asker(self, preamble: Preamble) -> Asker:
        """Return the operator on whose behalf a link asks.

        Raises:
            PreambleError, ScopeError: the user cannot be one here.
        """
        facts = preamble.properties
        peer = RemotePeer(
            preamble.host, preamble.port, preamble.loopback, encrypted=preamble.encrypted
        )
        user = self._relays.user_of(preamble, peer) if preamble.user else None
        words, name, address = (str(facts.get(key, "")) for key in ("words", "name", "address"))
        return Asker(preamble.broker, words, name, address, user)

    async def _run(
        self, sock: socket.socket, asker: Asker, *, sending: bytes, receiving: bytes
    ) -> None:
        streams = await asyncio.open_connection(sock=sock, limit=LINE_BYTES_MAX)
        link = Link(*streams, sending=sending, receiving=receiving)
        try:
            await self._serve(link, asker)
        except (OSError, TimeoutError) as error:
            log.warning(
                "link of broker '%s': %s", asker.broker, str(error) or "the broker does not answer"
            )
        finally:
            link.close()

    def _keys(self, challenge: bytes, text: bytes) -> tuple[bytes, bytes]:
        """Return the keys that authenticate the requests and the answers on a link."""
        asked, answered = (
            hmac.digest(self._key, purpose + challenge + text, "sha256")
            for purpose in (ASKED, ANSWERED)
        )
        return asked, answered


def mac_of(key: bytes, number: int, line: bytes) -> bytes:
    """Return the proof of a line, in hexadecimal digits."""
    return hmac.digest(key, number.to_bytes(8, "big") + line, "sha256").hex().encode()
