# SPDX-License-Identifier: Apache-2.0
"""Publishes of 0-8, 0-9 and 0-9-1 clients, from the frames to the queues.

:meth:`Publisher.publish` is given offsets into the receive buffer. The address is looked up among
the routes of the connection (one memcmp when it repeats, one dict lookup when it is known) and the
flags of the header show whether it has properties that the broker uses. Most messages then go
to their queues (:mod:`headrace.gateway.messages.distributor`); the others are cut out of the buffer
(:mod:`headrace.gateway.v0_x.connection.special_publish`).
"""

import re

import cython

if not cython.compiled:
    from headrace.gateway.messages.distributor import Distributor, Publish
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.routes import Routes
    from headrace.gateway.v0_x.connection.special_publish import (
        COPIES as C_COPIES,
    )
    from headrace.gateway.v0_x.connection.special_publish import (
        DELAYED as C_DELAYED,
    )
    from headrace.gateway.v0_x.connection.special_publish import (
        DIRECT_REPLY_TO as C_DIRECT_REPLY_TO,
    )
    from headrace.gateway.v0_x.connection.special_publish import (
        IMMEDIATE as C_IMMEDIATE,
    )
    from headrace.gateway.v0_x.connection.special_publish import (
        NUMBERED as C_NUMBERED,
    )
    from headrace.gateway.v0_x.connection.special_publish import SpecialPublisher
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
from headrace.model.arguments.expiration import EXPIRY_MS_MAX, deadline_of, is_moment
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.gateway.messages.route import Route

PERSISTENT_MODE = 2
REPLY_TO = b"amq.rabbitmq.reply-to"
REPLY_TO_LEN = 21
DIGITS_MAX = 19  # Of a signed number of 64 bits.
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


