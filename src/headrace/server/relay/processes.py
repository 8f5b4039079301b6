# SPDX-License-Identifier: Apache-2.0
"""The relay processes of a broker: it starts them, gives them clients, and restarts them.

The broker accepts each client, and sends its socket to the relay with the fewest clients. So the
limits of connections apply first, no relay listens, and the death of a relay does not affect
connections that are not accepted yet.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import headrace
from headrace.server.net.client_socket import ClientAddress
from headrace.server.net.tls import TlsError
from headrace.server.relay.frames import (
    CONTROL_SIZE_MAX,
    FAILED,
    OPEN,
    OPEN_SECURE,
    READY,
    SECURED,
    TLS_FILES,
)
from headrace.server.relay.link import RelayedTransport, RelayLink
from headrace.server.relay.process import pack_files
from headrace.server.relay.tls_facts import RelayedTls

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.security.remote_peer import RemotePeer
    from headrace.protocol.endpoint import Endpoint
    from headrace.server.config.settings import Settings
    from headrace.server.net.transport import Reactor, Transport

log = logging.getLogger(__name__)

START_S = 30.0  # The time that relays have to be ready.
STOP_S = 2.0  # The time that relays have to end.
PAUSE_S = 0.1  # The pause before the first restart of a relay, doubled with each further one.
PAUSE_S_MAX = 10.0  # The longest pause before a restart.
STEADY_S = 30.0  # The lifetime of a relay after which its next pause is ``PAUSE_S`` again.
ALONE_S = 10.0  # Seconds without a relay before the broker serves clients itself.
SOCKET_SIZE = 1 << 20  # Bytes of the kernel's buffer for a local stream.


class RelayError(Exception):
    """The relays do not start; the text is the reason."""


class Relay:
    """A running relay process."""

    def __init__(self, owner: RelayProcesses) -> None:
        """Start the process.

        Raises:
            OSError: the process cannot be started.
        """
        loop = owner.reactor.loop
        self._owner = owner
        link, far_link = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        control, far_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            for end in (link, far_link):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_SIZE)
            inherited = (far_link.fileno(), far_control.fileno())
            package = str(Path(headrace.__file__).parent.parent)
            path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
            self.process = subprocess.Popen(  # noqa: S603 - its words are ours
                [
                    *(sys.executable, "-m", "headrace.server.relay.process"),
                    *(str(number) for number in inherited),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=inherited,
                env={**os.environ, "PYTHONPATH": path},
            )
        except BaseException:
            link.close()
            control.close()
            raise
        finally:
            far_link.close()
            far_control.close()
        for end in (link, control):
            end.setblocking(False)
        self.began_s: float = loop.time()
        self.control = control
        self.ready = False
        self.ended = asyncio.Event()
        self.clients = 0  # The number of clients when the process ended.
        self.link = RelayLink(owner.reactor, link, self._on_message, self._on_end)

    def _on_message(self, kind: int, transport: RelayedTransport | None, data: bytes) -> None:
        """Handle a frame about the relay or about the TLS handshake of a connection."""
        if kind == READY:
            self.ready = True
            self._owner.update_ready()
        elif transport is not None and kind == FAILED:
            transport.on_failure(transport, data.decode("utf-8", "replace"))
        elif transport is not None and kind == SECURED:
            tls = RelayedTls(data)
            if tls.files != self._owner.files:
                transport.abort()  # The new files may revoke its certificate.
            else:
                transport.set_tls(tls, tls.getpeercert())

    def _on_end(self) -> None:
        self.clients = len(self.link.streams)
        self.ready = False
        self.ended.set()
        self._owner.update_ready()

    def send(self, message: bytes, sock: socket.socket | None = None) -> bool:
        """Send a control message; return False if it cannot be sent."""
        try:
            fds = [] if sock is None else [sock.fileno()]
            return socket.send_fds(self.control, [message], fds) == len(message)
        except OSError:
            return False

    async def reap(self) -> str:
        """Wait for the end of a process whose link has ended; return its exit status as text."""
        self.control.close()
        try:
            status = await asyncio.to_thread(self.process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = await asyncio.to_thread(self.process.wait)
        return f"signal {-status}" if status < 0 else f"status {status}"


class RelayProcesses:
    """The relay processes of a broker; one that ends is started again."""

    def __init__(self, reactor: Reactor, count: int) -> None:
        self.reactor = reactor
        self.count = count
        self.relays: list[Relay | None] = [None] * count
        self.files = 0  # The number of the TLS files, which grows with each change.
        self._files = b""  # The message with the TLS files; empty without TLS.
        self._tasks: list[asyncio.Task[None]] = []
        self._all_ready = asyncio.Event()
        # The time at which the last ready relay ended; None while one is ready.
        self._alone_s: float | None = None

    @property
    def pids(self) -> list[int]:
        """The process ids of the running relays."""
        return [relay.process.pid for relay in self.relays if relay is not None]

    async def start(self) -> None:
        """Start the relays, and wait until all are ready.

        Raises:
            RelayError: a relay is not ready in time.
        """
        self._tasks = [asyncio.create_task(self._run_relay(index)) for index in range(self.count)]
        try:
            await asyncio.wait_for(self._all_ready.wait(), START_S)
        except TimeoutError:
            raise RelayError(f"relays: they were not ready within {START_S:.0f} s") from None

    async def stop(self) -> None:
        """Send the pending output, and end the processes."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        running = [relay for relay in self.relays if relay is not None]
        for relay in running:
            relay.link.flush()
            relay.link.abort()
        for relay in running:
            await relay.reap()

    async def _run_relay(self, index: int) -> None:
        """Run the relay with an index, and start it again whenever it ends."""
        pause_s = PAUSE_S
        while True:
            try:
                relay = self.relays[index] = Relay(self)
            except OSError as error:
                log.error("relay %d cannot be started: %s", index + 1, error)
            else:
                if self._files:
                    relay.send(self._message())
                await relay.ended.wait()
                self.relays[index] = None
                lived_s = self.reactor.loop.time() - relay.began_s
                pause_s = PAUSE_S if lived_s >= STEADY_S else pause_s
                status = await relay.reap()
                log.error(
                    "relay %d (process %d) ended with %s; its %d clients were disconnected, and a "
                    "new one is started in %.1f s",
                    *(index + 1, relay.process.pid, status, relay.clients, pause_s),
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def update_ready(self) -> None:
        """Update the state after a relay has become ready or has ended."""
        ready = self._ready()
        if len(ready) == self.count:
            self._all_ready.set()
        if ready:
            self._alone_s = None
        elif self._alone_s is None:
            self._alone_s = self.reactor.loop.time()

    def _ready(self) -> list[Relay]:
        return [relay for relay in self.relays if relay is not None and relay.ready]

    # --- TLS ----------------------------------------------------------------------------------

    def use_files(self, settings: Settings) -> None:
        """Use the TLS files of ``settings`` for further connections.

        Raises:
            TlsError: the paths do not fit in one message.
        """
        self._files = pack_files(settings)
        self.files += 1
        if len(self._files) >= CONTROL_SIZE_MAX:
            raise TlsError("tls_server_names: too long for relays")
        for relay in self.relays:
            if relay is not None and not relay.send(self._message()):
                relay.process.kill()  # A relay without the message would use the former files.

    def _message(self) -> bytes:
        return TLS_FILES + self._files

    # --- Clients ------------------------------------------------------------------------------

    def is_waited_for(self) -> bool:
        """Return True if accepting must wait, since no relay is ready; for ``ALONE_S`` at most."""
        alone_s = self._alone_s
        return alone_s is not None and self.reactor.loop.time() < alone_s + ALONE_S

    def hand_over(
        self,
        sock: socket.socket,
        address: tuple[str, int],
        connection: Endpoint,
        peer: RemotePeer,
        on_failure: Callable[[Transport, str], None],
    ) -> RelayedTransport | None:
        """Give a client's socket to a relay; return its transport, or None without a ready relay.

        ``address`` is the client's. ``on_failure`` is called with the reason if the TLS handshake
        fails.
        """
        ready = sorted(self._ready(), key=lambda relay: len(relay.link.streams))
        kind = OPEN_SECURE if peer.encrypted else OPEN
        message = kind + connection.number.to_bytes(4, "big") + self.files.to_bytes(4, "big")
        for relay in ready:
            if relay.send(message, sock):
                own = cast("tuple[str, int]", sock.getsockname()[:2])
                sock.close()
                transport = RelayedTransport(
                    relay.link, ClientAddress(address, own), connection, peer
                )
                transport.on_failure = on_failure
                return transport
        return None
