# SPDX-License-Identifier: Apache-2.0
"""What a 0-8, 0-9 or 0-9-1 client publishes, from the frames to the queues.

``on_publish`` is given offsets into the receive buffer. The address is looked up among the
connection's routes (one memcmp when it repeats, one dict lookup when it is known), the header's
flags say whether anything in it matters to us, and then it goes to its queues
(:mod:`headrace.gateway.v0_x.connection.queue_fanout`), or is looked at more closely
(:mod:`headrace.gateway.v0_x.connection.special_publish`).
"""

import re

import cython

if not cython.compiled:
    from headrace.gateway.messages.route import Route
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.special_publish import SpecialPublisher, at_once
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

from typing import Any

from headrace.gateway.messages.direct_reply_to import answers_to
from headrace.gateway.v0_x.connection.context import V0xContext
from headrace.model.arguments.expiration import EXPIRY_MS_MAX, deadline_of, is_moment
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

REPLY_TO = b"amq.rabbitmq.reply-to"
REPLY_TO_LEN = 21
DIGITS_MAX = 19  # Of a number of 64 bits with a sign.


class Publisher(SpecialPublisher):
    """A connection, as far as it publishes."""

    def __init__(self, context: V0xContext, number: int) -> None:
        SpecialPublisher.__init__(self, context, number)
        self.scan = BasicScan()
        self.asks = False  # It asks for an answer by direct reply-to.
        self.takes_moments = False  # Large expirations are moments.

    def on_publish(
        self,
        channel: Any,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
    ) -> None:
        self.publish(channel, d, args, address_len, header, end, body_size, None)

    def on_publish_large(
        self,
        channel: Any,
        start: bytes,
        address_len: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        self.publish(channel, start, 0, address_len, address_len + 2, len(start), body_size, parts)

    def publish(
        self,
        channel: Channel,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> None:
        """Take one publish: check, route, keep, hand out. ``parts`` is a large body."""
        self.current = BASIC_PUBLISH
        flags = get16(d, header + 19)
        size = get32(d, header + 3)
        if flags == 0 and size == 14:
            self.mode = 0
            self.priority = 0
            self.deadline_ms = 0
        elif flags == HAS_DELIVERY_MODE and size == 15:
            self.mode = d[header + 21]
            self.priority = 0
            self.deadline_ms = 0
        else:
            self.examine(d, header + 7, header + 7 + size)
            if self.asks:
                question = self.with_reply_to(channel, d, args, header, end)
                header -= args
                end = len(question)
                self.publish(channel, question, 0, address_len, header, end, body_size, parts)
                return
            if self.copied or self.numbered or self.delays:
                p = self.taken(d, args, address_len, header, end, body_size, parts)
                self.publish_marked(channel, p)
                return
        route = self.route
        if (
            route is None
            or route.generation != self.counters.generation
            or not same(route.key, d, args, args + address_len)
        ):
            if channel.dtx:
                p = self.taken(d, args, address_len, header, end, body_size, parts)
                self.publish_in_branch(channel, p)
                return
            route = self.find_route(cut(d, args, args + address_len), d, header + 7, size)
            if route.interception is not None:
                self.publishes = self.publishes or not route.serves
                p = self.taken(d, args, address_len, header, end, body_size, parts)
                p.route = route
                self.publish_passing(channel, p)
                return
        if not route.uncommon:
            self.publishes = True
        else:
            if not route.serves:  # Requests may come while publishers wait: some make room.
                self.publishes = True
            if route.keeps:
                self.mode = 2
        bits = d[args + address_len]
        if channel.tx:
            p = self.taken(d, args, address_len, header, end, body_size, parts)
            p.route = route
            self.publish_later(channel, p)
            return
        refused = 0
        if route.count and not bits & 2:
            refused = self.spread(route, d, args, address_len, end, body_size, parts)
        elif bits:
            p = self.taken(d, args, address_len, header, end, body_size, parts)
            p.route = route
            refused = self.publish_rarely(channel, p)
        else:
            self.counters.published += 1
        if refused:
            self.refuse(channel, route)
        elif channel.confirms:
            channel.publish_seen()

    def publish_whole(
        self,
        channel: Channel,
        data: bytes,
        address_len: int,
        body_size: int,
        parts: tuple[bytes, ...] | None,
    ) -> int:
        """Take a publish that came by another class than basic, laid out as for that.

        Returns:
            How many queues refused it; -1 when it is immediate and nobody takes it at once.
        """
        header = address_len + 2
        self.examine(data, header + 7, header + 7 + get32(data, header + 3))
        if self.asks:
            data = self.with_reply_to(channel, data, 0, header, len(data))
        p = self.taken(data, 0, address_len, header, len(data), body_size, parts)
        self.look_closely(p)
        if not p.route.serves:
            self.publishes = True
        bits = data[address_len]
        if channel.tx:
            self.publish_later(channel, p)
            return 0
        if p.delay_ms:
            self.put_off(p)
        elif p.route.interception is not None:
            if bits & 2 and not at_once(p.route.queues):
                return -1
            return self.pass_on(channel, p, False)
        if p.number is not None and not bits & 2:
            return self.publish_once(channel, p)
        route = p.route
        if bits & 2:
            ready = at_once(route.queues)
            if not ready:
                return -1
            route = Route(route.key, ready, 0)
        if route.count == 0:
            self.counters.published += 1
            return 0
        return self.give(p, route)

    def examine(self, d: bytes | bytearray, lo: int, hi: int) -> None:
        """Read what matters to us from a content header that holds more than a delivery mode."""
        scan = self.scan
        if not scan_basic(d, lo, hi, scan):
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "malformed content header")
        self.mode = scan.delivery_mode if scan.flags & HAS_DELIVERY_MODE else 0
        self.priority = scan.priority if scan.flags & HAS_PRIORITY else 0
        self.deadline_ms = 0
        self.asks = (
            scan.flags & HAS_REPLY_TO != 0
            and scan.reply_to_len == REPLY_TO_LEN
            and same(REPLY_TO, d, scan.reply_to_at, scan.reply_to_at + REPLY_TO_LEN)
        )
        marks = 0
        if scan.flags & HAS_HEADERS:
            marks = marked(d, scan.headers_at, scan.headers_end)
        self.copied = marks & 1 != 0
        self.numbered = marks & 2 != 0
        self.delays = marks & 4 != 0
        if scan.flags & HAS_EXPIRATION:
            self.deadline_ms = self.expires_at(
                cut(d, scan.expiration_at, scan.expiration_at + scan.expiration_len)
            )
        if scan.flags & HAS_USER_ID:
            self.check_user_id(
                cut(d, scan.user_id_at, scan.user_id_at + scan.user_id_len).decode(
                    "utf-8", "replace"
                )
            )

    def expires_at(self, expiration: bytes) -> int:
        """Return when a message expires; some clients may name the moment itself."""
        if self.takes_moments and expiration.isdigit() and len(expiration) <= DIGITS_MAX:
            number = int(expiration)
            if is_moment(number):
                return deadline_of(number, 0)
        return self.counters.now_ms + expiration_ms(expiration)

    def check_user_id(self, user_id: str) -> None:
        """A message may only claim to come from the user who sends it, unless that may pose."""
        if user_id != self.user.name and "impersonator" not in self.user.tags:
            text = (
                f"user_id property set to '{user_id}' but authenticated user was '{self.user.name}'"
            )
            self.context.refused(self, text)
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)

    def with_reply_to(
        self, channel: Channel, d: bytes | bytearray, args: int, header: int, end: int
    ) -> bytes:
        """Return the publish with the name of the channel's own queue as its reply-to."""
        self.asks = False
        name = answers_to(channel).encode()
        at = self.scan.reply_to_at
        size = get32(d, header + 3) + len(name) - REPLY_TO_LEN
        head = cut(d, args, header + 3) + size.to_bytes(4, "big") + cut(d, header + 7, at - 1)
        tail = cut(d, at + REPLY_TO_LEN, end)
        return head + bytes((len(name),)) + name + tail


