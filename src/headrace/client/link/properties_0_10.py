# SPDX-License-Identifier: Apache-2.0
"""Conversion between the client's `Message` and the structs of AMQP 0-10.

Properties without a field in 0-10 become headers, as in the broker's own conversion
(docs/guides/client.md): the type `x-jms-type`, and the map `x-headrace-0-x` for the others.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast
from uuid import UUID

from headrace.client.message import BASIC_CLASS_ID, PERSISTENT, milliseconds
from headrace.protocol.codec_0_10 import (
    DeliveryProperties,
    MessageProperties,
    ReplyTo,
    Struct,
)
from headrace.protocol.codec_0_x import BasicProperties, encode_content_header
from headrace.spec.reply_0_10 import DeliveryMode
from headrace.spec.tables import V0_9_1
from headrace.wire.types_0_10 import Bit, Opaque, Struct32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.client.message import Message
    from headrace.untyped import Fields
    from headrace.wire.table import Table
    from headrace.wire.table import Value as FieldValue
    from headrace.wire.types_0_10 import Map, Value

TYPE_KEY = "x-jms-type"
CARRIER_KEY = "x-headrace-0-x"

_EXCHANGE_KINDS = {"amq.topic": "topic", "amq.fanout": "fanout", "amq.match": "headers"}
_MILLISECOND = timedelta(milliseconds=1)


def build_header_structs(
    message: Message,
    exchange: str,
    routing_key: str,
    *,
    discard_unroutable: bool = True,
    immediate: bool = False,
) -> list[Struct]:
    """Return the structs of the header segment with the properties of `message`."""
    delivery = DeliveryProperties(
        discard_unroutable=discard_unroutable,
        immediate=immediate,
        priority=message.priority,
        delivery_mode=DeliveryMode.PERSISTENT if message.persistent else None,
        ttl=None if message.expiration is None else -(-message.expiration // _MILLISECOND),
        timestamp=message.timestamp,
        exchange=exchange,
        routing_key=routing_key,
    )
    headers = cast("Map", dict(message.headers))
    carried_properties: dict[str, Value] = {}
    if message.type is not None:
        headers[TYPE_KEY] = message.type
    message_id = _uuid(message.message_id)
    if message.message_id is not None and str(message_id) != message.message_id:
        carried_properties["message-id"] = message.message_id
    if message.cluster_id is not None:
        carried_properties["cluster-id"] = message.cluster_id
    if carried_properties:
        headers[CARRIER_KEY] = carried_properties
    properties = MessageProperties(
        content_length=len(message.body),
        message_id=message_id,
        correlation_id=_octets(message.correlation_id),
        reply_to=None if message.reply_to is None else parse_raw_reply_to(message.reply_to),
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        user_id=_octets(message.user_id),
        app_id=_octets(message.app_id),
        application_headers=headers or None,
    )
    return [delivery, properties]


# The values are passed on to `Message`, which gives each its type.
def read_message_fields(structs: list[Struct]) -> Fields:
    """Return the keyword arguments of `Message` for the structs of a header segment."""
    delivery = DeliveryProperties()
    properties = MessageProperties()
    for struct in structs:
        if isinstance(struct, DeliveryProperties):
            delivery = struct
        elif isinstance(struct, MessageProperties):
            properties = struct
    headers: dict[str, object] = dict(properties.application_headers or {})
    carried_properties = headers.pop(CARRIER_KEY, None)
    carried_properties = carried_properties if isinstance(carried_properties, dict) else {}
    message_type = headers.pop(TYPE_KEY, None)
    message_id = None if properties.message_id is None else str(properties.message_id)
    return {
        "headers": headers,
        "persistent": delivery.delivery_mode == DeliveryMode.PERSISTENT,
        "content_type": properties.content_type,
        "content_encoding": properties.content_encoding,
        "priority": delivery.priority,
        "correlation_id": _text(properties.correlation_id),
        "reply_to": None if properties.reply_to is None else format_reply_to(properties.reply_to),
        "expiration": _ttl(delivery.ttl),
        "message_id": message_id or _string(carried_properties.get("message-id")),
        "timestamp": _moment(delivery.timestamp),
        "type": _string(message_type),
        "user_id": _text(properties.user_id),
        "app_id": _text(properties.app_id),
        "cluster_id": _string(carried_properties.get("cluster-id")),
    }


def read_routing(structs: list[Struct]) -> tuple[bool, str, str]:
    """Return redelivered, exchange and routing key of a message."""
    for struct in structs:
        if isinstance(struct, DeliveryProperties):
            return struct.redelivered, struct.exchange or "", struct.routing_key or ""
    return False, "", ""


def to_field_table(headers: Mapping[str, object]) -> Table:
    """Return the headers with values that a field table of 0-9-1 can hold."""
    return {key: _plain_value(value) for key, value in headers.items()}


def parse_raw_reply_to(text: str) -> ReplyTo:
    """Parse a reply-to for 0-10: a queue's name, or `direct://exchange//?routingkey='key'`."""
    message_type, separator, remaining = text.partition("://")
    if not separator or not message_type.isalpha():
        return ReplyTo(exchange="", routing_key=text)
    path, _, options = remaining.partition("?")
    parts = path.split("/")
    _, separator_found, quoted_key = options.partition("routingkey='")
    if separator_found:
        return ReplyTo(exchange=parts[0], routing_key=quoted_key.partition("'")[0])
    return ReplyTo(exchange=parts[0], routing_key="/".join(parts[2:]) or "".join(parts[1:2]))


