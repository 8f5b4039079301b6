# SPDX-License-Identifier: Apache-2.0
"""State that the 0-8 to 0-9-1 connections of one broker share, and the handlers of methods."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Unpack

from headrace.gateway.connection.context import Context, Options
from headrace.gateway.connection.plug_in_state import states_of
from headrace.gateway.conversion.contents import values_of_entries
from headrace.gateway.conversion.selected import Selected
from headrace.gateway.messages.route import Route
from headrace.gateway.v0_x import early_rules
from headrace.gateway.v0_x.channel.ending import end_channel
from headrace.gateway.v0_x.errors import translate
from headrace.gateway.v0_x.handlers import Methods
from headrace.model.errors import ModelError
from headrace.model.exchange.hash import PROPERTIES as HASHED_PROPERTIES
from headrace.model.message import new_message
from headrace.protocol.codec_0_x import MethodBase, decode_content_header
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.channel import CLOSING
from headrace.protocol.v0_x.frames import FRAME_HEADER, framed
from headrace.protocol.v0_x.handshake import STATE_OPEN
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.protocol.codec_0_x import PropertiesBase
    from headrace.protocol.endpoint import BodySink
    from headrace.spec.tables import Version

log = logging.getLogger(__name__)

SIZE_MAX = 0xFFFFFFFF  # Of a body, as far as selectors see it.


class ContentHeaders:
    """The headers of a message, decoded when an exchange asks for them."""

    def __init__(self, version: Version, payload: bytes, address: bytes = b"\0\0") -> None:
        """``payload`` is that of its header frame, ``address`` its exchange and routing key."""
        self._address = address
        self._version = version
        self._payload = payload
        self._read: PropertiesBase | None = None

    def __call__(self) -> Mapping[str, object]:
        return getattr(self._properties(), "headers", None) or {}

    def properties(self) -> dict[str, object]:
        """Return the properties by which exchanges can route."""
        read = self._properties()
        return {name: getattr(read, name, None) for name in HASHED_PROPERTIES}

    def values(self) -> Selected:
        """Return the message as selectors see it."""
        data = self._address + b"\0\0" + framed(FRAME_HEADER, 0, self._payload)
        size = min(int.from_bytes(self._payload[4:12], "big"), SIZE_MAX)
        return Selected(new_message(data, len(self._address), size), values_of_entries)

    def _properties(self) -> PropertiesBase:
        if self._read is None:
            self._read = decode_content_header(self._version, self._payload)[2]
        return self._read


class V0xContext(Context):
    """One broker, as its 0-8 to 0-9-1 connections see it."""

    def __init__(
        self, served: Iterable[Callable[[V0xContext], None]], **options: Unpack[Options]
    ) -> None:
        """``served`` add the handlers of methods, in this order."""
        super().__init__(**options)
        self.plug_ins: dict[type, object] | None = None  # Their states, by kind.
        self.methods = Methods()
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
            if method.NAME in (early_rules.FATAL if connection.early else early_rules.FATAL_0_9_1):
                raise early_rules.refusal(error) from error
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

    def make_route(
        self,
        connection: GatewayConnection,
        key: bytes,
        payload: bytes,
        copies: tuple[str, ...] = (),
    ) -> tuple[Route, bool]:
        """Return the route of an address and further routing keys, and whether it may be cached.

        Raises:
            AmqpError: the exchange is missing or internal.
            AccessRefused: the user may not write to it.
        """
        size = 1 + key[0]
        try:
            exchange = key[1:size].decode()
            routing_key = key[size + 1 :].decode()
        except UnicodeDecodeError:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "a short string is not UTF-8") from None
        vhost = connection.vhost
        name = exchange or "amq.default"
        self.access.check(connection.user, vhost.name, "write", "exchange", name)
        for each in (routing_key, *copies):
            self.access.check_topic(connection.user, vhost, "write", exchange, each)
        headers = ContentHeaders(connection.version, payload, key)
        generation = self.counters.generation
        try:
            vhost.check_publishable(exchange)
            routed = vhost.route(
                exchange, routing_key, headers, copies=copies, publisher=connection.number
            )
        except ModelError as error:
            raise translate(error) from None
        tally = vhost.find_exchange(exchange).tally
        route = Route(key, routed.queues, generation, routed.interception, tally)
        return route, routed.cacheable

    # Keeps 0-9-1/connection.close-ok#01, 0-9/connection.close-ok#reporting.
    def log_loss(self, connection: GatewayConnection) -> None:
        """Tell the operator what was closed by the socket alone, where a method was due."""
        number = connection.number
        if connection.state_number == STATE_OPEN:
            log.info("connection %d: lost without a close", number)
        else:
            log.info("connection %d: the connection ended without close-ok", number)
        for channel in connection.channels.values():
            if channel.state == CLOSING:
                log.info(
                    "connection %d, channel %d: no close-ok was received", number, channel.number
                )

    def end_channel(self, connection: GatewayConnection, channel: Channel) -> None:
        """End a channel: remove its consumers, and requeue its unacked messages."""
        self.connection_events.channel_closed(connection, channel.number)
        for state in states_of(channel):
            state.end()
        end_channel(connection.vhost, channel)
        if connection.vhost is not None:
            version, tally = connection.version.label, channel.tallied()
            self.channel_ended(connection.vhost, version, tally, connection.number)
            connection.vhost.session_ended(channel)
