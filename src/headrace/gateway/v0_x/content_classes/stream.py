# SPDX-License-Identifier: Apache-2.0
"""The stream class (multimedia packets) on a channel of 0-8 or 0-9; not queues of type stream.

Its methods, and the rate of a consumer, are in :mod:`headrace.gateway.content_classes.stream`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.gateway.connection.plug_in_state import ensure_state
from headrace.gateway.content_classes.stream import PacketClass, PacketRate
from headrace.gateway.conversion.headers import header_payload
from headrace.gateway.v0_x.content_classes.channel_port import ChannelPort
from headrace.protocol.codec_0_x import MethodBase, StreamPublish, encode_method
from headrace.protocol.v0_x.frames import FRAME_HEADER, FRAME_METHOD

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.model.message import Message


class ChannelPackets(ChannelPort, PacketClass):
    """The stream class on one channel of 0-8 or 0-9."""

    def __init__(self, connection: GatewayConnection, channel: Channel) -> None:
        shared = ensure_state(connection, PacketRate, PacketRate)
        PacketClass.__init__(self, connection.vhost, connection.number, shared)
        self.connection = connection
        self.channel = channel

    def move_to(self, connection: GatewayConnection) -> None:
        self.connection = connection
        self.number = connection.number
        self.shared = ensure_state(connection, PacketRate, PacketRate)

    def end(self) -> None:
        PacketClass.end(self)

    def send_packet(self, method: MethodBase, message: Message) -> None:
        connection, number = self.connection, self.channel.number
        connection.write_frame(FRAME_METHOD, number, encode_method(connection.version, method))
        connection.write_frame(FRAME_HEADER, number, header_payload(message))
        connection.write_parts(number, message.parts, connection.frame_max)


def channel_packets(connection: GatewayConnection, channel: Channel) -> ChannelPackets:
    """Return the stream class of a channel, made on first use."""
    return ensure_state(channel, ChannelPackets, partial(ChannelPackets, connection, channel))


def publish(
    connection: GatewayConnection,
    channel: Channel,
    method: StreamPublish,
    header: bytes,
    body: bytes,
) -> None:
    """Publish a packet."""
    channel_packets(connection, channel).on_publish(method, header, body)
