# SPDX-License-Identifier: Apache-2.0
"""A file in a queue: a message whose body is in a separate file on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.conversion.headers import shortstr
from headrace.model.message import KIND_FILE, REDELIVERED, Message, copy_message, new_message

if TYPE_CHECKING:
    from headrace.gateway.content_classes.bodies import Body
    from headrace.model.queue.destination import Consumer

BODY_SIZE_AT = 4  # Index of the body size in a content header.


def file_message(exchange: str, routing_key: str, header: bytes, body: Body) -> Message:
    """Return the message of a file: address, content header, and a reference to the body."""
    address = shortstr(exchange) + shortstr(routing_key)
    frame = b"\x02\x00\x00" + len(header).to_bytes(4, "big") + header + b"\xce"
    data = address + b"\x00\x00" + frame + body.number.to_bytes(8, "big")
    message = new_message(data, len(address), body.size)
    message.flags = KIND_FILE
    return message


def copy_for_browser(message: Message, consumer: Consumer) -> Message:
    """Return a copy of a file's message for a consumer that browses."""
    copy = copy_message(message)
    copy.seq = message.seq
    copy.flags |= message.flags & REDELIVERED
    copy.consumer = consumer
    return copy


def file_identifier(message: Message) -> str:
    """Return the identifier by which a file is staged to clients: the same each time."""
    data = message.data
    assert data is not None
    return f"headrace-{data[len(data) - 8 :].hex()}"


def with_body_size(header: bytes, size: int) -> bytes:
    """Return a content header with another body size."""
    return header[:BODY_SIZE_AT] + size.to_bytes(8, "big") + header[BODY_SIZE_AT + 8 :]
