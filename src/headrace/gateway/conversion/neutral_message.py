# SPDX-License-Identifier: Apache-2.0
"""The fields of a message.transfer of 0-9, read into the neutral set and written.

The method has a field for most properties, and no field can be left out: an empty text and the
number 0 stand for a missing property. Properties without a field are in the application headers. In
other versions, the fields that only this method has are headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.conversion.neutral import (
    JMS_TYPE,
    Properties,
    bytes_to_text,
    format_reply_to,
    is_text,
    set_app_id,
    set_correlation_id,
    set_message_id,
    set_reply_to,
)
from headrace.gateway.conversion.neutral_values import (
    STR16,
    VBIN16,
    CannotConvert,
    Entry,
    decode_table_entries,
    encode_table_entries,
    find_header,
    format_uuid,
)
from headrace.gateway.conversion.plain_headers import plain_table
from headrace.wire.table import check_table, decode_table, encode_table, encode_timestamp

if TYPE_CHECKING:
    from headrace.protocol.codec_0_x import MessageTransfer

CLUSTER_ID = b"x-headrace-cluster-id"
TRANSACTION_ID = b"x-headrace-transaction-id"
SECURITY_TOKEN = b"x-headrace-security-token"

_TRANSFER = b"\x00\x78\x00\x0a\x00\x00"  # Class, method, ticket.


def read_message(method: MessageTransfer) -> Properties:
    """Read the fields of a transfer that a client sent."""
    properties = Properties()
    headers = method.application_headers
    if headers:
        table = encode_table(headers)
        properties.headers = decode_table_entries(table, 4, len(table))
        properties.type = _pop_text(properties, JMS_TYPE)
        properties.cluster_id = _pop_text(properties, CLUSTER_ID)
    properties.ttl_ms = method.ttl or None
    properties.priority = method.priority or None
    properties.delivery_mode = method.delivery_mode or None
    properties.timestamp_s = encode_timestamp(method.timestamp) or None
    properties.content_type = method.content_type.encode() or None
    properties.content_encoding = method.content_encoding.encode() or None
    properties.user_id = method.user_id.encode() or None
    if method.message_id:
        set_message_id(properties, method.message_id.encode())
    if method.correlation_id:
        set_correlation_id(properties, method.correlation_id.encode())
    if method.reply_to:
        set_reply_to(properties, method.reply_to.encode())
    if method.app_id:
        set_app_id(properties, method.app_id.encode())
    added: list[Entry] = []
    if method.transaction_id:
        added.append((TRANSACTION_ID, (STR16, method.transaction_id.encode())))
    if method.security_token:
        added.append((SECURITY_TOKEN, (VBIN16, method.security_token[:65535])))
    if added:
        properties.headers = [*(properties.headers or ()), *added]
    return properties


def _pop_text(properties: Properties, key: bytes) -> bytes | None:
    """Remove a property of class basic from the headers."""
    value = find_header(properties.headers, key)
    if value is None or value[0] != STR16 or not is_text(value[1]):
        return None
    assert properties.headers is not None
    properties.headers = [entry for entry in properties.headers if entry[0] != key] or None
    raw: bytes = value[1]
    return raw


def write_message(
    properties: Properties,
    destination: bytes,
    exchange: bytes,
    routing_key: bytes,
    *,
    redelivered: bool,
    expiration_s: int,
    plain: bool,
) -> bytes:
    """Return the payload of a transfer's method frame, up to its body.

    With ``plain`` the headers have only the value types of the standard.

    Raises:
        CannotConvert: a transfer of 0-9 has no form for a property.
    """
    # One function, because the fields are in the order of the method's arguments.
    headers = list(properties.headers or ())
    transaction_id = _pop_field(headers, TRANSACTION_ID, STR16)
    security_token = _pop_field(headers, SECURITY_TOKEN, VBIN16)
    if properties.type is not None and find_header(headers, JMS_TYPE) is None:
        headers.append((JMS_TYPE, (STR16, properties.type)))
    if properties.cluster_id is not None:
        headers.append((CLUSTER_ID, (STR16, properties.cluster_id)))
    table = encode_table_entries(headers)
    table = len(table).to_bytes(4, "big") + table
    if check_table(table, 0, len(table)) < 0:
        raise CannotConvert("the headers exceed the limits of a field table")
    if plain and headers:
        table = plain_table(decode_table(table)[0])
    reply_to = properties.reply_text
    if reply_to is None and (
        properties.reply_exchange is not None or properties.reply_key is not None
    ):
        reply_to = format_reply_to(properties.reply_exchange, properties.reply_key)
    message_id = properties.message_id_text
    if message_id is None and properties.message_uuid is not None:
        message_id = format_uuid(properties.message_uuid)
    correlation_id = properties.correlation_id_text
    if correlation_id is None and properties.correlation_id is not None:
        correlation_id = bytes_to_text(properties.correlation_id)
    app_id = properties.app_id_text
    if app_id is None and properties.app_id is not None:
        app_id = bytes_to_text(properties.app_id)
    texts = (
        exchange,
        routing_key,
        message_id,
        correlation_id,
        reply_to,
        properties.content_type,
        properties.content_encoding,
        properties.user_id,
        app_id,
        transaction_id,
    )
    return b"".join(
        (
            _TRANSFER,
            _encode_shortstr(destination),
            b"\x01" if redelivered else b"\x00",
            (properties.ttl_ms or 0).to_bytes(8, "big"),
            bytes((properties.priority or 0,)),
            (properties.timestamp_s or 0).to_bytes(8, "big"),
            bytes((properties.delivery_mode or 0,)),
            expiration_s.to_bytes(8, "big"),
            *map(_encode_shortstr, texts),
            len(security_token or b"").to_bytes(4, "big"),
            security_token or b"",
            table,
        )
    )


def _pop_field(headers: list[Entry], key: bytes, code: int) -> bytes | None:
    """Remove the value of a field from the headers that carried it."""
    value = find_header(headers, key)
    if value is None or value[0] != code or (code == STR16 and not is_text(value[1])):
        return None
    headers[:] = [entry for entry in headers if entry[0] != key]
    raw: bytes = value[1]
    return raw


def _encode_shortstr(text: bytes | None) -> bytes:
    """Return a short string; empty for a text without that form."""
    if text is None or not is_text(text):
        return b"\x00"
    return bytes((len(text),)) + text
