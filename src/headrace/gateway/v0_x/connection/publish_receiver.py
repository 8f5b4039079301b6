# SPDX-License-Identifier: Apache-2.0
"""Publishes of 0-8, 0-9 and 0-9-1 clients, from the frames to the queues.

The arguments of :meth:`PublishReceiver.publish` are offsets into the receive buffer. The address
selects a route of the connection: one memcmp if it repeats, one dict lookup if it is cached. The
flags of the header show whether it has properties that the broker uses. Most messages go to their
queues at once (:mod:`headrace.gateway.messages.distributor`). The others are copied out of the
buffer (:mod:`headrace.gateway.v0_x.connection.slow_path`).
"""

import re

import cython

if not cython.compiled:
    from headrace.gateway.messages.distributor import Distributor, Publish
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.routes import Routes
    from headrace.gateway.v0_x.connection.slow_path import (
        CC_KEYS as C_CC_KEYS,
    )
    from headrace.gateway.v0_x.connection.slow_path import (
        DELAYED as C_DELAYED,
    )
    from headrace.gateway.v0_x.connection.slow_path import (
        DIRECT_REPLY_TO as C_DIRECT_REPLY_TO,
    )
    from headrace.gateway.v0_x.connection.slow_path import (
        IMMEDIATE as C_IMMEDIATE,
    )
    from headrace.gateway.v0_x.connection.slow_path import (
        PUBLISHING_ID as C_PUBLISHING_ID,
    )
    from headrace.gateway.v0_x.connection.slow_path import SlowPathReceiver
    from headrace.gateway.v0_x.peer import Peer
    from headrace.protocol.v0_x.frames import FLAGS_AT as C_FLAGS_AT
    from headrace.protocol.v0_x.frames import NO_PROPERTIES as C_NO_PROPERTIES
    from headrace.protocol.v0_x.frames import PAYLOAD_AT as C_PAYLOAD_AT
    from headrace.protocol.v0_x.frames import PROPERTIES_AT as C_PROPERTIES_AT
    from headrace.protocol.v0_x.frames import PUBLISH_END_LEN as C_PUBLISH_END_LEN
    from headrace.protocol.v0_x.frames import SIZE_AT as C_SIZE_AT
    from headrace.spec.ids import BASIC_PUBLISH
    from headrace.wire.memory import cut, get16, get32, same
    from headrace.wire.properties import BasicScan, scan_basic
    from headrace.wire.property_bits import (
        HAS_DELIVERY_MODE,
        HAS_EXPIRATION,
        HAS_HEADERS,
        HAS_PRIORITY,
        HAS_REPLY_TO,
        HAS_USER_ID,
    )

from typing import TYPE_CHECKING

from headrace.gateway.connection.context import Context
from headrace.gateway.messages.direct_reply_to import reply_address
from headrace.model.arguments.expiration import EXPIRY_MS_MAX, expiration_deadline, is_expiry_time
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.gateway.messages.route import Route

PERSISTENT_MODE = 2
REPLY_TO = b"amq.rabbitmq.reply-to"
REPLY_TO_LEN = 21
DIGITS_MAX = 19  # The maximum digits of a signed number of 64 bits.
# Lengths of the header keys that the broker uses: CC, BCC, x-delay, and the longest,
# x-publishing-id.
CC_LEN = 2
BCC_LEN = 3
DELAY_LEN = 7
ID_LEN = 15
if not cython.compiled:
    C_PERSISTENT_MODE = PERSISTENT_MODE
    C_CC_LEN = CC_LEN
    C_BCC_LEN = BCC_LEN
    C_DELAY_LEN = DELAY_LEN
    C_ID_LEN = ID_LEN


