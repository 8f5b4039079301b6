# SPDX-License-Identifier: Apache-2.0
"""The file class on a channel of 0-8 or 0-9."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.gateway.connection.plug_in_state import ensure_state
from headrace.gateway.content_classes.file import FileClass, FileLimits
from headrace.gateway.content_classes.file_message import with_body_size
from headrace.gateway.v0_x.channel.channel import check_branch
from headrace.gateway.v0_x.content_classes.channel_port import ChannelPort
from headrace.protocol.codec_0_x import ChannelFlow, FileStage, MethodBase, encode_method
from headrace.protocol.errors import AmqpError
from headrace.protocol.output import Feed
from headrace.protocol.v0_x.channel import FOR_BODY
from headrace.protocol.v0_x.frames import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, make_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.content_classes.bodies import Reader
    from headrace.gateway.content_classes.file import FileTransfer
    from headrace.gateway.content_classes.file_uploads import StageSink
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.model.ports import Store
    from headrace.model.transaction.transaction import Transaction


class BodyFeed(Feed):
    """Reads a body from the disk as the body frames of one channel."""

    def __init__(
        self,
        channel: Channel,
        reader: Reader,
        position: int,
        on_sent: Callable[[OSError | None], None],
    ) -> None:
        self.channel = channel
        self.reader = reader
        self.at = position
        self.on_sent = on_sent
        self.size = channel.connection.frame_max - 8

    def next_chunk(self) -> tuple[bytes, bool]:
        """Return the next frame."""
        if self.reader.handle < 0:
            return b"", True  # The channel is over.
        data = self.reader.read(self.at, min(self.size, self.reader.size - self.at))
        self.at += len(data)
        return make_frame(FRAME_BODY, self.channel.number, data), self.at >= self.reader.size

    def on_end(self, error: OSError | None) -> None:
        self.on_sent(error)

    def drop(self) -> None:
        self.reader.close()


class ChannelFiles(ChannelPort, FileClass):
    """The file class on one channel of 0-8 or 0-9."""

    takes_channel = True

    def __init__(self, connection: GatewayConnection, channel: Channel) -> None:
        shared = ensure_state(connection, FileLimits, FileLimits)
        FileClass.__init__(self, connection.vhost, connection.user.name, connection.number, shared)
        self.connection = connection
        self.channel = channel
        self.reader: Reader | None = None  # The reader of the body that is being sent.
        self.flowing = True  # The state of channel.flow before the body was sent.

    def send_stage(self, transfer: FileTransfer, staged: int) -> None:
        size = transfer.message.body_size
        header = with_body_size(transfer.header, size - staged)
        self.send_with_body(FileStage(), header, transfer.reader, staged, self.on_stage_sent)

    def send_with_body(
        self,
        method: object,
        header: bytes,
        reader: Reader,
        position: int,
        on_sent: Callable[[OSError | None], None],
    ) -> None:
        """Send a method with content from the disk; nothing else is sent until its end."""
        assert isinstance(method, MethodBase)
        connection, number = self.connection, self.channel.number
        self.pause()
        self.reader = reader
        self.flowing = self.channel.flow
        self.channel.flow = False
        connection.write_frame(FRAME_METHOD, number, encode_method(connection.version, method))
        connection.write_frame(FRAME_HEADER, number, header)

        def on_end(error: OSError | None) -> None:
            self.reader = None
            self.channel.flow = self.flowing
            on_sent(error)

        if position < reader.size:
            connection.feed_from(BodyFeed(self.channel, reader, position, on_end))
        else:
            connection.pool.finished.append(
                (BodyFeed(self.channel, reader, position, on_end), None)
            )

    def send_flow(self, active: bool) -> None:
        self.reply(ChannelFlow(active=active))

    def close_for(self, error: Exception) -> None:
        if self.ended or self.connection.ended:
            return
        connection = self.connection
        if not isinstance(error, AmqpError):
            error = connection.explain(error)
        connection.last = self.channel
        connection.fail(error)

    def pause(self) -> None:
        self.channel.pause(FOR_BODY)

    def resume(self) -> None:
        if self.ended or self.connection.ended:
            return
        connection, channel = self.connection, self.channel
        channel.busy &= ~FOR_BODY
        deferred, channel.deferred_confirms = channel.deferred_confirms, None
        for token in deferred or ():
            connection.send_confirm(channel, token)
        connection.resume(channel, FOR_BODY)
        for consumer in list(self.consumers()):
            if consumer.is_parked:
                consumer.queue.unpark(consumer)

    def suspend(self) -> None:
        """Abandon incomplete transfers; the channel may be resumed over another connection."""
        self.abandon_transfers()
        if self.reader is not None:
            self.reader.close()
            self.channel.flow = self.flowing
        self.channel.deferred_confirms = None

    def move_to(self, connection: GatewayConnection) -> None:
        self.connection = connection
        self.number = connection.number
        self.share(ensure_state(connection, FileLimits, FileLimits))

    def commit(self) -> None:
        FileClass.commit(self)

    def rollback(self) -> None:
        self.drop_transaction()

    def end(self) -> None:
        FileClass.end(self)
        if self.reader is not None:
            self.reader.close()

    def pause_reading(self) -> None:
        transport = self.connection.transport
        if transport is not None and transport not in self.staging.paused:
            self.staging.pause(transport)

    def hold_output(self, store: Store, position: int) -> None:
        self.connection.hold(store, position)

    def transactional(self) -> bool:
        return bool(self.channel.tx)

    def transaction(self) -> Transaction | None:
        return check_branch(self.channel) if self.channel.dtx else None


def channel_files(connection: GatewayConnection, channel: Channel) -> ChannelFiles:
    """Return the files of a channel."""
    return ensure_state(channel, ChannelFiles, partial(ChannelFiles, connection, channel))


def begin_stage(
    connection: GatewayConnection, channel: Channel, header: bytes, body_size: int
) -> StageSink:
    """Return the sink for the body of a file.stage."""
    return channel_files(connection, channel).uploads.begin(header, body_size, connection.version)


def stage(
    connection: GatewayConnection, channel: Channel, method: FileStage, header: bytes, body: bytes
) -> None:
    """Finish the staging: its whole body was received."""
    channel_files(connection, channel).uploads.finish_stage()
