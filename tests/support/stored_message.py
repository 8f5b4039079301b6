# SPDX-License-Identifier: Apache-2.0
"""Messages of class basic in the form in which the gateway of 0-8 to 0-9-1 stores them."""

from __future__ import annotations

from typing import Any

from headrace.model.message import Message, new_message
from headrace.protocol.codec_0_x import BasicProperties, encode_content_header
from headrace.protocol.v0_x.frames import make_frame
from headrace.spec.tables import V0_9_1


def stored_message(
    body: bytes, routing_key: str = "q", exchange: str = "", **properties: Any
) -> Message:
    """Return a message whose data is address, two bytes, header frame and body frame."""
    names = [name.encode() for name in (exchange, routing_key)]
    address = b"".join(bytes((len(name),)) + name for name in names)
    header = encode_content_header(V0_9_1, 60, len(body), BasicProperties(**properties))
    data = address + b"\0\0" + make_frame(2, 0, header)
    if body:
        data += make_frame(3, 0, body)
    return new_message(data, len(address), len(body))
