# SPDX-License-Identifier: Apache-2.0
"""The file class of 0-10: its commands, and what :class:`FileDesk` says in them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.gateway.content_classes.files import FileConsumer, FileDesk, Limits
from headrace.gateway.conversion.headers import header_of
from headrace.gateway.v0_10.commands.file_and_stream import (
    OnSession,
    add_consumer,
    check_consumer,
    end_consumer,
    end_consumers,
    telling,
    told,
)
from headrace.gateway.v0_10.content_headers import FILE, to_0_10, to_0_x
from headrace.model.errors import ModelError
from headrace.model.message import KIND_FILE
from headrace.protocol.codec_0_10 import (
    FileAck,
    FileCancel,
    FileConsume,
    FileConsumeOk,
    FileOpen,
    FileOpenOk,
    FilePublish,
    FileQos,
    FileQosOk,
    FileReject,
    FileStage,
    encode_command,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.output import Feed
from headrace.spec.tables import V0_9

if TYPE_CHECKING:
    from headrace.gateway.content_classes.file_intake import Sink
    from headrace.gateway.content_classes.files import Sending
    from headrace.model.message import Message
    from headrace.protocol.codec_0_10 import Command

log = logging.getLogger(__name__)

FRAME_HEAD = 12


class BodyFeed(Feed):
    """A body from the disk as the body segment of a command."""

    def __init__(self, session: Any, reader: Any, at: int, then: Any, lost: Any) -> None:
        self.channel = session.channel
        self.size = session.connection.max_frame_size - FRAME_HEAD
        self.reader = reader
        self.at = at
        self.then = then
        self.lost = lost
        self.flags = 2  # The first frame of the last segment.

    def piece(self) -> tuple[bytes, bool]:
        """Return the next frame."""
        if self.reader.handle < 0:
            raise OSError("the file is not wanted any more")
        octets = self.reader.read(self.at, min(self.size, self.reader.size - self.at))
        self.at += len(octets)
        last = self.at >= self.reader.size
        flags = 4 | self.flags | (1 if last else 0)
        self.flags = 0
        size = (FRAME_HEAD + len(octets)).to_bytes(2, "big")
        channel = self.channel.to_bytes(2, "big")
        return bytes((flags, 3)) + size + b"\0\1" + channel + b"\0\0\0\0" + octets, last

    def over(self, error: OSError | None) -> None:
        self.then(error)

    def drop(self) -> None:
        self.lost()


class SessionFiles(OnSession, FileDesk):
    """The files of one session."""

    def __init__(self, session: Any) -> None:
        shared = session.context.file_limits.setdefault(session.number, Limits())
        FileDesk.__init__(self, session.vhost, session.user.name, session.number, shared)
        self.session = session
        self.withheld: list[int] = []  # Publishes that complete when there is room again.

    def say(self, command: Command) -> None:
        """Send a command."""
        if not self.ended:
            self.session.send_command(command)

    def say_open_ok(self, staged: int) -> None:
        FileDesk.say_open_ok(self, staged)
        self.tell()

    def tell(self) -> None:
        """Let completions go out that no read of the socket brings about."""
        connection = self.session.connection
        if connection is not None:
            connection.announce_later()

    def say_stage(self, sending: Sending, staged: int) -> None:
        self.say_body(FileStage(), sending.header, sending.reader, staged, self.sent)

    def header_for(self, message: Message) -> bytes:
        return to_0_10(header_of(message), FILE)

    def say_body(
        self,
        command: Command,
        segment: bytes,
        reader: Any,
        at: int,
        then: Callable[[OSError | None], None],
    ) -> None:
        """Send a command with a body from the disk; it is not kept for replay."""
        session = self.session
        connection = session.connection
        if at >= reader.size or connection is None or session.sent.resuming:
            if connection is None or session.sent.resuming:
                self.lost()
                return
            session.send_command(command, header=segment)
            then(None)
            return
        session.sent.next_id = (session.sent.next_id + 1) & 0xFFFFFFFF
        connection.write_segment(1, False, session.channel, encode_command(command))
        connection.write_segment(2, False, session.channel, segment)
        connection.feed_in_order(BodyFeed(session, reader, at, then, self.lost))

    def lost(self) -> None:
        """The connection went in the middle of a body."""
        if not self.ended:
            self.stop_halfway()

    def say_flow(self, active: bool) -> None:
        """There is no such command in 0-10: publishes complete when there is room again."""
        if active:
            withheld, self.withheld = self.withheld, []
            for number in withheld:
                self.complete(number)

    def complete(self, number: int) -> None:
        """A publish is complete once the journal has it."""
        session = self.session
        if self.ended or session.over:
            return
        current, session.command_id = session.command_id, number
        session.later()
        session.command_id = current
        self.tell()

    def say_error(self, error: Exception) -> None:
        session = self.session
        if self.ended or session.over:
            return
        if session.connection is None:
            session.ended = True
            session.end()
            return
        session.fail(told(error))

    def pause(self) -> None:
        """What comes meanwhile need not wait: commands complete in any order."""

    def go_on(self) -> None:
        self.tell()

    def hold_back(self) -> None:
        connection = self.session.connection
        transport = None if connection is None else connection.transport
        if transport is not None and transport not in self.staging.held:
            self.staging.hold_back(transport)

    def hold_output(self, store: Any, position: int) -> None:
        connection = self.session.connection
        if connection is not None:
            connection.hold(store, position)

    def transaction(self) -> Any:
        return self.session.transaction

    def end(self) -> None:
        FileDesk.end(self)
        end_consumers(self.session, FileConsumer)


def desk_of(session: Any) -> SessionFiles:
    """Return what keeps a session's files."""
    if session.files is None:
        desk = SessionFiles(session)
        session.files = desk
        session.on_end.append(desk.end)
    found: SessionFiles = session.files
    return found


