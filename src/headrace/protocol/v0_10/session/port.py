# SPDX-License-Identifier: Apache-2.0
"""A session of AMQP 0-10, as its connection and its own parts see it.

A session outlives connections. Only ``connection`` and ``channel`` refer to one; they are None and
0 while the session is detached.
"""

from typing import Any

INLINE_BODY_MAX = 65536  # The maximum bytes of a body that is passed on in one piece.
SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
DETACHED = 0
ATTACHING = 1  # session.attach was sent.
ATTACHED = 2
DETACHING = 3  # session.detach was sent; commands of the peer are ignored.


class SessionPort:
    """Port of a session, for its connection."""

    def __init__(self, name: bytes) -> None:
        """``name`` has at most 65535 bytes."""
        self.name = name
        self.connection: Any = None  # The SessionConnection that it is attached to.
        self.channel = 0
        self.state = DETACHED
        self.ended = (
            False  # True: it failed or its timeout has passed; it cannot be attached again.
        )
        self.error: Any = None  # An ExecutionError, or the peer's exception, after a failure.
        self.takes_fast_path = False  # True: the next command may take the fast path.
        self.next_in = 0  # The id of the first command that was never received.
        self.cursor = 0  # The id of the next command; below ``next_in`` in a replay.
        self.command_id = 0  # The id of the command that is being handled.
        self.sync = False  # True: its sender requests that completion is reported at once.
        self.has_unreported = False  # True: completions were not reported to the peer.
        self.is_listed = False  # True: it is in the connection's list ``to_announce``.

    def announce_later(self) -> None:
        """Have the connection call :meth:`send_completed` at the end of the turn."""
        if not self.is_listed and self.connection is not None:
            self.is_listed = True
            self.connection.to_announce.append(self)

    def send_completed(self) -> None:
        """Send session.completed and session.known-completed."""

    def assign_number(self, sync: bool) -> None:
        """Assign the next id to a command that was received completely."""
        self.command_id = self.next_in
        self.sync = sync
        self.next_in = (self.next_in + 1) & SERIAL_MASK
        self.cursor = self.next_in

    def complete(self, number: int) -> None:
        """Complete an executed command, whose effects are as durable as it requires."""

    def command_frame(
        self, flags: int, segment_type: int, buffer: bytes | bytearray, start: int, end: int
    ) -> None:
        """Handle a frame of the command track that does not take the fast path."""

    def completed_frame(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Handle session.completed; ``buffer[start:end]`` is its payload, which is checked."""
