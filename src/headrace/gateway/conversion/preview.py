# SPDX-License-Identifier: Apache-2.0
"""The first bytes of a stored message's body, for operators."""

from __future__ import annotations

from headrace.gateway.conversion.headers import header_at
from headrace.model.message import KIND_FILE, KIND_MASK, KIND_TRANSFER, Message
from headrace.wire.memory import get32


def body_preview(message: Message, bytes_max: int) -> bytes:
    """Return the first bytes of the body of a message in memory, of any class.

    The body of a file is on disk and not read: the result is empty.
    """
    data = message.data
    assert data is not None, "the message is paged out"
    kind = message.flags & KIND_MASK
    if kind == KIND_FILE:
        return b""
    position = message.address_len + 2
    body = b""
    if kind == KIND_TRANSFER:
        position += 4 + get32(data, position)
        body = data[position : position + bytes_max]
    else:
        position = header_at(data, position)[1] + 1
        pieces = []
        remaining = bytes_max
        while position < len(data) and remaining > 0:
            size = get32(data, position + 3)
            pieces.append(data[position + 7 : position + 7 + min(size, remaining)])
            remaining -= size
            position += size + 8
        body = b"".join(pieces)
    for part in message.parts or ():
        if len(body) >= bytes_max:
            break
        body += bytes(part[: bytes_max - len(body)])
    return body