class PublishReceiver:
    """Receives the publishes of one connection and distributes them to queues."""

    def __init__(self, connection: Peer, context: Context) -> None:
        self.connection = connection
        self.context = context
        self.counters = context.counters
        self.distributor = Distributor(connection, context.counters, connection.number)
        self.routes = Routes(connection, context)
        self.slow_path = SlowPathReceiver(connection, context, self.routes, self.distributor)
        self.publishing = Publish()  # The message that is being published.
        self.route: Route | None = None  # The route of the last publish.
        self.scan = BasicScan()
        self.features = 0  # The features that its properties may request; see ``slow_path``.
        self.absolute_expirations = False  # True: a large expiration is a time, not a duration.

    def publish(
        self,
        channel: Channel,
        buffer: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
    ) -> None:
        """Check, route and distribute one publish.

        ``buffer[args:end]`` holds its address, flags and frames; ``header`` is the offset of the
        header frame. A large body is in ``publishing.parts``, not in the buffer.
        """
        # This is one function because several would have to pass seven arguments for each message.
        self.connection.current = BASIC_PUBLISH
        channel.tally.publish += 1
        publish = self.publishing
        publish.address_len = address_len
        publish.body_size = body_size
        flags = get16(buffer, header + C_FLAGS_AT)
        size = get32(buffer, header + C_SIZE_AT)
        if flags == 0 and size == C_NO_PROPERTIES:
            publish.persistent = False
            publish.priority = 0
            publish.deadline_ms = 0
        elif flags == HAS_DELIVERY_MODE and size == C_NO_PROPERTIES + 1:
            publish.persistent = buffer[header + C_PROPERTIES_AT] == C_PERSISTENT_MODE
            publish.priority = 0
            publish.deadline_ms = 0
        else:
            self.read_properties(buffer, header + C_PAYLOAD_AT, header + C_PAYLOAD_AT + size)
            if self.features & C_DIRECT_REPLY_TO:
                request = self.with_reply_to(channel, buffer, args, header, end)
                header -= args
                end = len(request)
                channel.tally.publish -= 1  # The call below counts it.
                self.publish(channel, request, 0, address_len, header, end, body_size)
                return
            if self.features:
                detached = self.slow_path.detach(publish, self.features, buffer, args, header, end)
                self.slow_path.publish_with_features(channel, detached)
                return
        route = self.route
        if (
            route is None
            or route.generation != self.counters.generation
            or not same(route.key, buffer, args, args + address_len)
        ):
            if channel.dtx:
                detached = self.slow_path.detach(publish, 0, buffer, args, header, end)
                self.slow_path.publish_in_branch(channel, detached)
                return
            route = self.routes.find(
                cut(buffer, args, args + address_len), buffer, header + C_PAYLOAD_AT, size
            )
            self.route = self.routes.last
            if route.interception is not None:
                self.connection.publishes = (
                    self.connection.publishes or not route.is_served_by_broker
                )
                detached = self.slow_path.detach(publish, 0, buffer, args, header, end)
                detached.route = route
                self.slow_path.publish_intercepted(channel, detached)
                return
        if not route.is_uncommon:
            self.connection.publishes = True
        else:
            if (
                not route.is_served_by_broker
            ):  # Requests are accepted from blocked publishers: some free memory.
                self.connection.publishes = True
            if route.keeps_transient:
                publish.persistent = True
        bits = buffer[args + address_len]
        if channel.tx:
            detached = self.slow_path.detach(publish, 0, buffer, args, header, end)
            detached.route = route
            self.slow_path.defer_publish(channel, detached)
            return
        refused = 0
        if route.count and not bits & C_IMMEDIATE:
            refused = self.distributor.distribute(publish, route, buffer, args, end)
        elif bits:
            detached = self.slow_path.detach(publish, 0, buffer, args, header, end)
            detached.route = route
            refused = self.slow_path.publish_or_return(channel, detached)
        else:
            self.slow_path.drop(channel, publish, route)
        if refused:
            self.slow_path.refuse(channel, publish, route)
        elif channel.confirms:
            channel.record_publish()

    def publish_large(
        self,
        channel: Channel,
        start: bytes,
        address_len: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        """Publish a message with a large body; ``start`` is laid out as for :meth:`publish`."""
        self.publishing.parts = parts
        try:
            self.publish(
                channel,
                start,
                0,
                address_len,
                address_len + C_PUBLISH_END_LEN,
                len(start),
                body_size,
            )
        finally:
            self.publishing.parts = None

    def publish_content(
        self,
        channel: Channel,
        data: bytes,
        address_len: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> int:
        """Publish for a class other than basic, or for an operator; laid out as in class basic.

        Returns:
            The number of queues that refused the message; -1 if it is immediate and no queue has a
            consumer that can take it.
        """
        header = address_len + C_PUBLISH_END_LEN
        channel.tally.publish += 1
        publish = self.publishing
        publish.address_len = address_len
        publish.body_size = body_size
        payload = header + C_PAYLOAD_AT
        self.read_properties(data, payload, payload + get32(data, header + C_SIZE_AT))
        if self.features & C_DIRECT_REPLY_TO:
            data = self.with_reply_to(channel, data, 0, header, len(data))
        detached = self.slow_path.detach(publish, self.features, data, 0, header, len(data))
        detached.parts = parts
        return self.slow_path.publish_content(channel, detached)

    def commit(self, channel: Channel) -> None:
        """Commit a channel's transaction.

        Raises:
            AmqpError: the disk is full, or a queue refused a publish.
        """
        self.slow_path.commit(channel)

    def clear_routes(self) -> None:
        """Drop the cached routes, as the connection has ended."""
        self.routes.clear()
        self.route = None

    # --- Properties and headers -----------------------------------------------------------------

    def read_properties(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Read the properties that the broker uses from a content header."""
        scan = self.scan
        publish = self.publishing
        if not scan_basic(buffer, start, end, scan):
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "malformed content header")
        publish.persistent = (
            scan.flags & HAS_DELIVERY_MODE != 0 and scan.delivery_mode == C_PERSISTENT_MODE
        )
        publish.priority = scan.priority if scan.flags & HAS_PRIORITY else 0
        publish.deadline_ms = 0
        features = 0
        if scan.flags & HAS_HEADERS:
            features = find_features(buffer, scan.headers_at, scan.headers_end)
        if (
            scan.flags & HAS_REPLY_TO
            and scan.reply_to_len == REPLY_TO_LEN
            and same(REPLY_TO, buffer, scan.reply_to_at, scan.reply_to_at + REPLY_TO_LEN)
        ):
            features |= C_DIRECT_REPLY_TO
        self.features = features
        if scan.flags & HAS_EXPIRATION:
            publish.deadline_ms = self.expires_at(
                cut(buffer, scan.expiration_at, scan.expiration_at + scan.expiration_len)
            )
        if scan.flags & HAS_USER_ID:
            self.check_user_id(
                cut(buffer, scan.user_id_at, scan.user_id_at + scan.user_id_len).decode(
                    "utf-8", "replace"
                )
            )

    def expires_at(self, expiration: bytes) -> int:
        """Return the time at which a message expires, in milliseconds since 1970.

        With ``absolute_expirations`` a large value of the property is that time.
        """
        if self.absolute_expirations and expiration.isdigit() and len(expiration) <= DIGITS_MAX:
            number = int(expiration)
            if is_expiry_time(number):
                return expiration_deadline(number, 0)
        return self.counters.now_ms + expiration_ms(expiration)

    def check_user_id(self, user_id: str) -> None:
        """Refuse a message whose user-id is another user's, unless the user is an impersonator."""
        # An empty user-id is refused, as in RabbitMQ; 0-10 takes it for absent, as qpidd does.
        user = self.connection.user
        if user_id != user.name and "impersonator" not in user.tags:
            text = f"user_id property set to '{user_id}' but authenticated user was '{user.name}'"
            self.context.record_refusal(self.connection, text)
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)

    def with_reply_to(
        self, channel: Channel, buffer: bytes | bytearray, args: int, header: int, end: int
    ) -> bytes:
        """Return the publish with the name of the channel's own queue as its reply-to."""
        self.features &= ~C_DIRECT_REPLY_TO
        name = reply_address(channel).encode()
        position = self.scan.reply_to_at
        size_at, payload = header + C_SIZE_AT, header + C_PAYLOAD_AT
        size = get32(buffer, size_at) + len(name) - REPLY_TO_LEN
        head = (
            cut(buffer, args, size_at)
            + size.to_bytes(4, "big")
            + cut(buffer, payload, position - 1)
        )
        tail = cut(buffer, position + REPLY_TO_LEN, end)
        return head + bytes((len(name),)) + name + tail


def expiration_ms(raw: bytes) -> int:
    """Read the property ``expiration``.

    Raises:
        AmqpError: the property is not a whole number of milliseconds from 0 to EXPIRY_MS_MAX.
    """
    if raw.isdigit() and len(raw) <= 10:
        return int(raw)
    text = raw.decode("utf-8", "replace")
    number = re.match(r"[+-]?[0-9]+", text, re.ASCII)
    if number is None:
        reason = "no_integer"
    elif number[0] != text:
        reason = f'{{leftover_string,"{text[number.end() :]}"}}'
    elif 0 <= int(text) <= EXPIRY_MS_MAX:
        return int(text)
    else:
        reason = f"{{{'value_negative' if text[0] == '-' else 'value_too_large'},{text}}}"
    raise AmqpError(ReplyCode.PRECONDITION_FAILED, f"invalid expiration '{text}': {reason}")


def find_features(buffer: bytes | bytearray, position: int, end: int) -> int:
    """Return the features whose keys a table may contain: CC, BCC, x-publishing-id, x-delay.

    A false positive does no harm, as the slow path looks the key up.
    """
    features = 0
    end -= 3
    while position < end:
        length = buffer[position]  # The length of a key, if a key begins here.
        if length > C_ID_LEN:  # True of most bytes.
            pass
        elif length == C_CC_LEN:
            if buffer[position + 1] == ord("C") and buffer[position + 2] == ord("C"):
                features |= C_CC_KEYS
        elif length == C_BCC_LEN:
            if (
                buffer[position + 1] == ord("B")
                and buffer[position + 2] == ord("C")
                and buffer[position + 3] == ord("C")
            ):
                features |= C_CC_KEYS
        elif length == C_DELAY_LEN:
            if (
                end - position > 4
                and buffer[position + 1] == ord("x")
                and buffer[position + 3] == ord("d")
                and buffer[position + 7] == ord("y")
            ):
                features |= C_DELAYED  # x.d...y
        elif (
            length == C_ID_LEN
            and end - position > 12
            and buffer[position + 1] == ord("x")  # x-p........g..d
            and buffer[position + 3] == ord("p")
            and buffer[position + 12] == ord("g")
            and buffer[position + 15] == ord("d")
        ):
            features |= C_PUBLISHING_ID
        position += 1
    return features
