# SPDX-License-Identifier: Apache-2.0
"""The fields of a message.transfer of 0-9, read into the neutral set and written.

The method has a field for most properties, and no field can be left out: an empty text and the
number 0 stand for a missing property. Properties without a field are in its application headers;
fields that only it has are in the headers of other versions, each under its own name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.conversion.neutral import (
    JMS_TYPE,
    Properties,
    is_text,
    set_app_id,
    set_correlation_id,
    set_message_id,
    set_reply_to,
    text_of_bytes,
    text_of_reply_to,
)
from headrace.gateway.conversion.neutral_values import (
    STR16,
    VBIN16,
    CannotConvert,
    Entry,
    entries_of_table,
    find,
    table_of_entries,
    text_of_uuid,
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
    p = Properties()
    headers = method.application_headers
    if headers:
        table = encode_table(headers)
        p.headers = entries_of_table(table, 4, len(table))
        p.type = _take_out(p, JMS_TYPE)
        p.cluster_id = _take_out(p, CLUSTER_ID)
    p.ttl_ms = method.ttl or None
    p.priority = method.priority or None
    p.delivery_mode = method.delivery_mode or None
    p.timestamp_s = encode_timestamp(method.timestamp) or None
    p.content_type = method.content_type.encode() or None
    p.content_encoding = method.content_encoding.encode() or None
    p.user_id = method.user_id.encode() or None
    if method.message_id:
        set_message_id(p, method.message_id.encode())
    if method.correlation_id:
        set_correlation_id(p, method.correlation_id.encode())
    if method.reply_to:
        set_reply_to(p, method.reply_to.encode())
    if method.app_id:
        set_app_id(p, method.app_id.encode())
    added: list[Entry] = []
    if method.transaction_id:
        added.append((TRANSACTION_ID, (STR16, method.transaction_id.encode())))
    if method.security_token:
        added.append((SECURITY_TOKEN, (VBIN16, method.security_token[:65535])))
    if added:
        p.headers = [*(p.headers or ()), *added]
    return p


def _take_out(p: Properties, key: bytes) -> bytes | None:
    """Remove a property of class basic from the headers."""
    value = find(p.headers, key)
    if value is None or value[0] != STR16 or not is_text(value[1]):
        return None
    assert p.headers is not None
    p.headers = [entry for entry in p.headers if entry[0] != key] or None
    raw: bytes = value[1]
    return raw


def write_message(
    p: Properties,
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
    headers = list(p.headers or ())
    transaction_id = _pop_field(headers, TRANSACTION_ID, STR16)
    security_token = _pop_field(headers, SECURITY_TOKEN, VBIN16)
    if p.type is not None and find(headers, JMS_TYPE) is None:
        headers.append((JMS_TYPE, (STR16, p.type)))
    if p.cluster_id is not None:
        headers.append((CLUSTER_ID, (STR16, p.cluster_id)))
    table = table_of_entries(headers)
    table = len(table).to_bytes(4, "big") + table
    if check_table(table, 0, len(table)) < 0:
        raise CannotConvert("the headers exceed the limits of a field table")
    if plain and headers:
        table = plain_table(decode_table(table)[0])
    reply_to = p.reply_text
    if reply_to is None and (p.reply_exchange is not None or p.reply_key is not None):
        reply_to = text_of_reply_to(p.reply_exchange, p.reply_key)
    message_id = p.message_id_text
    if message_id is None and p.message_uuid is not None:
        message_id = text_of_uuid(p.message_uuid)
    correlation_id = p.correlation_id_text
    if correlation_id is None and p.correlation_id is not None:
        correlation_id = text_of_bytes(p.correlation_id)
    app_id = p.app_id_text
    if app_id is None and p.app_id is not None:
        app_id = text_of_bytes(p.app_id)
    texts = (
        exchange,
        routing_key,
        message_id,
        correlation_id,
        reply_to,
        p.content_type,
        p.content_encoding,
        p.user_id,
        app_id,
        transaction_id,
    )
    return b"".join(
        (
            _TRANSFER,
            _short(destination),
            b"\x01" if redelivered else b"\x00",
            (p.ttl_ms or 0).to_bytes(8, "big"),
            bytes((p.priority or 0,)),
            (p.timestamp_s or 0).to_bytes(8, "big"),
            bytes((p.delivery_mode or 0,)),
            expiration_s.to_bytes(8, "big"),
            *map(_short, texts),
            len(security_token or b"").to_bytes(4, "big"),
            security_token or b"",
            table,
        )
    )


def _pop_field(headers: list[Entry], key: bytes, code: int) -> bytes | None:
    """Remove the value of a field from the headers that carried it."""
    value = find(headers, key)
    if value is None or value[0] != code or (code == STR16 and not is_text(value[1])):
        return None
    headers[:] = [entry for entry in headers if entry[0] != key]
    raw: bytes = value[1]
    return raw


def _short(text: bytes | None) -> bytes:
    """Return a short string; empty for a text without that form."""
    if text is None or not is_text(text):
        return b"\x00"
    return bytes((len(text),)) + text
