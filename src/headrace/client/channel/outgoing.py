# SPDX-License-Identifier: Apache-2.0
"""A publish on its way: encoded once, when it is published, and settled by its confirm.

A body of a wrong type, a name that is too long and a property that no header can hold are refused
here, before the channel records the publish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import cython

from headrace.client.message import Message, encode_header, octets_of
from headrace.protocol.codec_0_x import BasicPublish
from headrace.wire.buffer import pack_shortstr, pack_text
from headrace.wire.table import encode_table

if not cython.compiled:
    from headrace.spec.ids import BASIC_PUBLISH
    from headrace.wire.memory import put16, put32, put64
    from headrace.wire.property_bits import (
        BASIC_HEADER,
        HAS_APP_ID,
        HAS_CONTENT_TYPE,
        HAS_CORRELATION_ID,
        HAS_DELIVERY_MODE,
        HAS_HEADERS,
        HAS_MESSAGE_ID,
        HAS_REPLY_TO,
        HAS_TYPE,
    )

if TYPE_CHECKING:
    from headrace.client.errors import Returned
    from headrace.client.message import Content

SHORT_MAX = 255  # Octets of a short string.
MANDATORY = 1


class Outcome(Protocol):
    """Receives the outcome of a publication: a future, or a thread's confirmation."""

    def done(self) -> bool:
        """Return True if nothing waits for the outcome."""

    def set_result(self, result: None, /) -> None:
        """The broker has confirmed the message."""

    def set_exception(self, exception: BaseException, /) -> None:
        """The broker has not taken the message, or its confirm is lost."""


class Publication:
    """A message to send, or one that was sent and is not confirmed."""

    def __init__(
        self, content: Content, exchange: str, routing_key: str, mandatory: bool, ticket: int
    ) -> None:
        """Encode the publish; TypeError or ValueError when it cannot be sent."""
        self.known: Message | None = None  # Made when it is asked for, unless it was given.
        if isinstance(content, Message):
            sent = Message.of(content)
            self.known = sent
            self.body = sent.body
            self.header = header_of(sent)
        else:
            self.body = octets_of(content)
            self.header = plain_header(len(self.body))
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.ticket = ticket
        self.address = address_of(exchange, routing_key, mandatory, ticket)
        self.confirmed: Outcome | None = None
        self.returned: Returned | None = None

    @property
    def message(self) -> Message:
        """The message as the program gave it, or an equal one."""
        if self.known is None:
            self.known = Message(self.body)
        return self.known

    @property
    def method(self) -> BasicPublish:
        """The basic.publish in `address`, for links of another version."""
        return BasicPublish(
            ticket=self.ticket,
            exchange=self.exchange,
            routing_key=self.routing_key,
            mandatory=self.mandatory,
        )

    def settle(self, error: Exception | None) -> None:
        """Set the outcome, unless the waiter has gone."""
        confirmed = self.confirmed
        if confirmed is not None and not confirmed.done():
            if error is None:
                confirmed.set_result(None)
            else:
                confirmed.set_exception(error)


def address_of(exchange: str, routing_key: str, mandatory: bool, ticket: int) -> bytes:
    """Return the payload of the frame of a basic.publish; ValueError when a name is too long."""
    first = exchange.encode()
    second = routing_key.encode()
    if len(first) > SHORT_MAX or len(second) > SHORT_MAX:
        pack_shortstr(exchange)
        pack_shortstr(routing_key)
    head = bytearray(7)
    put32(head, 0, BASIC_PUBLISH)
    put16(head, 4, ticket)
    head[6] = len(first)
    end = bytearray(1)
    end[0] = MANDATORY if mandatory else 0
    return b"".join((head, first, len(second).to_bytes(1, "big"), second, end))


def plain_header(body_size: int) -> bytes:
    """Return the header of a persistent message without other properties."""
    header = bytearray(15)
    put32(header, 0, BASIC_HEADER)
    put64(header, 4, body_size)
    put16(header, 12, HAS_DELIVERY_MODE)
    header[14] = 2
    return bytes(header)


def header_of(message: Message) -> bytes:
    """Return the payload of the header frame; ValueError when a property cannot be sent.

    The properties that most messages have are encoded here, the others by the codec.
    """
    if (
        message.content_encoding is not None
        or message.priority is not None
        or message.expiration is not None
        or message.timestamp is not None
        or message.user_id is not None
        or message.cluster_id is not None
    ):
        return encode_header(message)
    flags = 0
    parts = [b""]
    if message.content_type is not None:
        flags |= HAS_CONTENT_TYPE
        parts.append(short(message.content_type))
    if message.headers:
        flags |= HAS_HEADERS
        parts.append(encode_table(dict(message.headers)))
    if message.persistent:
        flags |= HAS_DELIVERY_MODE
        parts.append(b"\2")
    if message.correlation_id is not None:
        flags |= HAS_CORRELATION_ID
        parts.append(short(message.correlation_id))
    if message.reply_to is not None:
        flags |= HAS_REPLY_TO
        parts.append(short(message.reply_to))
    if message.message_id is not None:
        flags |= HAS_MESSAGE_ID
        parts.append(short(message.message_id))
    if message.type is not None:
        flags |= HAS_TYPE
        parts.append(short(message.type))
    if message.app_id is not None:
        flags |= HAS_APP_ID
        parts.append(short(message.app_id))
    head = bytearray(14)
    put32(head, 0, BASIC_HEADER)
    put64(head, 4, len(message.body))
    put16(head, 12, flags)
    parts[0] = bytes(head)
    return b"".join(parts)


def short(text: str) -> bytes:
    """Return a short string; ValueError when it is too long."""
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > SHORT_MAX:
        return pack_text(text)
    return len(raw).to_bytes(1, "big") + raw
