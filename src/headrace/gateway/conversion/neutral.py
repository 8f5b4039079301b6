# SPDX-License-Identifier: Apache-2.0
"""The properties of a message, independent of the version, and their text forms.

Each family of versions has one module that reads its content headers into this set and writes them:
:mod:`~headrace.gateway.conversion.neutral_basic` for class basic of 0-8, 0-9 and 0-9-1,
:mod:`~headrace.gateway.conversion.neutral_transfer` for 0-10 and
:mod:`~headrace.gateway.conversion.neutral_message` for the message class of 0-9. There is thus one
conversion per family, not one per pair of families.

A property that a family lacks is carried opaquely in one header (``x-headrace-0-x`` in a 0-10
message, ``x-headrace-0-10`` in a 0-x one), and restored when the message returns to its own family
with related properties unchanged.
"""

from __future__ import annotations

import cython

from headrace.gateway.conversion.neutral_values import Entry, format_uuid
from headrace.model.arguments.expiration import is_expiry_time

if not cython.compiled:
    from headrace.wire.table import check_utf8

TEXT_MAX = 255  # The maximum bytes of a short string.
TTL_MS_MAX = 0xFFFFFFFF  # The maximum of an expiration of a 0-x message.

CARRIER_0_X = b"x-headrace-0-x"  # The header of a 0-10 message with properties of 0-x.
CARRIER_0_10 = b"x-headrace-0-10"  # The header of a 0-x message with properties of 0-10.
JMS_TYPE = b"x-jms-type"  # The header in which 0-10 clients in use keep the type of a message.
BINARY_PREFIX = b"AMQP_BINARY:"  # Before the hexadecimal form of bytes that are not text.


class Properties:
    """All properties of a message; absent ones are None."""

    __slots__ = (
        "app_id",
        "app_id_text",
        "cluster_id",
        "content_encoding",
        "content_type",
        "correlation_id",
        "correlation_id_text",
        "delivery_mode",
        "expiration",
        "expiration_text",
        "headers",
        "message_id_text",
        "message_uuid",
        "priority",
        "reply_exchange",
        "reply_key",
        "reply_text",
        "security_token",
        "structs",
        "timestamp_s",
        "transaction_id",
        "ttl_ms",
        "type",
        "user_id",
    )

    def __init__(self) -> None:
        self.content_type: bytes | None = None
        self.content_encoding: bytes | None = None
        self.headers: list[Entry] | None = None
        self.delivery_mode: int | None = None  # 1 or 2; a 0-x message may have any byte.
        self.priority: int | None = None
        # Ids are bytes. A text is set if it differs from what `bytes_to_text` returns for the id.
        self.correlation_id: bytes | None = None
        self.correlation_id_text: bytes | None = None
        self.app_id: bytes | None = None
        self.app_id_text: bytes | None = None
        self.user_id: bytes | None = None
        self.reply_exchange: bytes | None = None
        self.reply_key: bytes | None = None
        self.reply_text: bytes | None = None  # The text of a 0-x message, if in another form.
        self.ttl_ms: int | None = None
        self.expiration_text: bytes | None = None  # Like ``reply_text``.
        #: The time of expiry if there is no ttl, in seconds or milliseconds, as sent.
        self.expiration: int | None = None
        self.message_uuid: bytes | None = None  # 16 bytes.
        self.message_id_text: bytes | None = None  # Like ``reply_text``, or not a UUID.
        self.timestamp_s: int | None = None
        self.type: bytes | None = None
        self.cluster_id: bytes | None = None
        self.structs: bytes | None = None  # Unknown structs of a 0-10 header.
        self.transaction_id: bytes | None = None  # A property of the message class of 0-9.
        self.security_token: bytes | None = None


# --- Text forms -----------------------------------------------------------------------------------


def is_text(raw: bytes) -> bool:
    """Return True if the bytes fit into a short string."""
    return len(raw) <= TEXT_MAX and check_utf8(raw, 0, len(raw))


def bytes_to_text(raw: bytes) -> bytes | None:
    """Convert bytes to a short string; None if they are too long."""
    if is_text(raw) and not raw.startswith(BINARY_PREFIX):
        return raw
    text = BINARY_PREFIX + raw.hex().upper().encode()
    return text if len(text) <= TEXT_MAX else None


