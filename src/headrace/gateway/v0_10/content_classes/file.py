# SPDX-License-Identifier: Apache-2.0
"""The file class on a session of 0-10."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.gateway.connection.plug_in_state import ensure_state
from headrace.gateway.content_classes.file import FileClass, FileConsumer, FileLimits
from headrace.gateway.conversion.headers import header_payload
from headrace.gateway.v0_10.content_classes.session_port import SessionPort, error_0_10
from headrace.gateway.v0_10.content_headers import FILE, to_0_10, to_0_x
from headrace.model.errors import ModelError
from headrace.protocol.codec_0_10 import Command, FilePublish, FileStage, encode_command
from headrace.protocol.errors import AmqpError
from headrace.protocol.output import Feed
from headrace.protocol.v0_10.assembly import FRAME_HEAD
from headrace.spec.tables import V0_9

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.content_classes.bodies import Reader
    from headrace.gateway.content_classes.file import FileTransfer
    from headrace.gateway.content_classes.file_uploads import StageSink
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.model.message import Message
    from headrace.model.ports import Store
    from headrace.model.transaction.transaction import Transaction


class BodyFeed(Feed):
    """Reads a body from the disk as the body segment of a command."""

    def __init__(
        self,
        session: Session010,
        reader: Reader,
        position: int,
        on_sent: Callable[[OSError | None], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.channel = session.channel
        self.size = session.connection.max_frame_size - FRAME_HEAD
        self.reader = reader
        self.at = position
        self.on_sent = on_sent
        self.on_lost = on_lost
        self.flags = 2  # The first frame of the last segment.

    def next_chunk(self) -> tuple[bytes, bool]:
        """Return the next frame."""
        if self.reader.handle < 0:
            raise OSError("the file is no longer needed")
        data = self.reader.read(self.at, min(self.size, self.reader.size - self.at))
        self.at += len(data)
        last = self.at >= self.reader.size
        flags = 4 | self.flags | (1 if last else 0)
        self.flags = 0
        size = (FRAME_HEAD + len(data)).to_bytes(2, "big")
        channel = self.channel.to_bytes(2, "big")
        return bytes((flags, 3)) + size + b"\0\1" + channel + b"\0\0\0\0" + data, last

    def on_end(self, error: OSError | None) -> None:
        self.on_sent(error)

    def drop(self) -> None:
        self.on_lost()


class SessionFiles(SessionPort, FileClass):
    """The file class on one session of 0-10."""

    def __init__(self, session: Session010) -> None:
        shared = session.context.shared_state(session.number, FileLimits)
        FileClass.__init__(self, session.vhost, session.user.name, session.number, shared)
        self.session = session
        session.on_end.append(self.end)
        self.deferred: list[int] = []  # Publishes that complete when there is room again.

    def send_open_ok(self, staged: int) -> None:
        FileClass.send_open_ok(self, staged)
        self.announce()

    def announce(self) -> None:
        """Announce completions outside of a read of the socket."""
        connection = self.session.connection
        if connection is not None:
            connection.announce_later()

    def send_stage(self, transfer: FileTransfer, staged: int) -> None:
        self.send_with_body(
            FileStage(), transfer.header, transfer.reader, staged, self.on_stage_sent
        )

    def header_for(self, message: Message) -> bytes:
        return to_0_10(header_payload(message), FILE)

    def send_with_body(
        self,
        method: object,
        segment: bytes,
        reader: Reader,
        position: int,
        on_sent: Callable[[OSError | None], None],
    ) -> None:
        """Send a command with a body from the disk; it is not kept for replay."""
        assert isinstance(method, Command)
        session = self.session
        connection = session.connection
        if position >= reader.size or connection is None or session.sent.is_resuming:
            if connection is None or session.sent.is_resuming:
                self.on_lost()
                return
            session.send_command(method, header=segment)
            on_sent(None)
            return
        session.sent.next_id = (session.sent.next_id + 1) & 0xFFFFFFFF
        connection.write_segment(1, False, session.channel, encode_command(method))
        connection.write_segment(2, False, session.channel, segment)
        connection.feed_in_order(BodyFeed(session, reader, position, on_sent, self.on_lost))

    def on_lost(self) -> None:
        """Abandon incomplete transfers: the connection was lost during a body."""
        if not self.ended:
            self.abandon_transfers()

    # Keeps 0-10/s204.
    def send_flow(self, active: bool) -> None:
        """Complete publishes when there is room again: 0-10 has no command for it."""
        if active:
            deferred, self.deferred = self.deferred, []
            for number in deferred:
                self.complete(number)

    def complete(self, number: int) -> None:
        """Complete a publish once the journal has it."""
        session = self.session
        if self.ended or session.is_released:
            return
        current, session.command_id = session.command_id, number
        session.complete_when_durable()
        session.command_id = current
        self.announce()

    def close_for(self, error: Exception) -> None:
        session = self.session
        if self.ended or session.is_released:
            return
        if session.connection is None:
            session.ended = True
            session.end()
            return
        session.fail(error_0_10(error))

    def pause(self) -> None:
        """Do nothing: commands complete in any order."""

    def resume(self) -> None:
        self.announce()

    def pause_reading(self) -> None:
        connection = self.session.connection
        transport = None if connection is None else connection.transport
        if transport is not None and transport not in self.staging.paused:
            self.staging.pause(transport)

    def hold_output(self, store: Store, position: int) -> None:
        connection = self.session.connection
        if connection is not None:
            connection.hold(store, position)

    # Keeps 0-10/s204.
    def completion(self) -> Callable[[], None]:
        number = self.session.command_id

        def done() -> None:
            if self.uploads.stop_reasons:
                self.deferred.append(number)
            else:
                self.complete(number)

        return done

    def commit(self) -> None:
        self.tx_settled.clear()

    def rollback(self) -> None:
        self.undo_settles()

    def transaction(self) -> Transaction | None:
        return self.session.transaction

    def end(self) -> None:
        FileClass.end(self)
        self.end_consumers(FileConsumer)


def session_files(session: Session010) -> SessionFiles:
    """Return the files of a session."""
    return ensure_state(session, SessionFiles, partial(SessionFiles, session))


def begin_stage(session: Session010, header: bytes) -> StageSink:
    """Return the sink for the body of a file.stage."""
    try:
        return session_files(session).uploads.begin(to_0_x(header, FILE, 0), -1, V0_9)
    except (AmqpError, ModelError) as error:
        raise error_0_10(error) from error


def stage(session: Session010, command: FileStage, header: bytes, parts: object) -> None:
    """Finish the staging; an empty body has no body segment."""
    uploads = session_files(session).uploads
    if not uploads.filling:
        begin_stage(session, header)
    uploads.finish_stage()


def publish(session: Session010, command: FilePublish, header: bytes, parts: object) -> bool:
    """Publish a staged file; the command completes once it is durable and there is room."""
    session_files(session).on_publish(command)
    return False
