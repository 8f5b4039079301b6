# SPDX-License-Identifier: Apache-2.0
"""What whoever moves octets needs of a connection, whatever its version.

The machines of all versions derive from :class:`Endpoint`, so that one transport serves them on one
port. A machine that only speaks, as a client's does, leaves what concerns a broker as it is.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool, Output


class Endpoint(Output):
    """One peer's side of one connection: octets in by ``feed``, octets out by ``Output``."""

    def __init__(self, pool: BufferPool) -> None:
        Output.__init__(self, pool)
        self.number = 0  # Of the connection; what Message.publisher says.
        self.output_max = 1 << 62  # Octets of output above which consumers get nothing more.
        self.publishes = False  # It has published: it is stopped when memory or disk run out.
        self.published = False  # It had, before ``publishes`` was set back.
        self.blocked = False  # It is stopped.
        self.ended = False  # All that it held was given back.
        self.pace: Any = None  # A queue that makes the transport stop reading for a while.
        self.starving: Any = None  # {queue: None} to go on with once the peer has read.
        self.user: Any = None  # Who logged in.
        self.vhost: Any = None  # The virtual host that it opened.
        self.held_until = 0  # What is written must not leave before the store's log is durable
        self.held_by: Any = None  # up to there; and that store.
        self.transport: Any = None  # Knows close_soon(), unpace(), watch_output() and the like.

    def forget_publishes(self) -> None:
        """It need not be stopped until it publishes again."""
        self.published = self.published or self.publishes
        self.publishes = False

    def hold(self, store: Any, position: int) -> None:
        """Let nothing that is written from now on leave before a store has synced up to there.

        A store that cannot write holds nothing back.
        """
        if position > self.held_until and position > store.synced and not store.full:
            self.held_until = position
            self.held_by = store

    def is_held(self) -> bool:
        """Tell whether what was written has to wait still."""
        if self.held_until == 0:
            return False
        if self.held_by.synced < self.held_until and not self.held_by.full:
            return True
        self.held_until = 0
        return False

    def feed(self, d: bytes | bytearray, n: int) -> int:
        """Handle the complete frames in ``d[:n]``; return how many octets are done with."""
        return n

    def awaits_close(self) -> bool:
        """Tell whether it is the peer's turn: to answer our close, or to end the stream after its
        own, which whoever is told close-ok does.
        """
        return False

    def send_heartbeat(self) -> None:
        """Nothing was sent for a while: send a sign of life."""

    def owes(self) -> bool:
        """Tell whether the peer has deliveries that it did not settle yet."""
        return False

    def block(self, reason: str) -> None:
        """Publishing stops: tell a peer that can hear it."""
        self.blocked = True

    def unblock(self) -> None:
        """Publishing goes on."""
        self.blocked = False

    def fed(self) -> None:
        """The peer has read what waited: let what starved go on."""
        self.starving = None

    def end(self) -> None:
        """The connection is over, however it came to that: give everything back."""
        self.ended = True

    def force_close(self, reason: str) -> None:
        """The operator ends the connection; the peer is told why."""

    def farewell(self) -> None:
        """The broker stops; an open peer is told."""

    def logged_in(self, user: Any) -> None:
        """The login is right."""

    def login_refused(self) -> None:
        """The login is wrong; why exactly stays in our log."""