def text_to_bytes(text: bytes) -> bytes:
    """Return the bytes of a text that :func:`bytes_to_text` made."""
    if text.startswith(BINARY_PREFIX):
        try:
            raw = bytes.fromhex(text[len(BINARY_PREFIX) :].decode())
        except ValueError:
            return text
        if bytes_to_text(raw) == text:
            return raw
    return text


def parse_uuid(text: bytes) -> bytes | None:
    """Parse a UUID, with or without the ``ID:`` of JMS; return None for any other text."""
    if text[:3] == b"ID:":
        text = text[3:]
    if len(text) != 36 or text[8:9] + text[13:14] + text[18:19] + text[23:24] != b"----":
        return None
    digits = text.replace(b"-", b"")
    if len(digits) != 32 or not digits.isalnum():
        return None
    try:
        return bytes.fromhex(digits.decode())
    except ValueError:
        return None


_EXCHANGE_CLASSES = {b"amq.topic": b"topic", b"amq.fanout": b"fanout", b"amq.match": b"headers"}


def format_reply_to(exchange: bytes | None, key: bytes | None) -> bytes:
    """Convert a reply-to to a short string: the queue's name, or a binding URL.

    With the default exchange the routing key is the name of a queue, to which 0-x clients answer.
    For any other exchange the string is the URL that Qpid's clients write and read.
    """
    key = key or b""
    if not exchange and b"://" not in key:
        return key
    exchange = exchange or b""
    exchange_class = _EXCHANGE_CLASSES.get(exchange, b"direct")
    return b"%s://%s//?routingkey='%s'" % (exchange_class, exchange, key)


def parse_reply_to(text: bytes) -> tuple[bytes, bytes]:
    """Return exchange and routing key of a reply-to."""
    exchange_class, separator, target = text.partition(b"://")
    if not separator or not exchange_class.isalpha():
        return b"", text
    path, _, options = target.partition(b"?")
    parts = path.split(b"/")
    _, equals, tail = options.partition(b"routingkey='")
    if equals:
        key = tail.rpartition(b"'")[0] if b"'," not in tail else tail.partition(b"',")[0]
    else:
        key = b"/".join(parts[2:]) or (parts[1] if len(parts) > 1 else b"")
    if len(parts[0]) > TEXT_MAX or len(key) > TEXT_MAX:
        return b"", text
    return parts[0], key


def set_message_id(properties: Properties, text: bytes) -> None:
    """Set a message id from text."""
    properties.message_uuid = parse_uuid(text)
    if properties.message_uuid is None or format_uuid(properties.message_uuid) != text:
        properties.message_id_text = text


def set_correlation_id(properties: Properties, text: bytes) -> None:
    """Set a correlation id from text."""
    properties.correlation_id = text_to_bytes(text)
    if bytes_to_text(properties.correlation_id) != text:
        properties.correlation_id_text = text


def set_app_id(properties: Properties, text: bytes) -> None:
    """Set an application id from text."""
    properties.app_id = text_to_bytes(text)
    if bytes_to_text(properties.app_id) != text:
        properties.app_id_text = text


def parse_raw_reply_to(text: bytes) -> tuple[bytes | None, bytes | None]:
    """Return exchange and routing key of a reply-to; None for bytes that are not UTF-8."""
    return parse_reply_to(text) if is_text(text) else (None, None)


def set_reply_to(properties: Properties, text: bytes) -> None:
    """Set a reply-to from text."""
    properties.reply_exchange, properties.reply_key = parse_raw_reply_to(text)
    if format_reply_to(properties.reply_exchange, properties.reply_key) != text:
        properties.reply_text = text


def set_expiration(properties: Properties, text: bytes) -> None:
    """Set an expiration from text: whole milliseconds to live, or since the epoch."""
    if text.isdigit() and len(text) <= 20 and int(text) < 1 << 64:
        if is_expiry_time(int(text)):
            properties.expiration = int(text)
        else:
            properties.ttl_ms = int(text)
    if properties.ttl_ms is None or b"%d" % properties.ttl_ms != text:
        properties.expiration_text = text