def qos(session: Any, command: FileQos, header: bytes, parts: object) -> None:
    """Limit the files that may be on their way or unsettled."""
    desk = desk_of(session)
    desk.qos(command.prefetch_size or 0, command.prefetch_count or 0, command.global_)
    session.send_command(FileQosOk())


def consume(session: Any, command: FileConsume, header: bytes, parts: object) -> None:
    """Start a consumer of files."""
    lane, tag = check_consumer(session, command, KIND_FILE)
    consumer = FileConsumer(desk_of(session), lane, tag, command.no_ack)
    add_consumer(session, consumer, command, FileConsumeOk(consumer_tag=tag))


def cancel(session: Any, command: FileCancel, header: bytes, parts: object) -> None:
    """End a consumer; what it holds stays unsettled on the session."""
    consumer = (session.consumers or {}).get(command.consumer_tag or "")
    if isinstance(consumer, FileConsumer):
        end_consumer(session, consumer)


def open_file(session: Any, command: FileOpen, header: bytes, parts: object) -> None:
    """The client wants to stage a file."""
    session.connection.publishes = True
    desk_of(session).intake.open(command.identifier or "", command.content_size or 0)


def open_ok(session: Any, command: FileOpenOk, header: bytes, parts: object) -> None:
    """The client is ready for a file of ours."""
    desk_of(session).open_ok(command.staged_size or 0)


def begin_stage(session: Any, header: bytes) -> Sink:
    """The body of a file.stage follows; what is returned takes it."""
    try:
        return desk_of(session).intake.begin(to_0_x(header, FILE, 0), -1, V0_9)
    except (AmqpError, ModelError) as error:
        raise told(error) from error


def stage(session: Any, command: FileStage, header: bytes, parts: object) -> None:
    """All of a body came; one without octets comes without a body segment."""
    desk = desk_of(session)
    if not desk.intake.filling:
        begin_stage(session, header)
    desk.intake.staged()


def publish(session: Any, command: FilePublish, header: bytes, parts: object) -> bool:
    """The client publishes what it staged; complete once it is durable and there is room."""
    session.connection.publishes = True
    desk, number = desk_of(session), session.command_id

    def done() -> None:
        if desk.intake.stops:
            desk.withheld.append(number)
        else:
            desk.complete(number)

    desk.intake.publish(
        command.exchange or "",
        command.routing_key or "",
        command.mandatory,
        command.immediate,
        command.identifier or "",
        done,
    )
    return False


def ack(session: Any, command: FileAck, header: bytes, parts: object) -> None:
    """The client accepts files."""
    desk_of(session).ack(command.delivery_tag or 0, command.multiple)


def reject(session: Any, command: FileReject, header: bytes, parts: object) -> None:
    """The client cannot take a file."""
    desk_of(session).reject(command.delivery_tag or 0, command.requeue)


HANDLERS: dict[str, Any] = {
    "file.qos": telling(qos),
    "file.consume": telling(consume),
    "file.cancel": telling(cancel),
    "file.open": telling(open_file),
    "file.open-ok": telling(open_ok),
    "file.stage": telling(stage),
    "file.publish": telling(publish),
    "file.ack": telling(ack),
    "file.reject": telling(reject),
}
