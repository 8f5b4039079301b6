# SPDX-License-Identifier: Apache-2.0
"""The channel class of 0-8 to 0-9-1: opening and closing, flow, pings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.protocol.codec_0_x import (
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOk,
    ChannelOpen,
    ChannelOpenOk,
    ChannelPing,
    ChannelPong,
    MethodBase,
)

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import Handler


def open_channel(
    connection: GatewayConnection, channel: Channel, method: ChannelOpen
) -> MethodBase:
    """Open the channel; ``Connection.channel_method`` has checked that its number is free."""
    connection.context.quotas.check_channel(connection, 0)
    connection.context.connection_events.report_channel_opened(connection, channel.number)
    return ChannelOpenOk()


def ping(connection: GatewayConnection, channel: Channel, method: ChannelPing) -> None:
    """Answer a ping with ok and a pong, which the client answers."""
    connection.reply(channel.number, ChannelOk())
    connection.reply(channel.number, ChannelPong())


def pong(connection: GatewayConnection, channel: Channel, method: ChannelPong) -> MethodBase:
    """Confirm a pong of the client."""
    return ChannelOk()


def ok(connection: GatewayConnection, channel: Channel, method: ChannelOk) -> None:
    """Do nothing: the client confirms a pong of the broker."""


def close(connection: GatewayConnection, channel: Channel, method: MethodBase) -> None:
    """Do nothing: ``Connection.channel_method`` has answered the client's close.

    :func:`headrace.gateway.v0_x.channel.ending.end_channel` requeues unsettled messages.
    """


def close_ok(connection: GatewayConnection, channel: Channel, method: ChannelCloseOk) -> None:
    """Do nothing: the client confirms that the broker closed the channel."""


# Keeps 0-9-1/channel.flow#01, 0-9-1/channel.flow#02, 0-9-1/channel.flow#03,
# 0-9/channel.flow#initial-state, 0-9/channel.flow#bidirectional, 0-9/channel.flow#throttling.
def flow(connection: GatewayConnection, channel: Channel, method: ChannelFlow) -> None:
    """Stop or resume deliveries on the channel; ``has_room`` of the consumers reads the flag.

    The broker sends the method for files only: it slows other publishers by reading less.

    While the body of a file is sent on the channel, the method waits for the end of the body
    (``send_with_body`` in ``content_classes.file``).
    """
    channel.flow = method.active
    connection.reply(channel.number, ChannelFlowOk(active=method.active))
    if method.active and channel.consumers:
        for consumer in list(channel.consumers.values()):
            consumer.queue.unpark(consumer)


def flow_ok(connection: GatewayConnection, channel: Channel, method: ChannelFlowOk) -> None:
    """Do nothing: the client answers a channel.flow of the broker."""


HANDLERS: dict[str, Handler] = {
    "channel.open": open_channel,
    "channel.ping": ping,
    "channel.pong": pong,
    "channel.ok": ok,
    "channel.close": close,
    "channel.close-ok": close_ok,
    "channel.flow": flow,
    "channel.flow-ok": flow_ok,
}
