# SPDX-License-Identifier: Apache-2.0
"""State that the 0-8 to 0-9-1 connections of one broker share, and the handlers of methods."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Unpack

from headrace.gateway.connection.context import Context, Options, log_lost_connection
from headrace.gateway.connection.plug_in_state import channel_states
from headrace.gateway.v0_x import early_rules
from headrace.gateway.v0_x.channel.ending import end_channel
from headrace.gateway.v0_x.handlers import MethodHandlers
from headrace.model.errors import ModelError
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.channel import CLOSING
from headrace.protocol.v0_x.handshake import STATE_OPEN
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.protocol.codec_0_x import MethodBase
    from headrace.protocol.endpoint import BodySink

log = logging.getLogger(__name__)


class V0xContext(Context):
    """State that the 0-8 to 0-9-1 connections of one broker share."""

    def __init__(
        self, served: Iterable[Callable[[V0xContext], None]], **options: Unpack[Options]
    ) -> None:
        """Each function of ``served`` adds handlers of methods, in this order."""
        super().__init__(**options)
        self.plug_ins: dict[type, object] | None = None  # The states of plug-ins, by class.
        self.methods = MethodHandlers()
        for register in served:
            register(self)

    def control(
        self, connection: GatewayConnection, channel: Channel, method: MethodBase
    ) -> MethodBase | None:
        """Handle a method; return its answer, or None."""
        handler = self.methods.handlers.get(method.NAME)
        if handler is None:
            raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"{method.NAME} is not served")
        self.events.actor = connection.user
        try:
            return handler(connection, channel, method)
        except (AmqpError, ModelError) as error:
            if method.NAME in (
                early_rules.FATAL if connection.is_early else early_rules.FATAL_0_9_1
            ):
                raise early_rules.fatal_error(error) from error
            raise
        finally:
            self.events.actor = None

    def check_publish(
        self, connection: GatewayConnection, channel: Channel, ticket: int, address: bytes
    ) -> None:
        """Refuse a publish whose access ticket does not allow it."""
        if self.methods.check_publish is not None:
            self.methods.check_publish(connection, channel, ticket, address)

    def keep_channel(self, connection: GatewayConnection, channel: Channel) -> bool:
        """Keep a channel whose connection is lost, to be resumed; return True if it is kept."""
        keep = self.methods.keep_channel
        return keep is not None and keep(connection, channel)

    def content(
        self,
        connection: GatewayConnection,
        channel: Channel,
        method: MethodBase,
        header: bytes,
        body: bytes,
    ) -> MethodBase | None:
        """Handle a method with its content; return its answer, or None."""
        handler = self.methods.content_handlers.get(method.NAME)
        if handler is None:
            raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"{method.NAME} is not served")
        return handler(connection, channel, method, header, body)

    def sink(
        self,
        connection: GatewayConnection,
        channel: Channel,
        method: MethodBase,
        header: bytes,
        body_size: int,
    ) -> BodySink | None:
        """Return the sink of a content's body; None for memory."""
        make = self.methods.sinks.get(method.NAME)
        return None if make is None else make(connection, channel, header, body_size)

    # Keeps 0-9-1/connection.close-ok#01, 0-9-1/channel.close-ok#01,
    # 0-9/connection.close-ok#reporting, 0-9/channel.close-ok#reporting.
    def log_loss(self, connection: GatewayConnection) -> None:
        """Log that the socket was closed without connection.close-ok or channel.close-ok.

        `GatewayConnection.end` calls it.
        """
        number = connection.number
        log_lost_connection(number, is_open=connection.state_number == STATE_OPEN)
        for channel in connection.channels.values():
            if channel.state == CLOSING:
                log.info(
                    "connection %d, channel %d: no close-ok was received", number, channel.number
                )

    def end_channel(self, connection: GatewayConnection, channel: Channel) -> None:
        """End a channel: remove its consumers, and requeue its unacked messages."""
        self.connection_events.report_channel_closed(connection, channel.number)
        for state in channel_states(channel):
            state.end()
        end_channel(connection.vhost, channel)
        if connection.vhost is not None:
            version, tally = connection.version.label, channel.update_tally()
            self.add_ended_channel(connection.vhost, version, tally, connection.number)
            connection.vhost.on_session_end(channel)
