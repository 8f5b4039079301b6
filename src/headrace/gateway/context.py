# SPDX-License-Identifier: Apache-2.0
"""What all connections of one broker share, and the table that names who handles which method."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.gateway.confirm import ConfirmLine
from headrace.gateway.conversion.contents import told
from headrace.gateway.conversion.selected import Selected
from headrace.gateway.quotas import Quotas
from headrace.gateway.rights import Rights
from headrace.gateway.route import Route
from headrace.gateway.sasl.port import Peer
from headrace.gateway.telling import Telling
from headrace.gateway.v0_x import (
    control_access,
    control_basic,
    control_connection,
    control_dtx,
    control_exchange,
    control_file,
    control_message_0_9,
    control_queue,
    control_stream,
    control_test,
    control_tunnel,
    early,
)
from headrace.gateway.v0_x.offers import Offers
from headrace.gateway.v0_x.references import Checkpoints
from headrace.gateway.v0_x.resume import Suspensions
from headrace.gateway.v0_x.tickets import WRITE, Tickets
from headrace.model.errors import (
    AccessRefused,
    CommandInvalid,
    IllegalState,
    InvalidArgument,
    ModelError,
    NotAllowed,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
    ResourceError,
    ResourceLocked,
)
from headrace.model.events import Events
from headrace.model.exchange_hash import PROPERTIES as HASHED_PROPERTIES
from headrace.model.message import new_message
from headrace.model.ports import Store
from headrace.model.rules import Limits
from headrace.model.tally import Tally
from headrace.protocol.codec_0_x import MethodBase, decode_content_header
from headrace.protocol.errors import AmqpError
from headrace.protocol.frames_0_x import framed
from headrace.protocol.handshake import State
from headrace.protocol.output import BufferPool
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import Version

log = logging.getLogger(__name__)

SIZE_MAX = 0xFFFFFFFF  # Of a body, as far as selectors see it.
OPEN = State.OPEN.value
CHANNEL_CLOSING = 2  # As headrace.protocol.content.CLOSING.

CODES: dict[type[ModelError], ReplyCode] = {
    AccessRefused: ReplyCode.ACCESS_REFUSED,
    CommandInvalid: ReplyCode.COMMAND_INVALID,
    IllegalState: ReplyCode.PRECONDITION_FAILED,
    InvalidArgument: ReplyCode.PRECONDITION_FAILED,
    NotAllowed: ReplyCode.NOT_ALLOWED,
    NotFound: ReplyCode.NOT_FOUND,
    NotImplementedHere: ReplyCode.NOT_IMPLEMENTED,
    PreconditionFailed: ReplyCode.PRECONDITION_FAILED,
    ResourceError: ReplyCode.RESOURCE_ERROR,
    ResourceLocked: ReplyCode.RESOURCE_LOCKED,
}

REFUSALS = (ReplyCode.ACCESS_REFUSED, ReplyCode.RESOURCE_LOCKED)
REFUSALS_TO_OPEN = (ReplyCode.NOT_ALLOWED, ReplyCode.INVALID_PATH)

Handler = Callable[[Any, Any, Any], MethodBase | None]

HANDLERS: dict[str, Handler] = {
    **control_access.HANDLERS,
    **control_connection.HANDLERS,
    **control_exchange.HANDLERS,
    **control_queue.HANDLERS,
    **control_basic.HANDLERS,
    **control_message_0_9.HANDLERS,
    **control_dtx.HANDLERS,
    **control_test.HANDLERS,
    **control_file.HANDLERS,
    **control_stream.HANDLERS,
}
DECLARES = (0x0028000A, 0x0032000A)  # Which find nothing only where they are passive.
# What changes definitions or drops messages: each is answered when that is durable.
CHANGES = frozenset(
    {
        "exchange.declare",
        "exchange.delete",
        "exchange.bind",
        "exchange.unbind",
        "queue.declare",
        "queue.bind",
        "queue.unbind",
        "queue.purge",
        "queue.delete",
    }
)
DECLARATIONS = {"exchange.declare": "exchanges", "queue.declare": "queues"}


def waits(method: Any) -> bool:
    """Tell whether one of CHANGES is of something durable, perhaps: a declaration says so."""
    return getattr(method, "durable", True) and not getattr(method, "passive", False)


ContentHandler = Callable[[Any, Any, Any, bytes, bytes], MethodBase | None]

# Methods with content but for basic.publish, which takes a way of its own. A handler is given
# connection, channel, method, the payload of the header frame, undecoded, and the body.
CONTENT_HANDLERS: dict[str, ContentHandler] = {
    **control_test.CONTENT_HANDLERS,
    **control_tunnel.CONTENT_HANDLERS,
    **control_file.CONTENT_HANDLERS,
    **control_stream.CONTENT_HANDLERS,
}

# Those whose bodies do not go through memory: called with connection, channel, the payload of the
# header frame, undecoded, and the size of the body, they return what takes it.
SINKS: dict[str, Callable[[Any, Any, bytes, int], Any]] = {"file.stage": control_file.begin_stage}


class ContentHeaders:
    """The headers of a message, decoded when an exchange asks for them."""

    def __init__(self, version: Version, payload: bytes, address: bytes = b"\0\0") -> None:
        """``payload`` is that of its header frame, ``address`` says where it goes."""
        self._address = address
        self._version = version
        self._payload = payload
        self._read: Any = None

    def __call__(self) -> Mapping[str, Any]:
        headers: Mapping[str, Any] = self._properties().headers or {}
        return headers

    def properties(self) -> dict[str, Any]:
        """Return the properties by which exchanges can route."""
        read = self._properties()
        return {name: getattr(read, name, None) for name in HASHED_PROPERTIES}

    def values(self) -> Selected:
        """Return what selectors see."""
        data = self._address + b"\0\0" + framed(2, 0, self._payload)
        size = min(int.from_bytes(self._payload[4:12], "big"), SIZE_MAX)
        return Selected(new_message(data, len(self._address), size), told)

    def _properties(self) -> Any:
        if self._read is None:
            self._read = decode_content_header(self._version, self._payload)[2]
        return self._read


class Context:
    """One broker, as its connections see it."""

    def __init__(
        self,
        *,
        access: Rights,
        vhosts: Mapping[str, Any],
        stores: Mapping[str, Store],
        tally: Tally,
        authenticate: Callable[[Any, str, bytes], None],
        frame_max: int = 131072,
        channel_max: int = 2047,
        heartbeat_s: int = 60,
        body_max: int = 128 << 20,
        output_max: int = 1 << 20,
        server_properties: Mapping[str, Any] | None = None,
        mechanisms: bytes = b"PLAIN AMQPLAIN",
        specification_qos: bool = False,
        ack_timeout_ms: int = 0,
        ack_timeout_closes: bool = False,
        offers: Offers | None = None,
        identity: str = "",
        events: Events | None = None,
        offered: Callable[[Peer], Sequence[str]] | None = None,
        renew: Callable[[Any, bytes], None] | None = None,
        limits_of_user: Callable[[str], Limits] | None = None,
    ) -> None:
        """``authenticate(connection, mechanism, response)`` checks the login, now or later.

        It calls ``connection.logged_in(user)``, ``connection.login_refused()`` or
        ``connection.challenge(octets)``. ``offered(peer)`` are the mechanisms that somebody may
        use; without it all of ``mechanisms``. ``renew(connection, secret)`` checks new credentials
        and calls ``connection.renewed(user)`` or ``connection.not_renewed()``.
        Sizes are in octets. With ``specification_qos``, basic.qos without ``global`` limits the
        channel and with it the connection, as the standard says; else consumer and channel, as
        the capability per_consumer_qos says. A consumer that holds a delivery for longer than
        ``ack_timeout_ms`` (0: for ever) loses it, or its channel. ``identity`` tells this broker's
        data from others'.
        """
        self.access = access
        self.vhosts = vhosts
        self.lines: dict[str, ConfirmLine] = {name: ConfirmLine(s) for name, s in stores.items()}
        self.stores = stores
        self.checkpoints = Checkpoints()
        self.tally = tally
        self.authenticate = authenticate
        self.pool = BufferPool()
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.heartbeat_s = heartbeat_s
        self.body_max = body_max
        self.quotas = Quotas(body_max, limits_of_user)
        self.output_max = output_max
        self.server_properties = dict(server_properties or {})
        self.introductions: dict[int, dict[str, Any]] = {}  # Other properties, by connection.
        self.mechanisms = mechanisms
        self._offered = offered
        self.renew = renew
        self.on_end: list[Callable[[int], None]] = []  # Told the numbers of ended connections.
        self.peers: dict[int, Peer] = {}  # The other ends of connections, by number.
        self.specification_qos = specification_qos
        self.ack_timeout_ms = ack_timeout_ms
        self.ack_timeout_closes = ack_timeout_closes
        self.identity = identity
        self.events = events if events is not None else Events(tally)
        self.telling = Telling(self.events)
        self.make_0_10: Any = None  # (context, number, loopback) -> a connection of AMQP 0-10.
        self.offers = Offers() if offers is None else offers
        self.tickets = Tickets(self.offers.realms)
        self.suspensions = Suspensions(self.offers.resume_ms)
        self.connections: dict[int, Any] = {}
        self.next_number = 1

    def line(self, vhost: str) -> ConfirmLine:
        """The confirm line of a virtual host's store."""
        line = self.lines.get(vhost)
        if line is None:
            line = self.lines[vhost] = ConfirmLine(self.stores[vhost])
        return line

    def introduction(self, connection: Any) -> dict[str, Any]:
        """What this connection is told about the broker."""
        return self.introductions.pop(connection.number, self.server_properties)

    def peer(self, number: int) -> Peer:
        """The other end of a connection."""
        return self.peers.get(number) or Peer()

    def offered(self, number: int) -> list[str]:
        """The mechanisms that a connection may log in by."""
        if self._offered is None:
            return self.mechanisms.decode().split()
        return list(self._offered(self.peer(number)))

    def forget(self, connection: Any) -> None:
        """A connection is over, of whatever version."""
        number = connection.number
        self.connections.pop(number, None)
        self.introductions.pop(number, None)
        self.telling.connection_closed(connection)
        self.quotas.leave(connection)
        self.peers.pop(number, None)
        for callback in self.on_end:
            callback(number)

    def greet(self, connection: Any) -> None:
        """The protocol header came."""
        control_connection.greet(connection)

    def control(self, connection: Any, channel: Any, method: MethodBase) -> MethodBase | None:
        """Handle a method; return the answer, if there is one to send at once."""
        handler = HANDLERS.get(method.NAME)
        if handler is None:
            raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"{method.NAME} is not served")
        self.events.actor = connection.user
        try:
            if connection.early:
                return self.control_early(connection, channel, method, handler)
            return handler(connection, channel, method)
        except (AmqpError, ModelError) as error:
            if method.NAME in (early.FATAL if connection.early else early.FATAL_0_9_1):
                raise early.refusal(self, error) from error
            raise
        finally:
            self.events.actor = None

    def control_early(
        self, connection: Any, channel: Any, method: Any, handler: Handler
    ) -> MethodBase | None:
        """Handle a method of 0-8 or 0-9, which may come with an access ticket."""
        self.tickets.check_method(connection, channel, method)
        things = DECLARATIONS.get(method.NAME)
        if things is None:
            return handler(connection, channel, method)
        name = method.exchange if things == "exchanges" else method.queue
        known = name in getattr(connection.vhost, things)
        reply = handler(connection, channel, method)
        self.tickets.own(connection, channel, method, known)
        return reply

    def check_publish(self, connection: Any, channel: Any, number: int, exchange: str) -> None:
        """Refuse a publish whose ticket does not allow it."""
        try:
            self.tickets.check(connection, channel, number, WRITE, "exchange", exchange)
        except ModelError as error:
            raise self.translate(error) from None

    def content(
        self, connection: Any, channel: Any, method: MethodBase, header: bytes, body: bytes
    ) -> MethodBase | None:
        """Handle a method with its content; return the answer, if there is one to send at once."""
        handler = CONTENT_HANDLERS.get(method.NAME)
        if handler is None:
            raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"{method.NAME} is not served")
        self.tickets.check_method(connection, channel, method)
        return handler(connection, channel, method, header, body)

    def sink(
        self, connection: Any, channel: Any, method: MethodBase, header: bytes, body_size: int
    ) -> Any:
        """Return what takes the body of a content instead of memory, or None."""
        make = SINKS.get(method.NAME)
        return None if make is None else make(connection, channel, header, body_size)

    def translate(self, error: ModelError) -> AmqpError:
        """Return what a refusal of the model is in the protocol."""
        for kind in type(error).__mro__:
            code = CODES.get(kind)
            if code is not None:
                return AmqpError(code, error.text)
        return AmqpError(ReplyCode.INTERNAL_ERROR, "internal error")

    def make_route(
        self, connection: Any, key: bytes, payload: bytes, copies: tuple[str, ...] = ()
    ) -> tuple[Route, bool]:
        """Look an address up, with further routing keys; tell whether the route may be remembered.

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
        control_basic.check_access(connection, "write", "exchange", exchange or "amq.default")
        for each in (routing_key, *copies):
            self.access.check_topic(connection.user, vhost, "write", exchange, each)
        headers = ContentHeaders(connection.version, payload, key)
        generation = self.tally.generation
        try:
            vhost.check_publishable(exchange)
            routed = vhost.route(
                exchange, routing_key, headers, copies=copies, publisher=connection.number
            )
        except ModelError as error:
            raise self.translate(error) from None
        route = Route(key, routed.queues, generation, routed.passage)
        return route, routed.cacheable

    def log_failure(self, connection: Any, error: AmqpError) -> None:
        """Tell the operator what a client did wrong."""
        asked = connection.current in DECLARES and error.code is ReplyCode.NOT_FOUND
        level = logging.INFO if asked else logging.WARNING  # To ask for it is no mistake.
        log.log(level, "connection %d: %s", connection.number, error)
        if error.code in REFUSALS or (connection.vhost is None and error.code in REFUSALS_TO_OPEN):
            self.refused(connection, error.text)

    def not_offered(self, connection: Any, mechanism: str) -> None:
        """Have the audit log note a login by a mechanism that there is not, or not here."""
        audit = self.access.audit
        if audit.active:
            audit.tell(
                "login",
                peer=self.peer(connection.number),
                allowed=False,
                reason=f"mechanism {mechanism:.64} is not offered here",
                mechanism=mechanism,
            )

    def refused(self, connection: Any, text: str) -> None:
        """Have the audit log note what a user was refused, unless it did that already."""
        access = self.access
        if access.audit.active and connection.user is not None and text != access.noted:
            access.audit.tell(
                "permission",
                user=connection.user,
                peer=self.peer(connection.number),
                allowed=False,
                reason=text,
                vhost=None if connection.vhost is None else connection.vhost.name,
            )
        access.noted = ""

    def log_loss(self, connection: Any) -> None:
        """Tell the operator what was closed by the socket alone, where a method was due."""
        number = connection.number
        if connection.state_number == OPEN:
            log.info("connection %d: lost without a close", number)
        else:
            log.info("connection %d: no close-ok came before the end", number)
        for channel in connection.channels.values():
            if channel.state == CHANNEL_CLOSING:
                log.info("connection %d, channel %d: no close-ok came", number, channel.number)

    def end_channel(self, connection: Any, channel: Any) -> None:
        """A channel is over: its consumers go, what it held returns to its queues."""
        self.telling.channel_closed(connection, channel.number)
        if connection.tickets:
            self.tickets.end_channel(connection, channel)
        control_file.end_channel(channel)
        control_stream.end_channel(channel)
        control_basic.end_channel(connection, channel)
        control_message_0_9.end_channel(channel)
        if connection.vhost is not None:
            connection.vhost.session_ended(channel)

    def end_connection(self, connection: Any) -> None:
        """A connection is over: its exclusive queues go."""
        self.forget(connection)
        if connection.vhost is not None:
            connection.vhost.connection_closed(connection)
