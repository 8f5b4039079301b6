# SPDX-License-Identifier: Apache-2.0
"""The frame envelope of 0-8, 0-9 and 0-9-1.

0      1         3             7                 7 + size
+------+---------+-------------+---------------+-----+
| type | channel | size        | payload       | 206 |
| u8   | u16     | u32         | size bytes    | u8  |
+------+---------+-------------+---------------+-----+
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headrace.wire.errors import MalformedError

FRAME_METHOD = 1
FRAME_HEADER = 2
FRAME_BODY = 3
FRAME_OOB_METHOD = 4  # The next four are in versions up to 0-9 only.
FRAME_OOB_HEADER = 5
FRAME_OOB_BODY = 6
FRAME_TRACE = 7
FRAME_HEARTBEAT = 8

FRAME_END = 206
FRAME_HEAD_SIZE = 7
FRAME_OVERHEAD = 8  # Head and end.
FRAME_MIN_SIZE = 4096  # 4.2.3: accepted by both peers before negotiation.

_HEAD = struct.Struct(">BHI")
_END = b"\xce"

HEARTBEAT = _HEAD.pack(FRAME_HEARTBEAT, 0, 0) + _END


class Frame(NamedTuple):
    """A frame, and the position after it."""

    type: int
    channel: int
    payload: bytes
    end: int


def encode_frame(type_: int, channel: int, payload: bytes) -> bytes:
    """Return a frame: a head of 7 bytes, the payload and the end octet."""
    return _HEAD.pack(type_, channel, len(payload)) + payload + _END


def decode_frame(data: bytes, at: int, frame_max: int) -> Frame | None:
    """Return the frame at `at`; None if it is incomplete. `frame_max` includes the envelope."""
    start = at + FRAME_HEAD_SIZE
    if start > len(data):
        return None
    type_, channel, size = _HEAD.unpack_from(data, at)
    if size + FRAME_OVERHEAD > frame_max:
        raise MalformedError(f"a frame of {size + FRAME_OVERHEAD} bytes exceeds {frame_max}")
    end = start + size
    if end >= len(data):
        return None
    if data[end] != FRAME_END:
        raise MalformedError(f"a frame ends with octet {data[end]} instead of {FRAME_END}")
    return Frame(type_, channel, bytes(data[start:end]), end + 1)


def body_frames(channel: int, body: bytes, frame_max: int) -> bytes:
    """Return `body` as body frames of at most `frame_max` bytes; none for an empty body."""
    step = frame_max - FRAME_OVERHEAD
    return b"".join(
        encode_frame(FRAME_BODY, channel, body[at : at + step]) for at in range(0, len(body), step)
    )
