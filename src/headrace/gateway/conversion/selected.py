# SPDX-License-Identifier: Apache-2.0
"""The values of a message for selectors: headers by name, properties by the names of JMS.

The properties are also available under ``amqp.`` and their names in AMQP, with ``_`` or ``-``. The
result is the same for a message of any version, and only requested properties are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace

from headrace.gateway.conversion.headers import header_payload, message_address, read_headers
from headrace.gateway.conversion.neutral import bytes_to_text, format_reply_to
from headrace.gateway.conversion.neutral_transfer import read_transfer
from headrace.gateway.conversion.neutral_values import CannotConvert, Entry, format_uuid
from headrace.model.message import KIND_MASK, KIND_TRANSFER, REDELIVERED, Message
from headrace.protocol.codec_0_x import decode_content_header
from headrace.protocol.errors import AmqpError
from headrace.spec.tables import V0_9
from headrace.wire.errors import MalformedError
from headrace.wire.memory import get32

PERSISTENT_MODE = 2
DEFAULT_PRIORITY = 4  # The priority in JMS of a message without one.

EntriesDecoder = Callable[[list[Entry]], Mapping[str, object]]


class SelectorValues:
    """The headers and properties of one message, for selectors."""

    __slots__ = ("_decode_entries", "_headers", "_message", "_properties")

    def __init__(self, message: Message, decode_entries: EntriesDecoder) -> None:
        """``decode_entries`` converts the headers of a 0-10 message to Python values."""
        self._message = message
        self._decode_entries = decode_entries
        self._headers: Mapping[str, object] | None = None
        self._properties: object = None

    def get(self, name: str, /) -> object:
        """Return a property or a header; None if it is missing or the message is unreadable."""
        read_property = NAMES.get(name)
        if read_property is None and name.startswith("amqp."):
            read_property = NAMES.get(name.replace("-", "_"))
        return self.header(name) if read_property is None else read_property(self)

    def header(self, name: str) -> object:
        """Return the value of an application header; None if the message does not have it."""
        return self.headers.get(name)

    @property
    def headers(self) -> Mapping[str, object]:
        """The application headers, decoded at the first use; empty if they are malformed."""
        headers = self._headers
        if headers is None:
            headers = self._headers = self._read_headers()
        return headers

    def _read_headers(self) -> Mapping[str, object]:
        message = self._message
        kind = message.flags & KIND_MASK
        if kind:
            return getattr(self.properties, "headers", None) or {}
        try:
            return read_headers(header_payload(message))
        except MalformedError:
            return {}

    @property
    def message(self) -> Message:
        """The message."""
        return self._message

    @property
    def properties(self) -> object:
        """The properties, with the names that they have in 0-9-1."""
        if self._properties is None:
            message = self._message
            try:
                if message.flags & KIND_MASK == KIND_TRANSFER:
                    self._properties = self._read_transfer()
                else:
                    self._properties = decode_content_header(V0_9, header_payload(message))[2]
            except (AmqpError, CannotConvert, MalformedError):
                self._properties = NO_PROPERTIES
        return self._properties

    def property(self, name: str) -> object:
        """Return a property by its name in 0-9-1."""
        return getattr(self.properties, name, None)

    def _read_transfer(self) -> object:
        data = self._message.data
        assert data is not None, "the message is paged out"
        position = self._message.address_len + 2
        properties = read_transfer(data[position + 4 : position + 4 + get32(data, position)])
        reply_to = properties.reply_text
        if reply_to is None and properties.reply_key is not None:
            reply_to = format_reply_to(properties.reply_exchange, properties.reply_key)
        message_id = properties.message_id_text
        if message_id is None and properties.message_uuid is not None:
            message_id = format_uuid(properties.message_uuid)
        return SimpleNamespace(
            headers=self._decode_entries(properties.headers or []),
            content_type=_decode_text(properties.content_type),
            content_encoding=_decode_text(properties.content_encoding),
            delivery_mode=properties.delivery_mode,
            priority=properties.priority,
            correlation_id=_decode_text(
                properties.correlation_id_text or _to_0_x_text(properties.correlation_id)
            ),
            reply_to=_decode_text(reply_to),
            expiration=None if properties.ttl_ms is None else str(properties.ttl_ms),
            message_id=_decode_text(message_id),
            message_uuid=properties.message_uuid,
            timestamp=properties.timestamp_s,
            type=_decode_text(properties.type),
            user_id=_decode_text(properties.user_id),
            app_id=_decode_text(properties.app_id_text or _to_0_x_text(properties.app_id)),
            cluster_id=_decode_text(properties.cluster_id),
        )


NO_PROPERTIES = SimpleNamespace(headers={})


def _decode_text(raw: bytes | None) -> str | None:
    """Return bytes as a string."""
    return None if raw is None else raw.decode("utf-8", "replace")


def _to_0_x_text(raw: bytes | None) -> bytes | None:
    """Return bytes in the text form of 0-x."""
    return None if raw is None else bytes_to_text(raw)


def _property(name: str) -> Callable[[SelectorValues], object]:
    return lambda selected: selected.property(name)


def _message_id(selected: SelectorValues) -> object:
    value = selected.property("message_id")
    if value is not None and selected.property("message_uuid") is not None:
        return f"ID:{value}"
    return value


def _priority(selected: SelectorValues) -> object:
    value = selected.property("priority")
    return DEFAULT_PRIORITY if value is None else value


def _timestamp(selected: SelectorValues) -> object:
    value = selected.property("timestamp")
    return value * 1000 if isinstance(value, int) else value


def _is_durable(selected: SelectorValues) -> bool:
    return bool(selected.property("delivery_mode") == PERSISTENT_MODE)


def _delivery_mode(selected: SelectorValues) -> str:
    return "PERSISTENT" if _is_durable(selected) else "NON_PERSISTENT"


def _is_redelivered(selected: SelectorValues) -> bool:
    return bool(selected.message.flags & REDELIVERED)


def _exchange(selected: SelectorValues) -> str:
    return message_address(selected.message)[0]


def _routing_key(selected: SelectorValues) -> str:
    return message_address(selected.message)[1]


def _subject(selected: SelectorValues) -> object:
    value = selected.header("qpid.subject")
    return _routing_key(selected) if value is None else value


def _to(selected: SelectorValues) -> str:
    exchange, routing_key = message_address(selected.message)
    return exchange or routing_key


#: The properties by name: the names of JMS, and those of AMQP.
NAMES: dict[str, Callable[[SelectorValues], object]] = {
    "JMSMessageID": _message_id,
    "JMSCorrelationID": _property("correlation_id"),
    "JMSType": _property("type"),
    "JMSPriority": _priority,
    "JMSTimestamp": _timestamp,
    "JMSDeliveryMode": _delivery_mode,
    "JMSReplyTo": _property("reply_to"),
    "JMSExpiration": lambda selected: selected.message.deadline_ms,
    "JMSRedelivered": _is_redelivered,
    "JMSXDeliveryCount": lambda selected: selected.message.deliveries + 1,
    "JMSXUserID": _property("user_id"),
    "qpid.subject": _subject,
    "amqp.message_id": _property("message_id"),
    "amqp.correlation_id": _property("correlation_id"),
    "amqp.content_type": _property("content_type"),
    "amqp.content_encoding": _property("content_encoding"),
    "amqp.type": _property("type"),
    "amqp.jms_type": _property("type"),
    "amqp.user_id": _property("user_id"),
    "amqp.app_id": _property("app_id"),
    "amqp.cluster_id": _property("cluster_id"),
    "amqp.reply_to": _property("reply_to"),
    "amqp.priority": _priority,
    "amqp.durable": _is_durable,
    "amqp.delivery_mode": _property("delivery_mode"),
    "amqp.timestamp": _timestamp,
    "amqp.creation_time": _timestamp,
    "amqp.expiration": lambda selected: selected.message.deadline_ms or None,
    "amqp.absolute_expiry_time": lambda selected: selected.message.deadline_ms or None,
    "amqp.redelivered": _is_redelivered,
    "amqp.delivery_count": lambda selected: selected.message.deliveries,
    "amqp.exchange": _exchange,
    "amqp.routing_key": _routing_key,
    "amqp.subject": _subject,
    "amqp.to": _to,
    "amqp.size": lambda selected: selected.message.body_size,
    "amqp.position": lambda selected: selected.message.seq,
}