class Publisher:
    """The publishing side of one connection."""

    def __init__(self, connection: Peer, context: Context) -> None:
        self.connection = connection
        self.context = context
        self.counters = context.counters
        self.distributor = Distributor(connection, context.counters, connection.number)
        self.routes = Routes(connection, context)
        self.special = SpecialPublisher(connection, context, self.routes, self.distributor)
        self.publishing = Publish()  # The message that is being published.
        self.route: Route | None = None  # The route of the last one.
        self.scan = BasicScan()
        self.marks = 0  # Features that its headers may request; see special_publish.
        self.absolute_expirations = False  # A large expiration is a time, not a duration.

    def publish(
        self,
        channel: Channel,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
    ) -> None:
        """Check, route and distribute one publish. A large body is in ``publishing``."""
        # In one function: several would pass seven positions on for every message.
        self.connection.current = BASIC_PUBLISH
        channel.tally.publish += 1
        p = self.publishing
        p.address_len = address_len
        p.body_size = body_size
        flags = get16(d, header + C_FLAGS_AT)
        size = get32(d, header + C_SIZE_AT)
        if flags == 0 and size == C_NO_PROPERTIES:
            p.persistent = False
            p.priority = 0
            p.deadline_ms = 0
        elif flags == HAS_DELIVERY_MODE and size == C_NO_PROPERTIES + 1:
            p.persistent = d[header + C_PROPERTIES_AT] == C_PERSISTENT_MODE
            p.priority = 0
            p.deadline_ms = 0
        else:
            self.examine(d, header + C_PAYLOAD_AT, header + C_PAYLOAD_AT + size)
            if self.marks & C_DIRECT_REPLY_TO:
                request = self.with_reply_to(channel, d, args, header, end)
                header -= args
                end = len(request)
                channel.tally.publish -= 1  # The call below counts it.
                self.publish(channel, request, 0, address_len, header, end, body_size)
                return
            if self.marks:
                special = self.special.cut_out(p, self.marks, d, args, header, end)
                self.special.publish_marked(channel, special)
                return
        route = self.route
        if (
            route is None
            or route.generation != self.counters.generation
            or not same(route.key, d, args, args + address_len)
        ):
            if channel.dtx:
                special = self.special.cut_out(p, 0, d, args, header, end)
                self.special.publish_in_branch(channel, special)
                return
            route = self.routes.find(
                cut(d, args, args + address_len), d, header + C_PAYLOAD_AT, size
            )
            self.route = self.routes.last
            if route.interception is not None:
                self.connection.publishes = self.connection.publishes or not route.serves
                special = self.special.cut_out(p, 0, d, args, header, end)
                special.route = route
                self.special.publish_intercepted(channel, special)
                return
        if not route.uncommon:
            self.connection.publishes = True
        else:
            if not route.serves:  # Requests are taken while publishers wait: some make room.
                self.connection.publishes = True
            if route.keeps:
                p.persistent = True
        bits = d[args + address_len]
        if channel.tx:
            special = self.special.cut_out(p, 0, d, args, header, end)
            special.route = route
            self.special.defer_publish(channel, special)
            return
        refused = 0
        if route.count and not bits & C_IMMEDIATE:
            refused = self.distributor.distribute(p, route, d, args, end)
        elif bits:
            special = self.special.cut_out(p, 0, d, args, header, end)
            special.route = route
            refused = self.special.publish_or_return(channel, special)
        else:
            self.special.drop(channel, p, route)
        if refused:
            self.special.refuse(channel, p, route)
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
            The number of queues that refused it; -1 if it is immediate and no consumer takes it.
        """
        header = address_len + C_PUBLISH_END_LEN
        channel.tally.publish += 1
        p = self.publishing
        p.address_len = address_len
        p.body_size = body_size
        payload = header + C_PAYLOAD_AT
        self.examine(data, payload, payload + get32(data, header + C_SIZE_AT))
        if self.marks & C_DIRECT_REPLY_TO:
            data = self.with_reply_to(channel, data, 0, header, len(data))
        special = self.special.cut_out(p, self.marks, data, 0, header, len(data))
        special.parts = parts
        return self.special.publish_content(channel, special)

    def commit(self, channel: Channel) -> None:
        """Commit a channel's transaction.

        Raises:
            AmqpError: the disk is full, or a queue refused a publish.
        """
        self.special.commit(channel)

    def forget_routes(self) -> None:
        """Forget the remembered routes: the connection is over."""
        self.routes.forget()
        self.route = None

    # --- Properties and headers -----------------------------------------------------------------

    def examine(self, d: bytes | bytearray, lo: int, hi: int) -> None:
        """Read the properties that the broker uses from a content header."""
        scan = self.scan
        p = self.publishing
        if not scan_basic(d, lo, hi, scan):
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "malformed content header")
        p.persistent = (
            scan.flags & HAS_DELIVERY_MODE != 0 and scan.delivery_mode == C_PERSISTENT_MODE
        )
        p.priority = scan.priority if scan.flags & HAS_PRIORITY else 0
        p.deadline_ms = 0
        marks = 0
        if scan.flags & HAS_HEADERS:
            marks = find_marks(d, scan.headers_at, scan.headers_end)
        if (
            scan.flags & HAS_REPLY_TO
            and scan.reply_to_len == REPLY_TO_LEN
            and same(REPLY_TO, d, scan.reply_to_at, scan.reply_to_at + REPLY_TO_LEN)
        ):
            marks |= C_DIRECT_REPLY_TO
        self.marks = marks
        if scan.flags & HAS_EXPIRATION:
            p.deadline_ms = self.expires_at(
                cut(d, scan.expiration_at, scan.expiration_at + scan.expiration_len)
            )
        if scan.flags & HAS_USER_ID:
            self.check_user_id(
                cut(d, scan.user_id_at, scan.user_id_at + scan.user_id_len).decode(
                    "utf-8", "replace"
                )
            )

    def expires_at(self, expiration: bytes) -> int:
        """Return the deadline of a message in milliseconds; some clients send it themselves."""
        if self.absolute_expirations and expiration.isdigit() and len(expiration) <= DIGITS_MAX:
            number = int(expiration)
            if is_moment(number):
                return deadline_of(number, 0)
        return self.counters.now_ms + expiration_ms(expiration)

    def check_user_id(self, user_id: str) -> None:
        """Refuse a message with another user's user-id, except from an impersonator."""
        user = self.connection.user
        if user_id != user.name and "impersonator" not in user.tags:
            text = f"user_id property set to '{user_id}' but authenticated user was '{user.name}'"
            self.context.record_refusal(self.connection, text)
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)

    def with_reply_to(
        self, channel: Channel, d: bytes | bytearray, args: int, header: int, end: int
    ) -> bytes:
        """Return the publish with the name of the channel's own queue as its reply-to."""
        self.marks &= ~C_DIRECT_REPLY_TO
        name = reply_address(channel).encode()
        at = self.scan.reply_to_at
        size_at, payload = header + C_SIZE_AT, header + C_PAYLOAD_AT
        size = get32(d, size_at) + len(name) - REPLY_TO_LEN
        head = cut(d, args, size_at) + size.to_bytes(4, "big") + cut(d, payload, at - 1)
        tail = cut(d, at + REPLY_TO_LEN, end)
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


def find_marks(d: bytes | bytearray, at: int, end: int) -> int:
    """Return marks for the keys that a table may have: CC, BCC, x-publishing-id, x-delay.

    A false mark does no harm: the key is looked up later.
    """
    marks = 0
    end -= 3
    while at < end:
        length = d[at]  # Of a key, if one begins here.
        if length > C_ID_LEN:  # True of most bytes.
            pass
        elif length == C_CC_LEN:
            if d[at + 1] == ord("C") and d[at + 2] == ord("C"):
                marks |= C_COPIES
        elif length == C_BCC_LEN:
            if d[at + 1] == ord("B") and d[at + 2] == ord("C") and d[at + 3] == ord("C"):
                marks |= C_COPIES
        elif length == C_DELAY_LEN:
            if (
                end - at > 4
                and d[at + 1] == ord("x")
                and d[at + 3] == ord("d")
                and d[at + 7] == ord("y")
            ):
                marks |= C_DELAYED  # x.d...y
        elif (
            length == C_ID_LEN
            and end - at > 12
            and d[at + 1] == ord("x")  # x-p........g..d
            and d[at + 3] == ord("p")
            and d[at + 12] == ord("g")
            and d[at + 15] == ord("d")
        ):
            marks |= C_NUMBERED
        at += 1
    return marks
