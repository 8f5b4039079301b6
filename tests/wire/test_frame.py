# SPDX-License-Identifier: Apache-2.0
"""The frame envelope and the plain string types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.buffer import pack_longstr, pack_shortstr, read_longstr, read_shortstr
from headrace.wire.errors import MalformedError
from headrace.wire.frame import (
    FRAME_BODY,
    FRAME_METHOD,
    FRAME_MIN_SIZE,
    FRAME_OVERHEAD,
    HEARTBEAT,
    Frame,
    body_frames,
    decode_frame,
    encode_frame,
)


@given(st.integers(0, 255), st.integers(0, 65535), st.binary(max_size=100), st.binary(max_size=9))
def test_a_frame_survives_the_wire(kind: int, channel: int, payload: bytes, before: bytes) -> None:
    raw = before + encode_frame(kind, channel, payload)
    end = len(raw)
    assert decode_frame(raw, len(before), FRAME_MIN_SIZE) == Frame(kind, channel, payload, end)
    for size in range(len(before), end):
        assert decode_frame(raw[:size], len(before), FRAME_MIN_SIZE) is None


def test_a_heartbeat_is_eight_octets() -> None:
    assert HEARTBEAT == b"\x08\x00\x00\x00\x00\x00\x00\xce"


def test_a_frame_may_fill_frame_max_and_no_more() -> None:
    full = encode_frame(FRAME_BODY, 1, bytes(FRAME_MIN_SIZE - FRAME_OVERHEAD))
    assert decode_frame(full, 0, FRAME_MIN_SIZE) is not None
    more = encode_frame(FRAME_BODY, 1, bytes(FRAME_MIN_SIZE - FRAME_OVERHEAD + 1))
    with pytest.raises(MalformedError, match="exceeds"):
        decode_frame(more[:7], 0, FRAME_MIN_SIZE)  # Refused by its head, before it is buffered.


def test_a_frame_that_ends_otherwise_is_malformed() -> None:
    raw = encode_frame(FRAME_METHOD, 1, b"abc")[:-1] + b"\xcd"
    with pytest.raises(MalformedError, match="205"):
        decode_frame(raw, 0, FRAME_MIN_SIZE)


@given(st.binary(max_size=300), st.integers(FRAME_OVERHEAD + 1, 64))
def test_a_body_is_cut_into_frames_that_fit(body: bytes, frame_max: int) -> None:
    raw, at, joined = body_frames(5, body, frame_max), 0, b""
    while at < len(raw):
        frame = decode_frame(raw, at, frame_max)
        assert frame is not None
        assert (frame.type, frame.channel) == (FRAME_BODY, 5)
        assert frame.payload
        joined += frame.payload
        at = frame.end
    assert joined == body


@given(st.text(max_size=60), st.binary(max_size=400), st.binary(max_size=5))
def test_strings_survive_the_wire(text: str, raw: bytes, before: bytes) -> None:
    data = before + pack_shortstr(text) + pack_longstr(raw)
    read, at = read_shortstr(data, len(before))
    assert read == text
    assert read_longstr(data, at) == (raw, len(data))


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x03ab", b"\x01\xff"])
def test_bad_short_strings_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        read_shortstr(data, 0)


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x01", b"\xff\xff\xff\xffab"])
def test_bad_long_strings_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        read_longstr(data, 0)


def test_a_short_string_holds_255_octets() -> None:
    assert pack_shortstr("ä" * 127)[0] == 254
    with pytest.raises(ValueError, match="255"):
        pack_shortstr("ä" * 128)
