# SPDX-License-Identifier: Apache-2.0
"""Interface between a transport and a connection of any version.

The machines of all versions derive from :class:`Endpoint`, so that one transport serves them on one
port. A machine that only speaks, as a client's does, leaves what concerns a broker as it is.

Turns. One read may hold thousands of methods, of which each may cost anything. So a turn ends once
it has taken ``TURN_NS``: the frames that are left wait in the owner's hands, and other connections
are served before them. Reading the clock costs more than a plain publish may: it is read after
``WORK_PER_LOOK`` units of work, where a publish, an acknowledgement and each queue that a message
goes to are one unit, and whatever may take longer is ``METHOD_WORK``.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool, Output

TURN_NS = 5_000_000  # What one connection's methods may take while the others wait.
WORK_PER_LOOK = 512  # Units of work between looks at the clock.
METHOD_WORK = 256  # Units that a method is, unless it is known to be cheap.


class Endpoint(Output):
    """One peer's side of one connection: octets in by ``feed``, octets out by ``Output``."""

    def __init__(self, pool: BufferPool) -> None:
        Output.__init__(self, pool)
        self.number = 0  # Of the connection; what Message.publisher says.
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
        self.promised = 0  # As ``held_until``, even while the store cannot write.
        self.promised_from = 0  # How many octets were written before that, and wait, too.
        self.stopwatch: Any = None  # Tells nanoseconds; without one a turn ends with the read.
        self.work_left = WORK_PER_LOOK  # Until the next look at it.
        self.turn_until = 0  # What it will tell when the turn is over; 0 until the first look.
        self.turn_step = -1  # The step of the loop that it is in.
        self.spent = False  # The turn was over before all that was read was handled.
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

    def promise(self, store: Any, position: int) -> None:
        """As :meth:`hold`, also while the store cannot write: what is written is answers that
        promise what must be durable first.
        """
        if position > store.synced and position > self.promised:
            if self.promised == 0:
                self.promised_from = self.tail - self.head + self.chained
            self.promised = position
            self.held_by = store
            if position > self.held_until:
                self.held_until = position

    def take_back(self) -> None:
        """Forget the promises that were not sent, and all that was written after the first."""
        if self.promised:
            self.promised = self.held_until = 0
            self.cut_back(self.promised_from)

    def is_held(self) -> bool:
        """Return True if written output still has to wait."""
        if self.held_until == 0:
            return False
        if self.promised:
            if self.held_by.synced < self.promised:
                return True
            self.promised = 0
        if self.held_by.synced < self.held_until and not self.held_by.full:
            return True
        self.held_until = 0
        return False

    def feed(self, d: bytes | bytearray, n: int) -> int:
        """Handle the complete frames in ``d[:n]``; return how many octets are done with.

        When ``spent`` is set then, some of the others are complete as well.
        """
        return n

    def begin_turn(self) -> None:
        """Frames are handled now: those of one step of the loop are one turn."""
        if self.turn_step != self.pool.step:
            self.turn_step = self.pool.step
            self.work_left = WORK_PER_LOOK
            self.turn_until = 0
            self.spent = False

    def turn_is_over(self) -> bool:
        """Look at the clock, when ``WORK_PER_LOOK`` units of work are done."""
        if self.stopwatch is not None:
            now = self.stopwatch()
            if self.turn_until == 0:
                self.turn_until = now + TURN_NS
            elif now >= self.turn_until:
                self.spent = True
                return True
        self.work_left = WORK_PER_LOOK
        return False

    def awaits_close(self) -> bool:
        """Return True while we wait for the peer's close-ok, or for it to end after ours."""
        return False

    def send_heartbeat(self) -> None:
        """Nothing was sent for a while: send a sign of life."""

    def owes(self) -> bool:
        """Return True if the peer has unsettled deliveries."""
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

    def cannot_keep(self, store: Any) -> None:
        """A store has not been able to write for a while: refuse what waits for that."""

    def force_close(self, reason: str) -> None:
        """The operator ends the connection; the peer is told why."""

    def farewell(self) -> None:
        """The broker stops; an open peer is told."""

    def logged_in(self, user: Any) -> None:
        """The login is right."""

    def login_refused(self) -> None:
        """The login is wrong; why exactly stays in our log."""
