# SPDX-License-Identifier: Apache-2.0
"""The classes file, stream, tunnel and test of 0-8 and 0-9, a plug-in of the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headrace.gateway.content_classes.file import HANDLERS as FILE_HANDLERS
from headrace.gateway.content_classes.stream import HANDLERS as STREAM_HANDLERS
from headrace.gateway.v0_x.content_classes import file, selftest, stream, tunnel

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.connection.context import V0xContext
    from headrace.gateway.v0_x.handlers import Handler
    from headrace.protocol.codec_0_x import MethodBase

Class = TypeVar("Class")


def register(context: V0xContext) -> None:
    """Add the handlers of these classes."""
    methods = context.methods
    for name, on_file in FILE_HANDLERS.items():
        methods.handlers[name] = on_channel(file.channel_files, on_file)
    for name, on_packet in STREAM_HANDLERS.items():
        methods.handlers[name] = on_channel(stream.channel_packets, on_packet)
    methods.handlers.update(selftest.HANDLERS)
    methods.content_handlers.update(selftest.CONTENT_HANDLERS)
    methods.content_handlers["tunnel.request"] = tunnel.request
    methods.content_handlers["file.stage"] = file.stage
    methods.content_handlers["stream.publish"] = stream.publish
    methods.sinks["file.stage"] = file.begin_stage


def on_channel(
    find: Callable[[GatewayConnection, Channel], Class], handle: Callable[[Class, MethodBase], None]
) -> Handler:
    """Return the handler that finds a class on the channel and calls ``handle``."""

    def handler(connection: GatewayConnection, channel: Channel, method: MethodBase) -> None:
        handle(find(connection, channel), method)

    return handler
