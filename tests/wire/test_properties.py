# SPDX-License-Identifier: Apache-2.0
"""The content header of class basic, walked and rebuilt in place."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.codec_0_x import (
    BasicProperties,
    decode_content_header,
    encode_content_header,
)
from headrace.protocol.errors import AmqpError
from headrace.spec.properties import CONTENT_CLASSES
from headrace.spec.tables import V0_9_1
from headrace.wire import properties as p
from headrace.wire import property_bits
from headrace.wire.errors import MalformedError
from headrace.wire.frame import encode_frame
from headrace.wire.table import encode_entry, encode_table, encode_timestamp

SHORT = st.none() | st.text(max_size=20)
PROPERTIES = st.builds(
    BasicProperties,
    content_type=SHORT,
    content_encoding=SHORT,
    headers=st.none()
    | st.dictionaries(st.text(max_size=8), st.none() | st.integers(0, 9) | st.text(max_size=9)),
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=SHORT,
    reply_to=SHORT,
    expiration=SHORT,
    message_id=SHORT,
    timestamp=st.none() | st.integers(0, 2**33).map(lambda s: datetime.fromtimestamp(s, UTC)),
    type=SHORT,
    user_id=SHORT,
    app_id=SHORT,
    cluster_id=SHORT,
)
FLAGS = {
    field.name.replace("-", "_"): 1 << (15 - place)
    for place, field in enumerate(CONTENT_CLASSES[0].properties)
}
SHORT_STRINGS = {
    field.name.replace("-", "_")
    for field in CONTENT_CLASSES[0].properties
    if field.type == "shortstr"
}


def encoded(properties: BasicProperties, body_size: int = 0) -> bytes:
    return encode_content_header(V0_9_1, 60, body_size, properties)


def decoded(payload: bytes) -> BasicProperties:
    properties = decode_content_header(V0_9_1, payload)[2]
    assert isinstance(properties, BasicProperties)
    return properties


def scanned(payload: bytes) -> p.BasicScan | None:
    scan = p.BasicScan()
    return scan if p.scan_basic(payload, 0, len(payload), scan) else None


def test_the_flags_have_the_names_of_the_properties() -> None:
    for name, flag in FLAGS.items():
        assert getattr(property_bits, f"HAS_{name.upper()}") == flag


@given(PROPERTIES, st.integers(0, 2**64 - 1), st.binary(max_size=5), st.binary(max_size=5))
def test_a_scan_finds_every_property(
    properties: BasicProperties, body_size: int, before: bytes, after: bytes
) -> None:
    payload = encoded(properties, body_size)
    data = before + payload + after
    scan = p.BasicScan()
    assert p.scan_basic(data, len(before), len(before) + len(payload), scan)
    assert scan.body_size == body_size
    for name, flag in FLAGS.items():
        value = getattr(properties, name)
        assert bool(scan.flags & flag) is (value is not None), name
        if name in ("delivery_mode", "priority"):
            assert getattr(scan, name) == (value or 0)
        elif name == "timestamp":
            assert scan.timestamp == (0 if value is None else encode_timestamp(value))
        elif name == "headers":
            if value is None:
                assert scan.headers_at == -1
            else:
                assert data[scan.headers_at : scan.headers_end] == encode_table(value)
        elif value is None:
            assert getattr(scan, f"{name}_at") == -1
        else:
            at = getattr(scan, f"{name}_at")
            assert data[at : at + getattr(scan, f"{name}_len")].decode() == value


def test_a_scan_forgets_the_one_before() -> None:
    scan = p.BasicScan()
    first = encoded(BasicProperties(expiration="1", priority=3, headers={"a": 1}))
    assert p.scan_basic(first, 0, len(first), scan)
    second = encoded(BasicProperties())
    assert p.scan_basic(second, 0, len(second), scan)
    assert (scan.flags, scan.expiration_at, scan.priority, scan.headers_at) == (0, -1, 0, -1)


def agree(payload: bytes) -> None:
    """The scan and the decoder accept the same bytes."""
    if scanned(payload) is None:
        with pytest.raises((AmqpError, MalformedError)):
            decode_content_header(V0_9_1, payload)
    else:
        decode_content_header(V0_9_1, payload)


@given(PROPERTIES, st.lists(st.tuples(st.integers(12, 300), st.integers(0, 255)), max_size=4))
def test_scan_and_decoder_agree_on_damaged_headers(
    properties: BasicProperties, damage: list[tuple[int, int]]
) -> None:
    raw = bytearray(encoded(properties))
    for at, octet in damage:
        raw[12 + (at - 12) % (len(raw) - 12)] = octet
    agree(bytes(raw))


@given(st.binary(max_size=80).map(lambda tail: b"\x00\x3c\x00\x00" + bytes(8) + tail))
def test_scan_and_decoder_agree_on_any_bytes(payload: bytes) -> None:
    agree(payload)


@given(PROPERTIES)
def test_a_header_cut_off_anywhere_is_malformed(properties: BasicProperties) -> None:
    payload = encoded(properties)
    for size in range(len(payload)):
        assert scanned(payload[:size]) is None
    assert scanned(payload + b"\x00") is None


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00\x3c\x00\x00" + bytes(8) + b"\x00\x01",  # More flags are announced.
        b"\x00\x3c\x00\x00" + bytes(8) + b"\x00\x02",  # The flag of no property.
        b"\x00\x3c\x00\x01" + bytes(8) + b"\x00\x00",  # Weight.
        b"\x00\x3d\x00\x00" + bytes(8) + b"\x00\x00",  # No class of that id.
    ],
)
def test_reserved_values_are_malformed(payload: bytes) -> None:
    assert scanned(payload) is None
    agree(payload)


@pytest.mark.parametrize("text", [b"\xc3\x28", b"\xff" * 255, bytes(range(128, 144))])
@pytest.mark.parametrize("name", [name for name in FLAGS if name in SHORT_STRINGS])
def test_a_short_string_of_a_content_holds_any_bytes(name: str, text: bytes) -> None:
    flags = FLAGS[name].to_bytes(2, "big")
    payload = b"\x00\x3c\x00\x00" + bytes(8) + flags + bytes((len(text),)) + text
    assert scanned(payload) is not None
    agree(payload)
    properties = decoded(payload)
    assert getattr(properties, name) == text.decode("utf-8", "surrogateescape")
    assert encoded(properties) == payload


@given(PROPERTIES)
def test_any_property_can_be_removed(properties: BasicProperties) -> None:
    payload = encoded(properties, 77)
    for name, flag in FLAGS.items():
        shorter = p.without_property(payload, flag)
        assert decoded(shorter) == properties.replaced(**{name: None})
        start, end = p.property_range(payload, flag)
        assert p.with_property(shorter, flag, payload[start:end]) == payload or start == end


@given(PROPERTIES, PROPERTIES)
def test_any_property_can_be_replaced(one: BasicProperties, other: BasicProperties) -> None:
    mine, theirs = encoded(one, 5), encoded(other)
    for name, flag in FLAGS.items():
        value = getattr(other, name)
        if value is not None:
            start, end = p.property_range(theirs, flag)
            changed = p.with_property(mine, flag, theirs[start:end])
            assert decoded(changed) == one.replaced(**{name: value})


@given(PROPERTIES, st.text(max_size=8), st.integers(0, 2**40))
def test_a_header_entry_is_added_or_replaced(
    properties: BasicProperties, key: str, value: int
) -> None:
    payload = encoded(properties, 5)
    changed = p.with_header_entry(payload, encode_entry(key, value))
    headers = {**(properties.headers or {}), key: value}
    assert decoded(changed) == properties.replaced(headers=headers)
    again = p.without_header_entry(changed, key.encode())
    headers.pop(key)
    assert decoded(again) == properties.replaced(headers=headers)


@given(PROPERTIES, st.text(max_size=8), st.integers(0, 2**40), st.binary(max_size=9))
def test_a_header_entry_is_added_where_the_header_stands(
    properties: BasicProperties, key: str, value: int, around: bytes
) -> None:
    payload, entry = encoded(properties, 5), encode_entry(key, value)
    data = around + encode_frame(2, 7, payload) + around
    changed = around + encode_frame(2, 7, p.with_header_entry(payload, entry)) + around
    assert p.with_header_entry_at(data, len(around), entry) == changed
    assert p.with_header_entry_at(changed, len(around), entry) == changed


def test_a_header_that_is_malformed_or_would_be_is_left() -> None:
    entry = encode_entry("a", 1)
    for payload in (b"\x00\x3c", b"\x00\x3c" + bytes(10) + b"\x20\x00"):
        with pytest.raises(MalformedError):
            p.with_header_entry_at(encode_frame(2, 1, payload), 0, entry)
    most = b"".join([b"\x05%05dV" % n for n in range(65536)])
    full = p.with_property(
        encoded(BasicProperties()), property_bits.HAS_HEADERS, len(most).to_bytes(4, "big") + most
    )
    with pytest.raises(MalformedError):
        p.with_header_entry_at(encode_frame(2, 1, full), 0, entry)


def test_the_other_entries_keep_their_bytes() -> None:
    # Tags that our own encoder never writes: the rebuilt table must still have them.
    odd = b"\x01as\x00\x01\x01bu\x00\x02\x01cL" + bytes(8) + b"\x01df\x00\x00\x00\x00"
    table = len(odd).to_bytes(4, "big") + odd
    payload = p.with_property(
        encoded(BasicProperties(priority=1)), property_bits.HAS_HEADERS, table
    )
    changed = p.with_header_entry(payload, encode_entry("b", 1))
    scan = scanned(changed)
    assert scan is not None
    kept = changed[scan.headers_at + 4 : scan.headers_end]
    assert kept == odd.replace(b"\x01bu\x00\x02", b"") + encode_entry("b", 1)


def test_nothing_changes_when_there_is_nothing_to_remove() -> None:
    payload = encoded(BasicProperties(headers={"a": 1}))
    assert p.without_header_entry(payload, b"b") == payload
    assert p.without_property(payload, property_bits.HAS_EXPIRATION) == payload
    bare = encoded(BasicProperties())
    assert p.without_header_entry(bare, b"b") == bare


def test_a_malformed_header_is_not_rebuilt() -> None:
    with pytest.raises(MalformedError):
        p.with_header_entry(b"\x00\x3c", encode_entry("a", 1))
