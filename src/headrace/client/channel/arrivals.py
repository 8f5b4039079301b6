# SPDX-License-Identifier: Apache-2.0
"""Deliveries and confirms of one channel in AMQP 0-9-1, decoded straight from the read buffer.

The protocol machine calls `put` and `confirm` while it parses the frames of one read. Then
`after_read` notifies consumers and publishers once. `put` returns 0 for unusual frames, which the
machine then handles as events, with their errors.
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
        """Handle `count` new deliveries in the inbox, with bodies of `octets` bytes."""


class ConfirmedChannel(ChannelPort, Protocol):
    """A channel, as its arrivals use it."""

    def confirmed(self, tag: int, multiple: bool) -> None:
        """Settle an acked publish, with `multiple` all up to its tag."""


class Inbox:
    """The deliveries of one consumer that the program has not received."""

    def __init__(self, consumer: InboxConsumer, tag: str, no_ack: bool) -> None:
        self.deliveries: deque[Delivery] = deque()
        self.consumer = consumer
        self.tag = tag
        self.no_ack = no_ack
        self.is_open = False  # True while `Arrivals.put` may append deliveries.
        self.count = 0  # The number of deliveries not yet reported to the consumer.
        self.octets = 0  # The bytes of the bodies of these deliveries.


class Arrivals(DeliveryCollector):
    """Deliveries and confirms of one opening of a channel."""

    def __init__(
        self,
        channel: ConfirmedChannel,
        epoch: int,
        delivery_class: type[Delivery],
        notifiers: list[Notifier],
    ) -> None:
        """Collect for the opening `epoch` of a channel.

        `notifiers` is the link's list of objects whose `after_read` it calls after this read.
        """
        self.channel = channel
        self.epoch = epoch
        self.delivery_class = delivery_class
        self.notifiers = notifiers
        self.inboxes: dict[bytes, Inbox] = {}  # The inboxes by consumer tag.
        self.filled_inboxes: list[Inbox] = []
        self.confirms: list[tuple[int, bool]] = []
        self.is_scheduled = False
        self.scan = BasicScan()
        # The exchange and routing key of the last delivery, which the next one often repeats.
        self.exchange = ""
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
        tag_position = args + 1 + d[args]
        exchange = tag_position + 10
        if exchange >= args_end:
            return 0
        routing_key = exchange + 1 + d[tag_position + 9]
        if routing_key > args_end or routing_key + d[routing_key - 1] != args_end:
            return 0
        inbox = self.inboxes.get(cut(d, args + 1, tag_position))
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
        delivery = self.make_delivery(d, scan)
        delivery.body = join_body(d, header_end + 1, end, body_size)
        delivery.exchange = self.exchange
        delivery.routing_key = self.routing_key
        delivery.delivery_tag = get64(d, tag_position)
        delivery.redelivered = (d[tag_position + 8] & 1) != 0
        delivery.consumer_tag = inbox.tag
        delivery.message_count = 0
        delivery.channel = self.channel
        delivery.epoch = self.epoch
        delivery.settled = inbox.no_ack
        if not inbox.count:
            self.filled_inboxes.append(inbox)
            self.schedule()
        inbox.count += 1
        inbox.octets += body_size
        inbox.deliveries.append(delivery)
        return 1

    def make_delivery(self, d: bytes | bytearray, scan: BasicScan) -> Delivery:
        """Return a delivery with the properties at the positions in `scan`."""
        delivery = self.delivery_class.__new__(self.delivery_class)
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
        delivery.content_type = decode_shortstr(d, scan.content_type_at, scan.content_type_len)
        delivery.content_encoding = decode_shortstr(
            d, scan.content_encoding_at, scan.content_encoding_len
        )
        delivery.correlation_id = decode_shortstr(
            d, scan.correlation_id_at, scan.correlation_id_len
        )
        delivery.reply_to = decode_shortstr(d, scan.reply_to_at, scan.reply_to_len)
        delivery.expiration = (
            expiration_of(decode_shortstr(d, scan.expiration_at, scan.expiration_len))
            if scan.expiration_at >= 0
            else None
        )
        delivery.message_id = decode_shortstr(d, scan.message_id_at, scan.message_id_len)
        delivery.type = decode_shortstr(d, scan.type_at, scan.type_len)
        delivery.user_id = decode_shortstr(d, scan.user_id_at, scan.user_id_len)
        delivery.app_id = decode_shortstr(d, scan.app_id_at, scan.app_id_len)
        delivery.cluster_id = decode_shortstr(d, scan.cluster_id_at, scan.cluster_id_len)
        return delivery

    def confirm(self, delivery_tag: int, multiple: int) -> int:
        self.confirms.append((delivery_tag, multiple != 0))
        self.schedule()
        return 1

    def schedule(self) -> None:
        """Request a call of `after_read` after this read."""
        if not self.is_scheduled:
            self.is_scheduled = True
            self.notifiers.append(self)

    def after_read(self) -> None:
        """Notify consumers and publishers of this read's deliveries and confirms.

        Raises:
            AmqpError: the broker confirmed a tag that was not published.
            BufferOverflow: the connection holds more messages than allowed.
        """
        self.is_scheduled = False
        filled_inboxes, self.filled_inboxes = self.filled_inboxes, []
        confirms, self.confirms = self.confirms, []
        for inbox in filled_inboxes:
            count, octets = inbox.count, inbox.octets
            inbox.count = inbox.octets = 0
            inbox.consumer.arrived(count, octets)
        for tag, multiple in confirms:
            self.channel.confirmed(tag, multiple)


def decode_shortstr(d: bytes | bytearray, position: int, size: int) -> str | None:
    """Return a property that is a short string; None if `position` is negative: it is absent."""
    return (
        None
        if position < 0
        else cut(d, position, position + size).decode("utf-8", "surrogateescape")
    )


def join_body(d: bytes | bytearray, position: int, end: int, size: int) -> bytes:
    """Return the body, of `size` bytes, in the body frames ``d[position:end]``."""
    if not size:
        return b""
    if position + 8 + size == end:  # One frame, the usual case.
        return cut(d, position + 7, end - 1)
    chunks = []
    while position < end:
        length = get32(d, position + 3)
        chunks.append(cut(d, position + 7, position + 7 + length))
        position += 8 + length
    return b"".join(chunks)
