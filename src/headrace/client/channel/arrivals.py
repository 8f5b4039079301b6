# SPDX-License-Identifier: Apache-2.0
"""Deliveries and confirms of one channel in AMQP 0-9-1, taken from the read buffer.

The protocol's machine adds them here while it walks the frames of one read. Then `after_read`
notifies consumers and publishers once. Unusual frames take the ordinary path, which reports their
errors.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

import cython

from headrace.client.channel.delivery import ChannelPort
from headrace.client.message import expiration_of
from headrace.wire.properties import BasicScan
from headrace.wire.table import decode_table, decode_timestamp

if not cython.compiled:
    from headrace.protocol.v0_x.channel import DeliveryCollector
    from headrace.wire.memory import cut, get32, get64, same
    from headrace.wire.properties import scan_basic
    from headrace.wire.property_bits import HAS_PRIORITY, HAS_TIMESTAMP
    from headrace.wire.table import check_utf8

if TYPE_CHECKING:
    from headrace.client.channel.delivery import Delivery
    from headrace.client.link.link_0_x import Notifier


class InboxConsumer(Protocol):
    """A consumer, as its inbox uses it."""

    def arrived(self, count: int, octets: int) -> None:
        """Take notice of new deliveries in the inbox, by number and bytes of bodies."""


class ConfirmedChannel(ChannelPort, Protocol):
    """A channel, as its arrivals use it."""

    def confirmed(self, tag: int, multiple: bool) -> None:
        """The broker acked a publish, with `multiple` all up to its tag."""


class Inbox:
    """Deliveries of one consumer that were not handed out."""

    def __init__(self, taker: InboxConsumer, tag: str, no_ack: bool) -> None:
        self.deliveries: deque[Delivery] = deque()
        self.taker = taker
        self.tag = tag
        self.no_ack = no_ack
        self.is_open = False  # Whether it takes deliveries without a call to its consumer.
        self.count = 0  # Deliveries not reported to the taker yet.
        self.octets = 0  # Bytes of the bodies of these deliveries.


class Arrivals(DeliveryCollector):
    """Deliveries and confirms of one opening of a channel."""

    def __init__(
        self, channel: ConfirmedChannel, epoch: int, kind: type[Delivery], due: list[Notifier]
    ) -> None:
        """`due` is a list that it joins when `after_read` is to be called."""
        self.channel = channel
        self.epoch = epoch
        self.kind = kind
        self.due = due
        self.inboxes: dict[bytes, Inbox] = {}  # The inboxes by consumer tag.
        self.filled: list[Inbox] = []
        self.confirms: list[tuple[int, bool]] = []
        self.is_due = False
        self.scan = BasicScan()
        self.exchange = ""  # The last delivery's, which the next one often repeats.
        self.exchange_octets = b""
        self.routing_key = ""
        self.routing_key_octets = b""

    def put(
        self,
        d: bytes | bytearray,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        end: int,
        body_size: int,
    ) -> int:
        at = args + 1 + d[args]
        exchange = at + 10
        if exchange >= args_end:
            return 0
        routing_key = exchange + 1 + d[at + 9]
        if routing_key > args_end or routing_key + d[routing_key - 1] != args_end:
            return 0
        inbox = self.inboxes.get(cut(d, args + 1, at))
        scan = self.scan
        if inbox is None or not inbox.is_open or not scan_basic(d, header, header_end, scan):
            return 0
        if not same(self.exchange_octets, d, exchange, routing_key - 1):
            if not check_utf8(d, exchange, routing_key - 1):
                return 0
            self.exchange_octets = cut(d, exchange, routing_key - 1)
            self.exchange = self.exchange_octets.decode()
        if not same(self.routing_key_octets, d, routing_key, args_end):
            if not check_utf8(d, routing_key, args_end):
                return 0
            self.routing_key_octets = cut(d, routing_key, args_end)
            self.routing_key = self.routing_key_octets.decode()
        delivery = self.read(d, scan)
        delivery.body = body_of(d, header_end + 1, end, body_size)
        delivery.exchange = self.exchange
        delivery.routing_key = self.routing_key
        delivery.delivery_tag = get64(d, at)
        delivery.redelivered = (d[at + 8] & 1) != 0
        delivery.consumer_tag = inbox.tag
        delivery.message_count = 0
        delivery.channel = self.channel
        delivery.epoch = self.epoch
        delivery.settled = inbox.no_ack
        if not inbox.count:
            self.filled.append(inbox)
            self.become_due()
        inbox.count += 1
        inbox.octets += body_size
        inbox.deliveries.append(delivery)
        return 1

    def read(self, d: bytes | bytearray, scan: BasicScan) -> Delivery:
        """A delivery with the properties that were found."""
        delivery = self.kind.__new__(self.kind)
        delivery.headers = (
            decode_table(cut(d, scan.headers_at, scan.headers_end))[0]
            if scan.headers_at >= 0
            else {}
        )
        delivery.persistent = scan.delivery_mode == 2
        delivery.priority = scan.priority if scan.flags & HAS_PRIORITY else None
        delivery.timestamp = (
            decode_timestamp(scan.timestamp) if scan.flags & HAS_TIMESTAMP else None
        )
        delivery.content_type = text(d, scan.content_type_at, scan.content_type_len)
        delivery.content_encoding = text(d, scan.content_encoding_at, scan.content_encoding_len)
        delivery.correlation_id = text(d, scan.correlation_id_at, scan.correlation_id_len)
        delivery.reply_to = text(d, scan.reply_to_at, scan.reply_to_len)
        delivery.expiration = (
            expiration_of(text(d, scan.expiration_at, scan.expiration_len))
            if scan.expiration_at >= 0
            else None
        )
        delivery.message_id = text(d, scan.message_id_at, scan.message_id_len)
        delivery.type = text(d, scan.type_at, scan.type_len)
        delivery.user_id = text(d, scan.user_id_at, scan.user_id_len)
        delivery.app_id = text(d, scan.app_id_at, scan.app_id_len)
        delivery.cluster_id = text(d, scan.cluster_id_at, scan.cluster_id_len)
        return delivery

    def confirm(self, delivery_tag: int, multiple: int) -> int:
        self.confirms.append((delivery_tag, multiple != 0))
        self.become_due()
        return 1

    def become_due(self) -> None:
        """Request a call of `after_read` after this read."""
        if not self.is_due:
            self.is_due = True
            self.due.append(self)

    def after_read(self) -> None:
        """Notify consumers and publishers of this read's deliveries and confirms.

        Raises:
            AmqpError: the broker confirmed a tag that was not published.
            BufferOverflow: the connection holds more messages than allowed.
        """
        self.is_due = False
        filled, self.filled = self.filled, []
        confirms, self.confirms = self.confirms, []
        for inbox in filled:
            count, octets = inbox.count, inbox.octets
            inbox.count = inbox.octets = 0
            inbox.taker.arrived(count, octets)
        for tag, multiple in confirms:
            self.channel.confirmed(tag, multiple)


def text(d: bytes | bytearray, at: int, size: int) -> str | None:
    """A property that is a short string; None when it is absent."""
    return None if at < 0 else cut(d, at, at + size).decode("utf-8", "surrogateescape")


def body_of(d: bytes | bytearray, at: int, end: int, size: int) -> bytes:
    """The body in the body frames ``d[at:end]``."""
    if not size:
        return b""
    if at + 8 + size == end:  # One frame, the usual case.
        return cut(d, at + 7, end - 1)
    pieces = []
    while at < end:
        length = get32(d, at + 3)
        pieces.append(cut(d, at + 7, at + 7 + length))
        at += 8 + length
    return b"".join(pieces)
