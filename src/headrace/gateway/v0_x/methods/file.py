# SPDX-License-Identifier: Apache-2.0
"""The file class of 0-8 and 0-9: its methods, and what :class:`FileDesk` says in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.content_classes.file_message import with_body_size
from headrace.gateway.content_classes.files import FileConsumer, FileDesk, Limits
from headrace.gateway.v0_x.channel.channel import check_branch
from headrace.gateway.v0_x.methods.file_and_stream import (
    OnChannel,
    add_consumer,
    cancel_consumer,
    check_consumer,
)
from headrace.model.message import KIND_FILE
from headrace.protocol.codec_0_x import (
    ChannelFlow,
    FileAck,
    FileCancel,
    FileCancelOk,
    FileConsume,
    FileConsumeOk,
    FileOpen,
    FileOpenOk,
    FilePublish,
    FileQos,
    FileQosOk,
    FileReject,
    FileStage,
    MethodBase,
    encode_method,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.output import Feed
from headrace.protocol.v0_x.channel import FOR_BODY
from headrace.protocol.v0_x.frames import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, framed

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.content_classes.file_intake import Sink
    from headrace.gateway.content_classes.files import Sending
    from headrace.gateway.v0_x.channel.channel import Channel


class BodyFeed(Feed):
    """A body from the disk as body frames of one channel."""

    def __init__(
        self,
        channel: Channel,
        reader: Any,
        at: int,
        then: Callable[[OSError | None], None],
    ) -> None:
        self.channel = channel
        self.reader = reader
        self.at = at
        self.then = then
        self.size = channel.connection.frame_max - 8

    def piece(self) -> tuple[bytes, bool]:
        """Return the next frame."""
        if self.reader.handle < 0:
            return b"", True  # The channel is over.
        octets = self.reader.read(self.at, min(self.size, self.reader.size - self.at))
        self.at += len(octets)
        return framed(FRAME_BODY, self.channel.number, octets), self.at >= self.reader.size

    def over(self, error: OSError | None) -> None:
        self.then(error)

    def drop(self) -> None:
        self.reader.close()


class ChannelFiles(OnChannel, FileDesk):
    """The files of one channel."""

    takes_channel = True

    def __init__(self, connection: Any, channel: Channel) -> None:
        if connection.file_limits is None:
            connection.file_limits = Limits()
        FileDesk.__init__(
            self,
            connection.vhost,
            connection.user.name,
            connection.number,
            connection.file_limits,
        )
        self.connection = connection
        self.channel = channel
        self.reader: Any = None  # Of the body that is being sent.
        self.flowing = True  # What channel.flow was before a body took the channel.

    def say(self, method: MethodBase) -> None:
        """Send a method."""
        if not self.ended and not self.connection.ended:
            self.connection.reply(self.channel.number, method)

    def say_stage(self, sending: Sending, staged: int) -> None:
        size = sending.message.body_size
        header = with_body_size(sending.header, size - staged)
        self.say_body(FileStage(), header, sending.reader, staged, self.sent)

    def say_body(
        self,
        method: MethodBase,
        header: bytes,
        reader: Any,
        at: int,
        then: Callable[[OSError | None], None],
    ) -> None:
        """Send a method with content from the disk; until its end the channel says nothing else."""
        connection, number = self.connection, self.channel.number
        self.pause()
        self.reader = reader
        self.flowing = self.channel.flow
        self.channel.flow = False
        connection.write_frame(FRAME_METHOD, number, encode_method(connection.version, method))
        connection.write_frame(FRAME_HEADER, number, header)

        def over(error: OSError | None) -> None:
            self.reader = None
            self.channel.flow = self.flowing
            then(error)

        if at < reader.size:
            connection.feed_from(BodyFeed(self.channel, reader, at, over))
        else:
            connection.pool.finished.append((BodyFeed(self.channel, reader, at, over), None))

    def say_flow(self, active: bool) -> None:
        self.say(ChannelFlow(active=active))

    def say_error(self, error: Exception) -> None:
        if self.ended or self.connection.ended:
            return
        connection = self.connection
        if not isinstance(error, AmqpError):
            error = connection.explain(error)
        connection.last = self.channel
        connection.fail(error)

    def pause(self) -> None:
        self.channel.pause(FOR_BODY)

    def go_on(self) -> None:
        if self.ended or self.connection.ended:
            return
        connection, channel = self.connection, self.channel
        channel.busy &= ~FOR_BODY
        owed, channel.owed = channel.owed, None
        for token in owed or ():
            connection.answer(channel, token)
        connection.resume(channel, FOR_BODY)
        for consumer in list(self.consumers()):
            if consumer.parked:
                consumer.queue.unpark(consumer)

    def suspend(self) -> None:
        """The connection is lost, and the channel may be resumed over another one."""
        self.stop_halfway()
        if self.reader is not None:
            self.reader.close()
            self.channel.flow = self.flowing
        self.channel.owed = None

    def move_to(self, connection: Any) -> None:
        """The channel is resumed over another connection."""
        self.connection = connection
        self.number = connection.number
        if connection.file_limits is None:
            connection.file_limits = Limits()
        self.share(connection.file_limits)

    def end(self) -> None:
        FileDesk.end(self)
        if self.reader is not None:
            self.reader.close()

    def hold_back(self) -> None:
        transport = self.connection.transport
        if transport is not None and transport not in self.staging.held:
            self.staging.hold_back(transport)

    def hold_output(self, store: Any, position: int) -> None:
        self.connection.hold(store, position)

    def transactional(self) -> bool:
        return bool(self.channel.tx)

    def transaction(self) -> Any:
        return check_branch(self.channel) if self.channel.dtx else None


def desk_of(connection: Any, channel: Any) -> ChannelFiles:
    """Return what keeps a channel's files."""
    if channel.files is None:
        channel.files = ChannelFiles(connection, channel)
    desk: ChannelFiles = channel.files
    return desk


