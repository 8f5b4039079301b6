# SPDX-License-Identifier: Apache-2.0
"""The multimedia stream class of 0-8 and 0-9; queues of type stream are something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.content_classes.packets import Pace, PacketDesk, StreamConsumer
from headrace.gateway.conversion.headers import header_of
from headrace.gateway.v0_x.methods.file_and_stream import (
    OnChannel,
    add_consumer,
    cancel_consumer,
    check_consumer,
)
from headrace.model.message import KIND_STREAM
from headrace.protocol.codec_0_x import (
    MethodBase,
    StreamCancel,
    StreamCancelOk,
    StreamConsume,
    StreamConsumeOk,
    StreamPublish,
    StreamQos,
    StreamQosOk,
    encode_method,
)
from headrace.protocol.v0_x.frames import FRAME_HEADER, FRAME_METHOD

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.model.message import Message


class ChannelPackets(OnChannel, PacketDesk):
    """The packets of one channel."""

    def __init__(self, connection: Any, channel: Channel) -> None:
        if connection.stream_limits is None:
            connection.stream_limits = Pace()
        PacketDesk.__init__(self, connection.vhost, connection.number, connection.stream_limits)
        self.connection = connection
        self.channel = channel

    def move_to(self, connection: Any) -> None:
        """The channel is resumed over another connection."""
        self.connection = connection
        self.number = connection.number
        if connection.stream_limits is None:
            connection.stream_limits = Pace()
        self.shared = connection.stream_limits

    def say(self, method: MethodBase, message: Message) -> None:
        """Send a method with a packet."""
        connection, number = self.connection, self.channel.number
        connection.write_frame(FRAME_METHOD, number, encode_method(connection.version, method))
        connection.write_frame(FRAME_HEADER, number, header_of(message))
        connection.write_parts(number, message.parts, connection.frame_max)


def desk_of(connection: Any, channel: Any) -> ChannelPackets:
    """Return what keeps a channel's packets."""
    if channel.packets is None:
        channel.packets = ChannelPackets(connection, channel)
    desk: ChannelPackets = channel.packets
    return desk


def qos(connection: Any, channel: Channel, method: StreamQos) -> MethodBase:
    """Set how fast packets come; there is nothing to prefetch where nothing is acknowledged."""
    desk_of(connection, channel).qos(method.consume_rate, method.global_)
    return StreamQosOk()


def consume(connection: Any, channel: Any, method: StreamConsume) -> None:
    """Start a consumer of packets."""
    lane, tag = check_consumer(connection, channel, method, KIND_STREAM)
    consumer = StreamConsumer(desk_of(connection, channel), lane, tag)
    add_consumer(connection, channel, consumer, method, StreamConsumeOk(consumer_tag=tag))


def cancel(connection: Any, channel: Any, method: StreamCancel) -> MethodBase | None:
    """End a consumer."""
    cancel_consumer(connection, channel, method.consumer_tag, StreamConsumer)
    return None if method.no_wait else StreamCancelOk(consumer_tag=method.consumer_tag)


def publish(
    connection: Any, channel: Any, method: StreamPublish, header: bytes, body: bytes
) -> None:
    """The client publishes a packet."""
    connection.publishes = True
    desk_of(connection, channel).publish(
        method.exchange, method.routing_key, method.mandatory, method.immediate, header, body
    )


def end_channel(channel: Any) -> None:
    """The channel is over."""
    if channel.packets is not None:
        channel.packets.end()


HANDLERS: dict[str, Any] = {
    "stream.qos": qos,
    "stream.consume": consume,
    "stream.cancel": cancel,
}
CONTENT_HANDLERS: dict[str, Any] = {"stream.publish": publish}
