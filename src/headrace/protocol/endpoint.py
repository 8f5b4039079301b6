# SPDX-License-Identifier: Apache-2.0
"""Interface between a transport and a connection of any version.

The machines of all versions derive from :class:`Endpoint`, so that one transport serves them on one
port. A client's machine does not override the broker's methods.

Turns. One read may hold thousands of methods of any cost. A turn therefore ends after ``TURN_NS``:
the owner keeps the remaining frames, and other connections are served first. Reading the clock may
cost more than a plain publish, so the clock is read after ``WORK_PER_LOOK`` units of work. A
publish, an acknowledgement and each queue of a message are one unit; longer methods are
``METHOD_WORK`` units.
"""

from typing import TYPE_CHECKING, Any, Protocol

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool, Output

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_NS = 5_000_000  # The maximum time of one connection's turn.
WORK_PER_LOOK = 512  # The units of work between two readings of the clock.
METHOD_WORK = 256  # The units of work of a method that is not on the fast path.


class DurableLog(Protocol):
    """A store whose log is synced in groups."""

    @property
    def synced(self) -> int:
        """The position up to which the log is durable."""

    @property
    def full(self) -> bool:
        """True while the disk takes no records."""


class BodySink(Protocol):
    """Receives the body of a content as it arrives, so that the body is not kept in memory."""

    def add(self, data: bytes) -> None:
        """Receive the next bytes of the body."""

    def abandon(self) -> None:
        """Discard the body, whose remaining bytes will not arrive."""


class Endpoint(Output):
    """One peer's side of one connection: input by ``feed``, output by ``Output``."""

    def __init__(self, pool: BufferPool) -> None:
        Output.__init__(self, pool)
        self.number = 0  # The number of the connection, as in Message.publisher.
        self.publishes = False  # True for a publisher, which is blocked if memory or disk run out.
        self.published = False  # Like ``publishes``, which ``clear_publishes`` clears.
        self.blocked = False
        self.ended = False  # True once all its resources are released.
        self.pace: Any = None  # A queue that makes the transport pause reading.
        self.starving: Any = None  # {queue: None} to resume once the peer has read the output.
        # A gateway's user and virtual host, None before the login and before connection.open.
        # Any: this package must not import their classes.
        self.user: Any = None
        self.vhost: Any = None
        #: The position up to which the log of ``held_by`` must be durable before output is sent.
        self.held_until = 0
        self.held_by: DurableLog = None  # type: ignore[assignment]  # Set with held_until.
        self.promised = 0  # Like ``held_until``, but effective even if the store cannot write.
        self.promised_from = 0  # The bytes of output before the first promised answer.
        #: Returns nanoseconds; without it a turn ends with the read.
        self.stopwatch: Callable[[], int] | None = None
        self.work_left = WORK_PER_LOOK  # Units of work until the clock is read again.
        self.turn_until = 0  # The time in ns at which the turn ends; 0 before the first reading.
        self.turn_step = -1  # The step of the event loop that the turn belongs to.
        self.is_turn_spent = False  # True: the turn ended before all received frames were handled.
        self.transport: Any = None  # As headrace.server.net.transport.Transport; None without one.

    def clear_publishes(self) -> None:
        """Stop counting as a publisher until the next publish."""
        self.published = self.published or self.publishes
        self.publishes = False

    def hold(self, store: "DurableLog", position: int) -> None:
        """Delay later output until a store has synced up to a position.

        A store that cannot write holds nothing back.
        """
        if position > self.held_until and position > store.synced and not store.full:
            self.held_until = position
            self.held_by = store

    def promise(self, store: "DurableLog", position: int) -> None:
        """Delay later output like :meth:`hold`, but even if the store cannot write.

        This is for answers to changes that must be durable first.
        """
        if position > store.synced and position > self.promised:
            if self.promised == 0:
                self.promised_from = self.tail - self.head + self.chained
            self.promised = position
            self.held_by = store
            if position > self.held_until:
                self.held_until = position

    def drop_promised(self) -> None:
        """Drop the first unsent promised answer, and all output after it."""
        if self.promised:
            self.promised = self.held_until = 0
            self.cut_back(self.promised_from)

    def is_held(self) -> bool:
        """Return True if the output must wait for a store's sync."""
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

    def feed(self, buffer: bytes | bytearray, n: int) -> int:
        """Handle the complete frames in ``buffer[:n]``; return the number of consumed bytes.

        If the call sets ``is_turn_spent``, complete frames may remain.
        """
        return n

    def begin_turn(self) -> None:
        """Restore the allowance of work of a turn, once for each step of the loop."""
        if self.turn_step != self.pool.step:
            self.turn_step = self.pool.step
            self.work_left = WORK_PER_LOOK
            self.turn_until = 0
            self.is_turn_spent = False

    def turn_is_over(self) -> bool:
        """Read the clock; return True and set ``is_turn_spent`` if the turn has lasted too long."""
        if self.stopwatch is not None:
            now = self.stopwatch()
            if self.turn_until == 0:
                self.turn_until = now + TURN_NS
            elif now >= self.turn_until:
                self.is_turn_spent = True
                return True
        self.work_left = WORK_PER_LOOK
        return False

    def awaits_close(self) -> bool:
        """Return True while the close-ok of the peer, or the end of its stream, is awaited."""
        return False

    def send_heartbeat(self) -> None:
        """Send a heartbeat, as there was no output for an interval.

        The transport calls it (``Transport.tick``), which also ends a silent connection.
        """

    def prepend_heartbeat(self) -> int:
        """Write a heartbeat before all output that waits; return its size in bytes."""
        self.seal()
        self.send_heartbeat()
        size = self.tail - self.head
        self.put_in_chain(bytes(self.buffer[self.head : self.tail]), 0, size, False)
        self.release()
        return size

    def has_unacked(self) -> bool:
        """Return True if the peer has unsettled deliveries."""
        return False

    def block(self, reason: str) -> None:
        """Send connection.blocked, if the peer supports it."""
        self.blocked = True

    def unblock(self) -> None:
        """Send connection.unblocked, if the peer supports it."""
        self.blocked = False

    def on_output_drained(self) -> None:
        """Resume the consumers that waited for the peer to read the output."""
        self.starving = None

    def end(self) -> None:
        """Release all resources of the connection, which has ended for any reason."""
        self.ended = True

    def fail_changes(self, store: "DurableLog") -> None:
        """Fail the changes that wait for a store that cannot write."""

    def force_close(self, reason: str) -> None:
        """Close the connection for an operator, with a reason."""

    def close_without_answers(self) -> None:
        """Close without the deferred answers, as the store that they wait for is closed."""

    def close_for_shutdown(self) -> None:
        """Close an open connection because the broker stops."""

    def accept_login(self, user: Any) -> None:
        """Accept the login."""

    def refuse_login(self) -> None:
        """Refuse the login; the exact reason is only logged."""