def qos(connection: Any, channel: Channel, method: FileQos) -> MethodBase:
    """Limit the files that may be on their way or unsettled, on the channel or everywhere."""
    desk = desk_of(connection, channel)
    desk.qos(method.prefetch_size, method.prefetch_count, method.global_)
    return FileQosOk()


def consume(connection: Any, channel: Any, method: FileConsume) -> None:
    """Start a consumer of files."""
    lane, tag = check_consumer(connection, channel, method, KIND_FILE)
    consumer = FileConsumer(desk_of(connection, channel), lane, tag, method.no_ack)
    add_consumer(connection, channel, consumer, method, FileConsumeOk(consumer_tag=tag))


def cancel(connection: Any, channel: Any, method: FileCancel) -> MethodBase | None:
    """End a consumer; what it holds stays unsettled on the channel."""
    cancel_consumer(connection, channel, method.consumer_tag, FileConsumer)
    return None if method.no_wait else FileCancelOk(consumer_tag=method.consumer_tag)


def open_file(connection: Any, channel: Any, method: FileOpen) -> None:
    """The client wants to stage a file."""
    connection.publishes = True
    desk_of(connection, channel).intake.open(method.identifier, method.content_size)


def open_ok(connection: Any, channel: Any, method: FileOpenOk) -> None:
    """The client is ready for a file of ours."""
    desk_of(connection, channel).open_ok(method.staged_size)


def begin_stage(connection: Any, channel: Any, header: bytes, body_size: int) -> Sink:
    """The header of a file.stage came; what is returned takes the body."""
    return desk_of(connection, channel).intake.begin(header, body_size, connection.version)


def stage(connection: Any, channel: Any, method: FileStage, header: bytes, body: bytes) -> None:
    """All of a body came."""
    desk_of(connection, channel).intake.staged()


def publish(connection: Any, channel: Any, method: FilePublish) -> None:
    """The client publishes what it staged."""
    connection.publishes = True
    desk_of(connection, channel).intake.publish(
        method.exchange,
        method.routing_key,
        method.mandatory,
        method.immediate,
        method.identifier,
    )


def ack(connection: Any, channel: Any, method: FileAck) -> None:
    """The client accepts files."""
    desk_of(connection, channel).ack(method.delivery_tag, method.multiple)


def reject(connection: Any, channel: Any, method: FileReject) -> None:
    """The client cannot take a file."""
    desk_of(connection, channel).reject(method.delivery_tag, method.requeue)


def end_channel(channel: Any) -> None:
    """The channel is over."""
    if channel.files is not None:
        channel.files.end()


HANDLERS: dict[str, Any] = {
    "file.qos": qos,
    "file.consume": consume,
    "file.cancel": cancel,
    "file.open": open_file,
    "file.open-ok": open_ok,
    "file.publish": publish,
    "file.ack": ack,
    "file.reject": reject,
}
CONTENT_HANDLERS: dict[str, Any] = {"file.stage": stage}
