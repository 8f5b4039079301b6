# SPDX-License-Identifier: Apache-2.0
"""The multimedia stream class of 0-8 and 0-9; queues of type stream are something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.content.files import choose
from headrace.gateway.content.packets import Pace, PacketDesk, StreamConsumer
from headrace.gateway.conversion.headers import address_of, header_of
from headrace.gateway.v0_x.control_file import (
    cancel_consumer,
    check_consumer,
    client_takes,
    route_of,
)
from headrace.model.message import KIND_STREAM
from headrace.protocol.codec_0_x import (
    MethodBase,
    StreamCancel,
    StreamCancelOk,
    StreamConsume,
    StreamConsumeOk,
    StreamDeliver,
    StreamProperties,
    StreamPublish,
    StreamQos,
    StreamQosOk,
    StreamReturn,
    decode_content_header,
    encode_method,
)
from headrace.protocol.connection_0_x import FRAME_HEADER, FRAME_METHOD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.gateway.v0_x.channel import Channel
    from headrace.model.message import Message
    from headrace.model.queue import Queue
    from headrace.model.served import Consumer


class ChannelPackets(PacketDesk):
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

    def say_deliver(self, consumer: StreamConsumer, tag: int, message: Message) -> None:
        exchange = address_of(message)[0]
        queue = consumer.queue.name
        self.say(
            StreamDeliver(
                consumer_tag=consumer.tag, delivery_tag=tag, exchange=exchange, queue=queue
            ),
            message,
        )

    def say_return(self, code: int, text: str, message: Message) -> None:
        exchange, routing_key = address_of(message)
        self.say(
            StreamReturn(
                reply_code=code, reply_text=text, exchange=exchange, routing_key=routing_key
            ),
            message,
        )

    def ready(self, lane: Queue) -> bool:
        return client_takes(self.connection, self.channel, lane)

    def find_queues(self, exchange: str, routing_key: str, header: bytes) -> Iterable[Queue]:
        return route_of(self.connection, exchange, routing_key, header)

    def priority_of(self, header: bytes) -> int:
        properties = decode_content_header(self.connection.version, header)[2]
        assert isinstance(properties, StreamProperties)
        return properties.priority or 0

    def consumers(self) -> Iterable[Consumer]:
        return (self.channel.consumers or {}).values()

    def consumer_gone(self, consumer: StreamConsumer) -> None:
        if self.channel.consumers is not None:
            self.channel.consumers.pop(consumer.tag, None)


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
    consumer.exclusive = method.exclusive
    consumer.no_local = method.no_local
    choose(consumer, method.arguments)
    channel.consumers[tag] = consumer
    if not method.no_wait:
        connection.reply(channel.number, StreamConsumeOk(consumer_tag=tag))
    lane.add_consumer(consumer)
    lane.drain()


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
