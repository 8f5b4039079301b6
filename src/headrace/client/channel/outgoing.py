# SPDX-License-Identifier: Apache-2.0
"""A publish, encoded when the program publishes it, and settled by its confirm.

A body of a wrong type, a name that is too long and a property that cannot be encoded raise an error
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

SHORTSTR_SIZE_MAX = 255  # The maximum bytes of a short string.
MANDATORY = 1


class Outcome(Protocol):
    """Receives the outcome of a publication: a future, or a blocking `Confirmation`."""

    def done(self) -> bool:
        """Return True if it has an outcome, or its waiter was cancelled."""

    def set_result(self, result: None, /) -> None:
        """Record that the broker has confirmed the message."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Record that the broker refused or returned the message, or that its confirm is lost."""


class Publication:
    """A message that is to be sent, or is sent and not confirmed."""

    def __init__(
        self, content: Content, exchange: str, routing_key: str, mandatory: bool, ticket: int
    ) -> None:
        """Encode the publish; TypeError or ValueError when it cannot be sent."""
        self._message: Message | None = None  # For a mere body, `message` makes it when needed.
        if isinstance(content, Message):
            message = Message.of(content)
            self._message = message
            self.body = message.body
            self.header = encode_message_header(message)
        else:
            self.body = octets_of(content)
            self.header = encode_default_header(len(self.body))
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.ticket = ticket
        self.method_payload = encode_publish(exchange, routing_key, mandatory, ticket)
        self.outcome: Outcome | None = None
        self.returned: Returned | None = None

    @property
    def message(self) -> Message:
        """The program's message; for a mere body, a message with this body."""
        if self._message is None:
            self._message = Message(self.body)
        return self._message

    @property
    def method(self) -> BasicPublish:
        """The basic.publish in `method_payload`, for links of another version."""
        return BasicPublish(
            ticket=self.ticket,
            exchange=self.exchange,
            routing_key=self.routing_key,
            mandatory=self.mandatory,
        )

    def settle(self, error: Exception | None) -> None:
        """Set the outcome, unless the waiter was cancelled."""
        outcome = self.outcome
        if outcome is not None and not outcome.done():
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(error)


def encode_publish(exchange: str, routing_key: str, mandatory: bool, ticket: int) -> bytes:
    """Return the payload of the frame of a basic.publish; ValueError when a name is too long."""
    exchange_bytes = exchange.encode()
    key_bytes = routing_key.encode()
    if len(exchange_bytes) > SHORTSTR_SIZE_MAX or len(key_bytes) > SHORTSTR_SIZE_MAX:
        pack_shortstr(exchange)
        pack_shortstr(routing_key)
    prefix = bytearray(7)
    put32(prefix, 0, BASIC_PUBLISH)
    put16(prefix, 4, ticket)
    prefix[6] = len(exchange_bytes)
    flags_byte = bytearray(1)
    flags_byte[0] = MANDATORY if mandatory else 0
    return b"".join(
        (prefix, exchange_bytes, len(key_bytes).to_bytes(1, "big"), key_bytes, flags_byte)
    )


def encode_default_header(body_size: int) -> bytes:
    """Return the header of a persistent message without other properties."""
    header = bytearray(15)
    put32(header, 0, BASIC_HEADER)
    put64(header, 4, body_size)
    put16(header, 12, HAS_DELIVERY_MODE)
    header[14] = 2
    return bytes(header)


def encode_message_header(message: Message) -> bytes:
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
    fields = [b""]
    if message.content_type is not None:
        flags |= HAS_CONTENT_TYPE
        fields.append(encode_shortstr(message.content_type))
    if message.headers:
        flags |= HAS_HEADERS
        fields.append(encode_table(dict(message.headers)))
    if message.persistent:
        flags |= HAS_DELIVERY_MODE
        fields.append(b"\2")
    if message.correlation_id is not None:
        flags |= HAS_CORRELATION_ID
        fields.append(encode_shortstr(message.correlation_id))
    if message.reply_to is not None:
        flags |= HAS_REPLY_TO
        fields.append(encode_shortstr(message.reply_to))
    if message.message_id is not None:
        flags |= HAS_MESSAGE_ID
        fields.append(encode_shortstr(message.message_id))
    if message.type is not None:
        flags |= HAS_TYPE
        fields.append(encode_shortstr(message.type))
    if message.app_id is not None:
        flags |= HAS_APP_ID
        fields.append(encode_shortstr(message.app_id))
    prefix = bytearray(14)
    put32(prefix, 0, BASIC_HEADER)
    put64(prefix, 4, len(message.body))
    put16(prefix, 12, flags)
    fields[0] = bytes(prefix)
    return b"".join(fields)


def encode_shortstr(text: str) -> bytes:
    """Return a short string; ValueError when it is too long."""
    encoded = text.encode("utf-8", "surrogateescape")
    if len(encoded) > SHORTSTR_SIZE_MAX:
        return pack_text(text)
    return len(encoded).to_bytes(1, "big") + encoded
