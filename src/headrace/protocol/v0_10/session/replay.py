# SPDX-License-Identifier: Apache-2.0
"""The replay of kept commands after a session of AMQP 0-10 was attached again.

The peer names the commands that it expects. They are sent again, each from its first missing byte.
For commands that were not kept, a gap is sent. Commands that the peer has completed are not sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.protocol.errors_0_10 import unknown_ids
from headrace.wire.ranges import SequenceSet

if TYPE_CHECKING:
    from headrace.protocol.codec_0_10 import SessionExpected
    from headrace.protocol.v0_10.session.received import ReceivedCommands
    from headrace.protocol.v0_10.session.sent import SentCommands

SERIAL_MASK = 0xFFFFFFFF


class AttachedSession(Protocol):
    """The members of a session that was attached again."""

    sent: SentCommands
    received: ReceivedCommands
    connection: Any
    channel: int
    has_unreported: bool

    def announce_later(self) -> None:
        """Have :meth:`.port.SessionPort.send_completed` called at the end of the turn."""


def resume(session: AttachedSession, control: SessionExpected) -> None:
    """Handle session.expected: if the session is being resumed, replay the expected commands.

    Raises:
        DetachError: the control names commands that were never sent.
    """
    commands = control.commands or SequenceSet()
    next_id = session.sent.completed.unwrap(session.sent.next_id)
    fragments: dict[int, Any] = {}
    for fragment in control.fragments or ():
        number = session.sent.completed.unwrap(fragment.command_id or 0)
        if number >= next_id:
            raise unknown_ids("expected names a fragment of a command that was never sent")
        fragments[number] = fragment.byte_ranges or ()
    for first_id, last_id in commands:
        low = session.sent.completed.unwrap(first_id)
        if low + ((last_id - first_id) & SERIAL_MASK) > next_id:
            raise unknown_ids("expected names commands that were never sent")
    if not session.sent.is_resuming:
        session.connection.on_session_control(session, control)
        return
    session.sent.is_resuming = False
    # Keeps 0-10/s041.
    if not commands and not fragments:
        session.sent.send_command_point(session.sent.next_id, 0)
        lost = session.sent.completed.missing(session.sent.completed.low, next_id - 1)
        session.sent.drop_all()
        session.sent.completed.add(session.sent.completed.low, next_id - 1)
        if not session.connection.is_server:
            session.received.restart()
        session.connection.on_resumed(session, False)
        for first_id, last_id in lost:
            session.connection.on_commands_lost(
                session, first_id & SERIAL_MASK, last_id & SERIAL_MASK
            )
        return
    replay(session, commands, fragments, next_id)
    if session.has_unreported:
        session.announce_later()
    session.connection.on_resumed(session, True)


# Keeps 0-10/s066.
def replay(
    session: AttachedSession, commands: SequenceSet, fragments: dict[int, Any], next_id: int
) -> None:
    """Send the commands that the peer expects and has not completed, or gaps for missing ones."""
    position = -1  # The unwrapped id of the next command, as the peer counts.
    highest = max(
        [session.sent.completed.unwrap(last_id) for _, last_id in commands] + list(fragments),
        default=next_id,
    )
    missing = []
    for first_id, last_id in commands:
        low = session.sent.completed.unwrap(first_id)
        missing += session.sent.completed.missing(low, low + ((last_id - first_id) & SERIAL_MASK))
    missing += session.sent.completed.missing(highest + 1, next_id - 1)
    missing += [(number, number) for number in fragments]
    for low, high in sorted(missing):
        number = low
        while number <= min(high, next_id - 1):
            item = session.sent.kept.get(number)
            if item is None:
                end = number
                while end < min(high, next_id - 1) and end + 1 not in session.sent.kept:
                    end += 1
                send_gap_for_lost(session, number, end)
                number = end + 1
                continue
            if number in fragments:
                for first, last in fragments[number]:
                    session.sent.send_command_point(number & SERIAL_MASK, first)
                    write_bytes(session, item, first, last + 1)
                position = -1
            else:
                if position != number:
                    session.sent.send_command_point(number & SERIAL_MASK, 0)
                session.sent.write(*item)
                position = number + 1
            number += 1
    if position != next_id:
        session.sent.send_command_point(session.sent.next_id, 0)


def send_gap_for_lost(session: AttachedSession, low: int, high: int) -> None:
    """Send a gap for commands that were not kept; the peer treats them as complete."""
    session.sent.send_gap(low & SERIAL_MASK, high & SERIAL_MASK)
    session.connection.on_commands_lost(session, low & SERIAL_MASK, high & SERIAL_MASK)


def write_bytes(
    session: AttachedSession, item: tuple[bytes, bytes, tuple[bytes, ...]], first: int, end: int
) -> None:
    """Write the frames of the bytes from ``first`` to ``end`` of a command's segments."""
    payload, header, parts = item
    segments = [(1, payload)]
    if header:
        segments.append((2, header))
    if parts:
        segments.append((3, b"".join(parts)))
    final = 3 if parts else 2 if header else 1
    position = 0
    for segment_type, data in segments:
        start = max(first - position, 0)
        chunk_end = min(end - position, len(data))
        if start < chunk_end:
            session.connection.write_part(
                segment_type, segment_type == final, session.channel, data, start, chunk_end
            )
        position += len(data)
