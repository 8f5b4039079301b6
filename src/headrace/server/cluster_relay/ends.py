# SPDX-License-Identifier: Apache-2.0
"""The two sides of a relayed connection at the relaying broker, and its opening at the other.

Both sides are endpoints of ordinary transports, which pass bytes on without parsing them. While
the peer of one side does not read, the other side is not read.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.protocol.endpoint import Endpoint
    from headrace.protocol.output import BufferPool
    from headrace.wire.memory import cut, get32

from headrace.server.cluster_relay.preamble import MAC_SIZE, TEXT_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

WAITING_MAX = 1 << 20  # Bytes of one side's pending output above which the other is not read.
HEADER_SIZE = 8  # The size of the protocol header in every version of AMQP.


class RelayEnd(Endpoint):
    """One side of a relayed connection: its input is the output of the other side."""

    def __init__(self, pool: BufferPool, number: int) -> None:
        Endpoint.__init__(self, pool)
        self.number = number
        self.other: RelayEnd | None = None  # None once either side has ended.
        self.holding = False  # Reading is paused, as the other side has too much to send.

    def feed(self, d: bytes | bytearray, n: int) -> int:
        other = self.other
        if other is None or other.transport is None:
            return n
        other.write(cut(d, 0, n))
        if other.pending() > WAITING_MAX and not self.holding:
            self.holding = True
            self.transport.hold()
            other.starving = {}
            other.transport.watch_output()
        return n

    def on_output_drained(self) -> None:
        """Resume reading the other side, as the peer has read the pending output."""
        self.starving = None
        other = self.other
        if other is not None and other.holding:
            other.holding = False
            if other.transport is not None:
                other.transport.unhold()

    def end(self) -> None:
        """End this side, and close the other one once its pending output is sent."""
        self.ended = True
        other = self.other
        self.other = None
        if other is not None:
            other.other = None
            if other.transport is not None:
                other.transport.close_soon()

    def force_close(self, reason: str) -> None:
        """Close both sides."""
        if self.transport is not None:
            self.transport.close_soon()


class RelayedOpening(Endpoint):
    """A connection from another broker, until that has answered the challenge."""

    def __init__(
        self,
        pool: BufferPool,
        number: int,
        challenge: bytes,
        accept: "Callable[[RelayedOpening, bytes, bytes], Endpoint | None]",
    ) -> None:
        """Wait for the answer to ``challenge``.

        ``accept`` gets this opening, the text of the answer and its HMAC. It returns the endpoint
        that replaces the opening; None refuses the connection.
        """
        Endpoint.__init__(self, pool)
        self.number = number
        self.challenge = challenge
        self.challenged = False
        self.accept = accept
        self.accepted: Endpoint | None = None  # The connection of the client, or a link.

    def feed(self, d: bytes | bytearray, n: int) -> int:
        at = 0
        transport = self.transport
        if self.accepted is not None:
            transport.become(self.accepted)  # The transport feeds it the same bytes next.
            return 0
        if not self.challenged:
            self.challenged = True
            self.write(self.challenge)
            at = HEADER_SIZE
        if n - at < 4:
            return at
        size = get32(d, at)
        end = at + 4 + size + MAC_SIZE
        if size <= TEXT_BYTES_MAX and n < end:
            return at
        if size <= TEXT_BYTES_MAX:
            text, mac = cut(d, at + 4, at + 4 + size), cut(d, end - MAC_SIZE, end)
            self.accepted = self.accept(self, text, mac)
        if self.accepted is None:
            transport.abort()
            return n
        self.is_turn_spent = True  # The transport feeds the remaining bytes in another turn.
        return end
