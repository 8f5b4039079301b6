# SPDX-License-Identifier: Apache-2.0
"""The two sides of a relayed connection at the relaying broker, and its beginning at the other.

Both sides are connections of ordinary transports; neither looks at the octets. While one side does
not read its output, the other side is not read.
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

WAITING_MAX = 1 << 20  # Octets that one side may have to send before the other is not read.
HEADER_SIZE = 8  # The size of the protocol header in every version of AMQP.


class RelayEnd(Endpoint):
    """One side; see the module."""

    def __init__(self, pool: BufferPool, number: int) -> None:
        Endpoint.__init__(self, pool)
        self.number = number
        self.other: RelayEnd | None = None
        self.holding = False  # This side is not read: the other one has too much to send.

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
        """The peer has read what waited: the other side is read again."""
        self.starving = None
        other = self.other
        if other is not None and other.holding:
            other.holding = False
            if other.transport is not None:
                other.transport.unhold()

    def end(self) -> None:
        """This side is over, and so is the other, once its peer has what waits."""
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
    """A connection of another broker, until that has proved itself."""

    def __init__(
        self,
        pool: BufferPool,
        number: int,
        challenge: bytes,
        accept: "Callable[[RelayedOpening, bytes, bytes], Endpoint | None]",
    ) -> None:
        """``accept`` is given this, the text and its HMAC; it returns the client's connection."""
        Endpoint.__init__(self, pool)
        self.number = number
        self.challenge = challenge
        self.challenged = False
        self.accept = accept
        self.made: Endpoint | None = None  # The connection of the client.

    def feed(self, d: bytes | bytearray, n: int) -> int:
        at = 0
        transport = self.transport
        if self.made is not None:
            transport.become(self.made)  # Which is fed next, with the same octets.
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
            self.made = self.accept(self, text, mac)
        if self.made is None:
            transport.abort()
            return n
        self.spent = True  # The transport goes on with what is left in another turn.
        return end
