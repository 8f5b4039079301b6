# SPDX-License-Identifier: Apache-2.0
"""Frames of AMQP 0-8, 0-9 and 0-9-1: a type, a channel, a size, the payload, an end octet."""

FRAME_METHOD = 1
FRAME_HEADER = 2
FRAME_BODY = 3
FRAME_HEARTBEAT = 8
FRAME_END = 0xCE
# Indexes in a frame.
CHANNEL_AT = 1
SIZE_AT = 3  # The size of the payload.
PAYLOAD_AT = 7
OVERHEAD = 8  # Octets of a frame beside its payload: type, channel, size, end octet.
# Indexes in a method frame.
ARGUMENTS_AT = 11  # Behind class id and method id.
PUBLISH_ADDRESS_AT = 13  # The exchange of basic.publish, behind its ticket.
PUBLISH_END_LEN = 2  # Octets behind the address of basic.publish: its flags, and the end octet.
# Indexes in a header frame.
BODY_SIZE_AT = 11
FLAGS_AT = 19  # The flags of the properties.
PROPERTIES_AT = 21
NO_PROPERTIES = 14  # Octets of a header's payload that has no properties.
# Arguments of methods that deliver or settle: a delivery tag, then a flag.
TAG_LEN = 8
TAG_AND_FLAG_LEN = 9
ACK_LEN = 13  # Octets of the payload of basic.ack.
ACK_FLAG_AT = 19  # Index of ``multiple`` in its frame.
FRAME_MIN_SIZE = 4096  # Octets that both peers must accept at least (0-9-1/4.2.3).


def make_frame(kind: int, number: int, payload: bytes) -> bytes:
    """Return a frame."""
    head = bytes((kind,)) + number.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return b"".join((head, payload, b"\xce"))
