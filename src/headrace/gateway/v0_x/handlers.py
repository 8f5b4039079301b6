# SPDX-License-Identifier: Apache-2.0
"""Handlers of the methods of 0-8 to 0-9-1: their types, and a broker's table of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.protocol.codec_0_x import MethodBase
    from headrace.protocol.endpoint import BodySink

    # Each handler takes the class of its own method: hence Any.
    Handler = Callable[[GatewayConnection, Channel, Any], MethodBase | None]
    #: Also takes the undecoded payload of the header frame, and the body.
    ContentHandler = Callable[[GatewayConnection, Channel, Any, bytes, bytes], MethodBase | None]


class MethodHandlers:
    """The handlers of methods by name."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        #: Of methods with content, except basic.publish, which `PublishReceiver` handles.
        self.content_handlers: dict[str, ContentHandler] = {}
        #: Of methods whose bodies are written to disk as they arrive. Arguments: connection,
        #: channel, the undecoded payload of the header frame, the size of the body.
        self.sinks: dict[str, Callable[[GatewayConnection, Channel, bytes, int], BodySink]] = {}
        #: Checks the access ticket of a publish: connection, channel, ticket, encoded address.
        self.check_publish: Callable[[GatewayConnection, Channel, int, bytes], None] | None = None
        #: Keeps a channel whose connection is lost; returns True if it is kept.
        self.keep_channel: Callable[[GatewayConnection, Channel], bool] | None = None
