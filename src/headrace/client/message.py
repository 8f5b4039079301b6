# SPDX-License-Identifier: Apache-2.0
"""Messages for programs: a body, typed properties and headers.

`Message` is for publishing. `Received` is a message from a queue, with its exchange and routing
key; the subclasses of both clients add its settlement. `octets_of` converts every body that is
sent to bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.protocol.codec_0_x import (
    BasicProperties,
    decode_content_header,
    encode_content_header,
)
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    from typing import TypedDict

    from headrace.wire.table import Value

    class MessageFields(TypedDict):
        """The keyword arguments of `Message`."""

        headers: Mapping[str, Value]
        persistent: bool
        content_type: str | None
        content_encoding: str | None
        priority: int | None
        correlation_id: str | None
        reply_to: str | None
        expiration: timedelta | None
        message_id: str | None
        timestamp: datetime | int | None
        type: str | None
        user_id: str | None
        app_id: str | None
        cluster_id: str | None


_T = TypeVar("_T")

BASIC_CLASS_ID = BasicProperties.CLASS_ID
PERSISTENT = 2

REPR_BODY_BYTES = 64  # Bytes of a body in the text of a message.
_MILLISECOND = timedelta(milliseconds=1)
_EXPIRATION_MS_MAX = 3650 * 86_400_000  # Ten years; RabbitMQ accepts as much.


@dataclass(slots=True, repr=False)
class Message:
    """A body with its properties. Persistent by default.

    The body is bytes; a bytearray or memoryview is copied, a str is encoded as UTF-8, and anything
    else raises TypeError. `from_json` makes a message of any JSON value. `priority` is 0 to 255;
    `expiration` is sent in milliseconds, rounded up.
    """

    body: bytes
    headers: Mapping[str, Value] = field(default_factory=dict, kw_only=True)
    persistent: bool = field(default=True, kw_only=True)
    content_type: str | None = field(default=None, kw_only=True)
    content_encoding: str | None = field(default=None, kw_only=True)
    priority: int | None = field(default=None, kw_only=True)
    correlation_id: str | None = field(default=None, kw_only=True)
    reply_to: str | None = field(default=None, kw_only=True)
    expiration: timedelta | None = field(default=None, kw_only=True)
    message_id: str | None = field(default=None, kw_only=True)
    timestamp: datetime | int | None = field(default=None, kw_only=True)
    type: str | None = field(default=None, kw_only=True)
    user_id: str | None = field(default=None, kw_only=True)
    app_id: str | None = field(default=None, kw_only=True)
    cluster_id: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if type(self.body) is not bytes:
            self.body = octets_of(self.body)

    def __repr__(self) -> str:
        """Show the first `REPR_BODY_BYTES` of the body, and the properties without defaults."""
        body = repr(self.body[:REPR_BODY_BYTES])
        if len(self.body) > REPR_BODY_BYTES:
            body += f"… {len(self.body)} bytes"
        properties = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.repr and field.name != "body" and getattr(self, field.name) != _default(field)
        ]
        return f"{type(self).__name__}({', '.join([body, *properties])})"

    @classmethod
    def of(cls, content: Message | bytes | bytearray | memoryview | str) -> Message:
        """Return `content` if it is a message, or a message with it as the body.

        Raises TypeError when it is neither a message nor a body.
        """
        if not isinstance(content, Message):
            return Message(content)  # type: ignore[arg-type]  # `__post_init__` converts it.
        if type(content.body) is not bytes:  # The program has changed the body.
            return replace(content, body=octets_of(content.body))
        return content

    @classmethod
    def from_json(cls, value: object) -> Message:
        """Return a message with `value` as JSON, and the content type application/json."""
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return Message(text.encode(), content_type="application/json")

    def text(self) -> str:
        """Return the body as text, in `content_encoding` if Python knows it, else in UTF-8."""
        try:
            return self.body.decode(self.content_encoding or "utf-8")
        except LookupError:
            return self.body.decode()

    def json(self) -> Any:  # Like json.loads: JSON has no useful narrower type.
        """Return the body parsed as JSON; ValueError if it is not JSON."""
        return json.loads(self.body)


@dataclass(slots=True, repr=False)
class Received(Message):
    """A message from a queue, with the exchange and routing key it was published with."""

    exchange: str = field(default="", kw_only=True)
    routing_key: str = field(default="", kw_only=True)
    # Keeps 0-9-1/s005, 0-9/redelivered#hinting.
    redelivered: bool = field(default=False, kw_only=True)
    delivery_tag: int = field(default=0, kw_only=True)
    consumer_tag: str = field(default="", kw_only=True)  # "" when `get` fetched it.
    message_count: int = field(default=0, kw_only=True)  # After `get`: ready messages left.

    @property
    def offset(self) -> int | None:
        """The offset of the message in its stream; None for a message of a queue."""
        value = self.headers.get("x-stream-offset")
        return value if isinstance(value, int) else None


Content = Message | bytes | bytearray | memoryview | str


def octets_of(body: object) -> bytes:
    """Return a body as bytes: from bytes, a bytearray, a memoryview of bytes, or a str as UTF-8.

    TypeError for anything else, also for values that `bytes` would take, such as a number.
    """
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray):
        return bytes(body)
    if isinstance(body, memoryview):
        if body.format in ("B", "b", "c"):
            return body.tobytes()
        raise TypeError(
            f"a body is a memoryview of bytes, not of format {body.format!r}: "
            'use .cast("B") to send them in the order of this machine'
        )
    raise TypeError(
        "a body is bytes, bytearray, memoryview, or str (sent as UTF-8), not "
        f"{type(body).__name__}: Message.from_json(value) makes JSON, which is json.dumps(value) "
        'with content_type="application/json"'
    )


def several(messages: Iterable[Content]) -> Iterable[Content]:
    """Return the iterable; TypeError if it is a body or a mapping, not an iterable of messages."""
    if isinstance(messages, str | bytes | bytearray | memoryview | Mapping):
        kind = type(messages).__name__
        raise TypeError(f"many messages are a list of them, or another iterable, not {kind}")
    return messages


def encode_header(message: Message) -> bytes:
    """Return the payload of a content header frame; ValueError when a property cannot be sent."""
    properties = BasicProperties(
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        headers=dict(message.headers) if message.headers else None,
        delivery_mode=PERSISTENT if message.persistent else None,
        priority=message.priority,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        expiration=None if message.expiration is None else milliseconds(message.expiration),
        message_id=message.message_id,
        timestamp=message.timestamp,
        type=message.type,
        user_id=message.user_id,
        app_id=message.app_id,
        cluster_id=message.cluster_id,
    )
    return encode_content_header(V0_9_1, BASIC_CLASS_ID, len(message.body), properties)


def decode_properties(header: bytes) -> BasicProperties:
    """Return the properties of a content header's payload; AmqpError when it is malformed."""
    class_id, _, properties = decode_content_header(V0_9_1, header)
    if class_id != BASIC_CLASS_ID or not isinstance(properties, BasicProperties):
        raise AmqpError(ReplyCode.SYNTAX_ERROR, f"content of class {class_id} instead of basic")
    return properties


