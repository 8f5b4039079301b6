# SPDX-License-Identifier: Apache-2.0
"""A session of AMQP 0-10, as its connection and its own parts see it.

Nothing of a session refers to a connection but ``connection`` and ``channel``, which are None and 0
while it is detached: it outlives connections.
"""

from typing import Any

INLINE_BODY_MAX = 65536  # Bytes; larger bodies are passed on in parts.
SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
DETACHED = 0
ATTACHING = 1  # We asked for it.
ATTACHED = 2
DETACHING = 3  # We asked for the end, or failed: what comes is ignored.


class SessionPort:
    """Port of a session, for its connection."""

    def __init__(self, name: bytes) -> None:
        """``name`` has at most 65535 bytes."""
        self.name = name
        self.connection: Any = None  # The SessionConnection that it is attached to.
        self.channel = 0
        self.state = DETACHED
        self.ended = False  # It failed, or its timeout ran out. It cannot be attached again.
        self.error: Any = None  # Why it failed: an ExecutionError, or the peer's exception.
        self.fast_path = False  # The next command may take the fast path.
        self.next_in = 0  # The id of the first command that did not come yet.
        self.cursor = 0  # The id of the command that comes next; before next_in in a replay.
        self.command_id = 0  # The id of the command that is being handled.
        self.sync = False  # Its sender asks for completion to be reported at once.
        self.has_unreported = False  # Something became complete that was not reported to the peer.
        self.is_listed = False  # It is in the connection's list ``to_announce``.

    def announce_later(self) -> None:
        """Have the connection call :meth:`send_completed` at the end of the turn."""
        if not self.is_listed and self.connection is not None:
            self.is_listed = True
            self.connection.to_announce.append(self)

    def send_completed(self) -> None:
        """Send session.completed and session.known-completed."""

    def take_number(self, sync: bool) -> None:
        """Number the command that has arrived in full."""
        self.command_id = self.next_in
        self.sync = sync
        self.next_in = (self.next_in + 1) & SERIAL_MASK
        self.cursor = self.next_in

    def complete(self, number: int) -> None:
        """The command with this id is executed, its effects are as durable as it asked for."""

    def command_frame(
        self, flags: int, kind: int, buffer: bytes | bytearray, start: int, end: int
    ) -> None:
        """Handle a frame of the command track that does not take the fast path."""

    def completed_frame(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Handle session.completed; ``buffer[start:end]`` is its payload, which is checked."""
