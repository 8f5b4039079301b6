# SPDX-License-Identifier: Apache-2.0
"""Interface between a transport and a connection of any version.

The machines of all versions derive from :class:`Endpoint`, so that one transport serves them on one
port. A client's machine does not override the broker's methods.

Turns. One read may hold thousands of methods of any cost. So a turn ends after ``TURN_NS``: the
owner keeps the remaining frames, and other connections are served first. Reading the clock may cost
more than a plain publish: it is read after ``WORK_PER_LOOK`` units of work. A publish, an
acknowledgement and each queue of a message are one unit; longer methods are ``METHOD_WORK``.
"""

from typing import TYPE_CHECKING, Any, Protocol

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool, Output

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_NS = 5_000_000  # The maximum time of one connection's turn.
WORK_PER_LOOK = 512  # Units of work between looks at the clock.
METHOD_WORK = 256  # Units of a method, unless it is known to be cheap.


class DurableLog(Protocol):
    """A store whose log is synced in groups."""

    @property
    def synced(self) -> int:
        """The position up to which the log is durable."""

    @property
    def full(self) -> bool:
        """True while the disk takes no records."""


class BodySink(Protocol):
    """Takes the body of a content as it arrives, instead of memory."""

    def add(self, octets: bytes) -> None:
        """Take the next bytes."""

    def abandon(self) -> None:
        """Discard the body: the remaining bytes will not arrive."""


class Endpoint(Output):
    """One peer's side of one connection: input by ``feed``, output by ``Output``."""

    def __init__(self, pool: BufferPool) -> None:
        Output.__init__(self, pool)
        self.number = 0  # Of the connection; also in Message.publisher.
        self.publishes = False  # It has published: it is blocked when memory or disk run out.
        self.published = False  # It has published, even before ``publishes`` was cleared.
        self.blocked = False
        self.ended = False  # All its resources were released.
        self.pace: Any = None  # A queue that makes the transport pause reading.
        self.starving: Any = None  # {queue: None} to resume once the peer has read the output.
        # A gateway's user and virtual host, None before the login and before connection.open.
        # Any: this package must not import their classes.
        self.user: Any = None
        self.vhost: Any = None
        self.held_until = 0  # Output waits until the log of held_by is durable up to here.
        self.held_by: DurableLog = None  # type: ignore[assignment]  # Set with held_until.
        self.promised = 0  # As ``held_until``, even while the store cannot write.
        self.promised_from = 0  # The bytes that were written before that, and wait, too.
        #: Returns nanoseconds; without it a turn ends with the read.
        self.stopwatch: Callable[[], int] | None = None
        self.work_left = WORK_PER_LOOK  # Units of work until the clock is read again.
        self.turn_until = 0  # The time in ns when the turn ends; 0 until the first reading.
        self.turn_step = -1  # The step of the loop that it is in.
        self.spent = False  # The turn ended before all received frames were handled.
        self.transport: Any = None  # Has close_soon(), unpace(), watch_output() and others.

    def forget_publishes(self) -> None:
        """Clear the mark of a publisher, until the next publish."""
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
        """Like :meth:`hold`, also while the store cannot write: for answers to changes that must
        be durable first.
        """
        if position > store.synced and position > self.promised:
            if self.promised == 0:
                self.promised_from = self.tail - self.head + self.chained
            self.promised = position
            self.held_by = store
            if position > self.held_until:
                self.held_until = position

    def drop_promised(self) -> None:
        """Drop the promised answers that were not sent, and all output after the first."""
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
        """Handle the complete frames in ``d[:n]``; return how many bytes were consumed.

        If ``spent`` is set then, complete frames may remain.
        """
        return n

    def begin_turn(self) -> None:
        """Start a turn: the frames that one step of the loop handles."""
        if self.turn_step != self.pool.step:
            self.turn_step = self.pool.step
            self.work_left = WORK_PER_LOOK
            self.turn_until = 0
            self.spent = False

    def turn_is_over(self) -> bool:
        """Read the clock after ``WORK_PER_LOOK`` units of work."""
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
        """Send a heartbeat: there was no output for an interval."""

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
        """The peer has read the output: resume the consumers that waited for room."""
        self.starving = None

    def end(self) -> None:
        """Release everything: the connection has ended, for whatever reason."""
        self.ended = True

    def fail_changes(self, store: "DurableLog") -> None:
        """Fail the changes that wait for a store that cannot write."""

    def force_close(self, reason: str) -> None:
        """Close the connection for an operator, with a reason."""

    def close_without_answers(self) -> None:
        """Close without the deferred answers: the store that they wait for is gone."""

    def close_for_shutdown(self) -> None:
        """Close an open connection because the broker stops."""

    def accept_login(self, user: Any) -> None:
        """Accept the login."""

    def refuse_login(self) -> None:
        """Refuse the login; the exact reason is only logged."""
