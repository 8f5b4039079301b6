# SPDX-License-Identifier: Apache-2.0
"""Headers that a stream adds to a record: its offset and its time of arrival."""

import cython

if not cython.compiled:
    from headrace.wire.memory import get32

from headrace.protocol.v0_x.frames import make_frame
from headrace.wire.properties import with_header_entry, without_header_entry


def with_offset(data: bytes, address_len: int, offset: int, arrived_ms: int) -> bytes:
    """Return a stream's message with its offset and its time of arrival in the headers.

    The names are x-stream-offset, as RabbitMQ has it, and x-stream-arrival-ms.
    """
    head = address_len + 2
    size = get32(data, head + 3)
    payload = data[head + 7 : head + 7 + size]
    if b"\x13x-stream-arrival-ms" in payload:  # It came out of another stream.
        payload = without_header_entry(payload, b"x-stream-arrival-ms")
    entry = (
        b"\x0fx-stream-offsetl"
        + offset.to_bytes(8, "big")
        + b"\x13x-stream-arrival-msl"
        + arrived_ms.to_bytes(8, "big")
    )
    payload = with_header_entry(payload, entry)
    return data[:head] + make_frame(2, 0, payload) + data[head + 8 + size :]
