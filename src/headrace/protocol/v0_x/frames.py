# SPDX-License-Identifier: Apache-2.0
"""The layout of AMQP 0-8, 0-9 and 0-9-1 frames, as constants.

A frame is a type, a channel, a size, the payload and an end octet.
:meth:`headrace.protocol.v0_x.connection.Connection.frames` checks them.
"""

FRAME_METHOD = 1
FRAME_HEADER = 2
FRAME_BODY = 3
FRAME_HEARTBEAT = 8
FRAME_END = 0xCE
# Indexes in a frame.
CHANNEL_AT = 1
SIZE_AT = 3  # The size of the payload.
PAYLOAD_AT = 7
OVERHEAD = 8  # The bytes of a frame without its payload: type, channel, size, end octet.
# Indexes in a method frame.
ARGUMENTS_AT = 11  # After class id and method id.
PUBLISH_ADDRESS_AT = 13  # The exchange of basic.publish, after its ticket.
PUBLISH_END_LEN = 2  # The bytes after the address of basic.publish: flags and end octet.
# Indexes in a header frame.
BODY_SIZE_AT = 11
FLAGS_AT = 19  # The flags of the properties.
PROPERTIES_AT = 21
NO_PROPERTIES = 14  # The bytes of a header's payload that has no properties.
# Arguments of methods that deliver or settle: a delivery tag, then a flag.
TAG_LEN = 8
TAG_AND_FLAG_LEN = 9
ACK_LEN = 13  # The bytes of a basic.ack payload.
ACK_FLAG_AT = 19  # The index of ``multiple`` in the frame of basic.ack.
FRAME_MIN_SIZE = 4096  # The bytes of a frame that every peer must accept (0-9-1/4.2.3).


def make_frame(frame_type: int, number: int, payload: bytes) -> bytes:
    """Return the frame with this payload for the channel ``number``."""
    head = bytes((frame_type,)) + number.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return b"".join((head, payload, b"\xce"))