def expiration_ms(raw: bytes) -> int:
    """Read the property ``expiration``.

    Raises:
        AmqpError: it is not a whole number of milliseconds from 0 to EXPIRY_MS_MAX.
    """
    if raw.isdigit() and len(raw) <= 10:
        return int(raw)
    text = raw.decode("utf-8", "replace")
    number = re.match(r"[+-]?[0-9]+", text, re.ASCII)
    if number is None:
        wrong = "no_integer"
    elif number[0] != text:
        wrong = f'{{leftover_string,"{text[number.end() :]}"}}'
    elif 0 <= int(text) <= EXPIRY_MS_MAX:
        return int(text)
    else:
        wrong = f"{{{'value_negative' if text[0] == '-' else 'value_too_large'},{text}}}"
    raise AmqpError(ReplyCode.PRECONDITION_FAILED, f"invalid expiration '{text}': {wrong}")


def marked(d: bytes | bytearray, at: int, end: int) -> int:
    """Tell what keys of ours a table may have: 1 CC or BCC, 2 x-publishing-id, 4 x-delay.

    When it only looks so, no harm is done.
    """
    found = 0
    end -= 3
    while at < end:
        octet = d[at]
        if octet > 15:  # As nearly all of them are.
            pass
        elif octet == 2:
            if d[at + 1] == 67 and d[at + 2] == 67:
                found |= 1
        elif octet == 3:
            if d[at + 1] == 66 and d[at + 2] == 67 and d[at + 3] == 67:
                found |= 1
        elif octet == 7:
            if end - at > 4 and d[at + 1] == 120 and d[at + 3] == 100 and d[at + 7] == 121:
                found |= 4  # x.d...y
        elif (
            octet == 15
            and end - at > 12
            and d[at + 1] == 120  # x-p........g..d
            and d[at + 3] == 112
            and d[at + 12] == 103
            and d[at + 15] == 100
        ):
            found |= 2
        at += 1
    return found
