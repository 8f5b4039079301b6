# SPDX-License-Identifier: Apache-2.0
"""Frames of AMQP 0-8, 0-9 and 0-9-1: a type, a channel, a size, the payload, an end octet."""

FRAME_METHOD = 1
FRAME_HEADER = 2
FRAME_BODY = 3
FRAME_HEARTBEAT = 8
FRAME_END = 0xCE
SIZE_AT = 3  # Where in a frame the size of its payload is,
PAYLOAD_AT = 7  # and the payload.
FLAGS_AT = 19  # Where in a header frame the flags of the properties are,
PROPERTIES_AT = 21  # and the first property.
NO_PROPERTIES = 14  # Octets of a header's payload that has no properties.
FRAME_MIN_SIZE = 4096  # Octets; the least that both peers must accept (0-9-1/4.2.3).


def framed(kind: int, number: int, payload: bytes) -> bytes:
    """Return a frame."""
    head = bytes((kind,)) + number.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return b"".join((head, payload, b"\xce"))