def format_reply_to(reply_to: ReplyTo) -> str:
    """Return a reply-to of 0-10 as text."""
    exchange, key = reply_to.exchange or "", reply_to.routing_key or ""
    if not exchange and "://" not in key:
        return key
    return f"{_EXCHANGE_KINDS.get(exchange, 'direct')}://{exchange}//?routingkey='{key}'"


def _plain_value(value: object) -> FieldValue:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Bit):
        return True
    if isinstance(value, Struct32 | Opaque):
        return value.payload
    if isinstance(value, dict):
        return to_field_table(value)
    if isinstance(value, list):
        return [_plain_value(struct) for struct in value]
    return cast("FieldValue", value)


def _uuid(text: str | None) -> UUID | None:
    try:
        return None if text is None or len(text) != 36 else UUID(text)
    except ValueError:
        return None


def _octets(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _text(octets: bytes | None) -> str | None:
    return None if octets is None else octets.decode("utf-8", "backslashreplace")


def _string(value: object) -> str | None:
    return str(value) if isinstance(value, str) else None


def _ttl(ms: int | None) -> timedelta | None:
    """Return the time to live; None if it exceeds the range of `timedelta`."""
    return None if ms is None or ms > 86400_000 * 999_999_999 else timedelta(milliseconds=ms)


def _moment(value: datetime | int | None) -> datetime | int | None:
    """Return a time as timestamp of 0-9-1, which has none before 1970."""
    if isinstance(value, datetime):
        return value if value.timestamp() >= 0 else None
    return value if value is None or value >= 0 else None


# The values are from `read_message_fields`.
def encode_header_0_9_1(fields: Fields, size: int) -> bytes:
    """Return the payload of a content header frame with the same properties."""
    expiration = fields["expiration"]
    persistent = fields["persistent"]
    headers = fields["headers"]
    remaining = {
        key: value
        for key, value in fields.items()
        if key not in ("expiration", "persistent", "headers")
    }
    for key, value in remaining.items():
        if isinstance(value, str) and len(value.encode()) > 255:
            remaining[key] = None  # A short string cannot hold it.
    properties = BasicProperties(
        headers=to_field_table(headers) if headers else None,
        delivery_mode=PERSISTENT if persistent else None,
        expiration=None if expiration is None else milliseconds(expiration),
        **remaining,
    )
    return encode_content_header(V0_9_1, BASIC_CLASS_ID, size, properties)
