# SPDX-License-Identifier: Apache-2.0
"""The broker's handling of the upcalls of a 0-8, 0-9 or 0-9-1 connection.

The connection's :class:`PublishReceiver` handles publishes, and the channel acknowledgements. Every
other method is control, for the functions of :mod:`headrace.gateway.v0_x.methods`.
"""

import logging
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.publish_receiver import PublishReceiver
    from headrace.protocol.v0_x.channel import Channel as ProtocolChannel
    from headrace.protocol.v0_x.upcalls import Upcalls

from headrace.gateway.connection.context import CHANGES, is_durable_change
from headrace.gateway.messages.unsettled import SETTLE_ACCEPT
from headrace.gateway.v0_x.connection.context import V0xContext
from headrace.gateway.v0_x.connection.login import send_start
from headrace.gateway.v0_x.errors import translate
from headrace.model.errors import ModelError
from headrace.protocol.codec_0_x import MethodBase
from headrace.protocol.errors import AmqpError
from headrace.protocol.version_negotiation import describe_unserved

if TYPE_CHECKING:
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.protocol.endpoint import BodySink
    from headrace.spec.tables import Version

log = logging.getLogger(__name__)


class ConnectionOwner(Upcalls):
    """Handles the upcalls of one client's connection at the broker."""

    def __init__(
        self,
        connection: "GatewayConnection",
        context: V0xContext,
        publish_receiver: PublishReceiver,
    ) -> None:
        Upcalls.__init__(self)
        self.connection = connection
        self.context = context
        self.publish_receiver = publish_receiver

    # --- The connection -------------------------------------------------------------------------

    def on_header(self, version: "Version") -> None:
        send_start(self.connection)

    def on_rejected(self, header: bytes) -> None:
        log.warning("connection %d: %s", self.connection.number, describe_unserved(header))

    def on_failed(self, channel: ProtocolChannel | None, error: AmqpError) -> None:
        self.context.log_failure(self.connection, error)
        if channel is not None:
            self.context.end_channel(self.connection, cython.cast(Channel, channel))
        else:
            self.on_closed()

    def on_closed(self) -> None:
        self.connection.end()
        if self.connection.transport is not None:
            self.connection.transport.close_soon()

    def on_turn_end(self) -> None:
        if self.connection.unflushed:
            waiting = self.connection.unflushed
            self.connection.unflushed = []
            for channel in waiting:
                channel.flush_confirms()

    def explain(self, error: Exception, method: int) -> AmqpError:
        if isinstance(error, ModelError):
            return translate(error)
        return Upcalls.explain(self, error, method)

    def pause_reading(self, paused: bool) -> None:
        transport = self.connection.transport
        if transport is not None:
            if paused:
                transport.hold()
            else:
                transport.unhold()

    def will_answer(self) -> bool:
        opened = self.connection.vhost is not None
        return not opened or not self.publish_receiver.distributor.store.full

    # --- Channels and methods -------------------------------------------------------------------

    def make_channel(self, number: int) -> ProtocolChannel:
        return Channel(number, self.connection)

    def on_method(self, channel: ProtocolChannel | None, number: int, method: MethodBase) -> None:
        reply = self.context.control(self.connection, cython.cast(Channel, channel), method)
        if reply is not None:
            if method.NAME in CHANGES and is_durable_change(method):
                store = self.connection.vhost.store
                self.connection.promise(store, store.defined_position)
            self.connection.reply(number, reply)

    def on_channel_removed(self, channel: ProtocolChannel) -> None:
        self.context.end_channel(self.connection, cython.cast(Channel, channel))

    def resume_later(self, channel: ProtocolChannel) -> None:
        connection = self.connection
        connection.paused.append(channel)
        if connection.starving is None:
            connection.starving = {}
        if connection.transport is not None:
            connection.transport.watch_output()

    # --- Contents -------------------------------------------------------------------------------

    def body_sink(
        self, channel: ProtocolChannel, method: MethodBase, header: bytes, body_size: int
    ) -> "BodySink | None":
        sink: BodySink | None = self.context.sink(
            self.connection, cython.cast(Channel, channel), method, header, body_size
        )
        return sink

    def on_content(
        self, channel: ProtocolChannel, method: MethodBase, header: bytes, body: bytes
    ) -> None:
        gateway_channel = cython.cast(Channel, channel)
        reply = self.context.content(self.connection, gateway_channel, method, header, body)
        if reply is not None:
            self.connection.reply(channel.number, reply)

    def on_ticket(self, channel: ProtocolChannel, ticket: int, address: bytes) -> None:
        self.context.check_publish(self.connection, cython.cast(Channel, channel), ticket, address)

    def on_publish(
        self,
        channel: ProtocolChannel,
        buffer: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
    ) -> None:
        self.publish_receiver.publish(
            cython.cast(Channel, channel), buffer, args, address_len, header, end, body_size
        )

    def on_publish_large(
        self,
        channel: ProtocolChannel,
        start: bytes,
        address_len: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        self.publish_receiver.publish_large(
            cython.cast(Channel, channel), start, address_len, parts, body_size
        )

    def on_ack(self, channel: ProtocolChannel, delivery_tag: int, multiple: int) -> None:
        cython.cast(Channel, channel).settle(delivery_tag, multiple != 0, SETTLE_ACCEPT)