def read_message(header: bytes, body: bytes) -> Message:
    """Return a message from its content header's payload and its body."""
    return Message(body, **message_fields(decode_properties(header)))


def message_fields(properties: BasicProperties) -> MessageFields:
    """Return the keyword arguments of `Message` for these properties."""
    return {
        "headers": properties.headers or {},
        "persistent": properties.delivery_mode == PERSISTENT,
        "content_type": properties.content_type,
        "content_encoding": properties.content_encoding,
        "priority": properties.priority,
        "correlation_id": properties.correlation_id,
        "reply_to": properties.reply_to,
        "expiration": expiration_of(properties.expiration),
        "message_id": properties.message_id,
        "timestamp": properties.timestamp,
        "type": properties.type,
        "user_id": properties.user_id,
        "app_id": properties.app_id,
        "cluster_id": properties.cluster_id,
    }


def milliseconds(expiration: timedelta) -> str:
    """Return a time to live as the text of its property: milliseconds, rounded up."""
    ms = -(-expiration // _MILLISECOND)
    if not 0 <= ms <= _EXPIRATION_MS_MAX:
        raise ValueError(f"an expiration must be from 0 to {_EXPIRATION_MS_MAX} ms, not {ms} ms")
    return str(ms)


def expiration_of(text: str | None) -> timedelta | None:
    """Return the time to live of an expiration property; None if it is not a number."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 12:
        return None
    return timedelta(milliseconds=int(text))


def _default(dataclass_field: Field[_T]) -> _T | object:
    """Return the default of a field, `MISSING` of one that has none."""
    return (
        dataclass_field.default
        if dataclass_field.default_factory is MISSING
        else dataclass_field.default_factory()
    )
