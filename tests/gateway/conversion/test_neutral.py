# SPDX-License-Identifier: Apache-2.0
"""Content headers between the families: whatever is said comes back as it was."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateway.conversion.contents import decode_entries, rewrite_entries
from headrace.gateway.conversion.convert import CannotConvert, Converter, join_body_frames
from headrace.gateway.conversion.neutral_basic import read_basic, write_basic
from headrace.gateway.conversion.neutral_transfer import (
    DELIVERY_PROPERTIES,
    MESSAGE_PROPERTIES,
    encode_struct,
    read_transfer,
    with_application_header,
    write_transfer,
)
from headrace.gateway.conversion.neutral_values import INT64
from headrace.protocol.codec_0_x import decode_content_header
from headrace.spec.tables import V0_9_1
from headrace.wire.frame import encode_frame
from headrace.wire.properties import BasicScan, scan_basic

if TYPE_CHECKING:
    from collections.abc import Callable

# --- Headers as octets, of every type ------------------------------------------------------------

short_text = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "ID:6b29fc40-ca47-1067-b31d-00dd010662da", "6B29FC40-CA47-1067-B31D-00DD010662DA"]
    ),
    st.sampled_from(["AMQP_BINARY:00FF", "AMQP_BINARY:41", "direct://amq.direct//?routingkey='k'"]),
    st.sampled_from(["topic://amq.topic/x/q?a='b'", "direct:////q", "a/b", "x" * 255]),
    st.uuids().map(str),
)
keys = st.one_of(st.text(max_size=6), st.sampled_from(["x-jms-type", "qpid.subject"]))


def shortstr(text: str) -> bytes:
    raw = text.encode()[:255].decode("utf-8", "ignore").encode()
    return bytes((len(raw),)) + raw


def sized(raw: bytes, size: int = 4) -> bytes:
    return len(raw).to_bytes(size, "big") + raw


def fixed(tag: bytes, size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size).map(lambda raw: tag + raw)


scalars_0_x = st.one_of(
    *[fixed(t, n) for t, n in ((b"t", 1), (b"b", 1), (b"B", 1), (b"s", 2), (b"u", 2))],
    *[fixed(t, n) for t, n in ((b"I", 4), (b"i", 4), (b"f", 4), (b"l", 8), (b"L", 8))],
    *[fixed(t, n) for t, n in ((b"d", 8), (b"T", 8), (b"D", 5), (b"V", 0))],
    st.text(max_size=8).map(lambda text: b"S" + sized(text.encode())),
    st.binary(max_size=8).map(lambda raw: b"S" + sized(raw)),
    st.sampled_from([0x100, 0x1_0001]).map(lambda size: b"S" + sized(b"s" * size)),
    st.binary(max_size=8).map(lambda raw: b"x" + sized(raw)),
    st.sampled_from([0x100, 0x1_0001]).map(lambda size: b"x" + sized(b"x" * size)),
)


def table_body(entries: list[tuple[str, bytes]]) -> bytes:
    return b"".join([shortstr(key) + value for key, value in entries])


def unique(entries: st.SearchStrategy[bytes], size: int) -> st.SearchStrategy[list]:  # type: ignore[type-arg]
    return st.lists(st.tuples(keys, entries), max_size=size, unique_by=lambda entry: entry[0])


values_0_x = st.recursive(
    scalars_0_x,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: b"A" + sized(b"".join(items))),
        unique(inner, 3).map(lambda entries: b"F" + sized(table_body(entries))),
    ),
    max_leaves=5,
)
octet = st.integers(0, 255).map(lambda value: bytes((value,)))
texts = short_text.map(shortstr)
PROPERTIES_0_X = (
    texts,
    texts,
    unique(values_0_x, 4).map(lambda entries: sized(table_body(entries))),
    st.one_of(st.sampled_from([b"\x01", b"\x02"]), octet),
    st.one_of(st.sampled_from([b"\x00", b"\x09"]), octet),
    texts,
    texts,
    st.one_of(
        st.integers(0, 2**32 - 1).map(lambda ms: shortstr(str(ms))),
        st.sampled_from(["007", "99999999999999999999", "soon", ""]).map(shortstr),
    ),
    texts,
    st.binary(min_size=8, max_size=8),
    texts,
    texts,
    texts,
    texts,
)


@st.composite
def basic_headers(draw: st.DrawFn) -> bytes:
    flags = 0
    parts = []
    for number, strategy in enumerate(PROPERTIES_0_X):
        if draw(st.booleans()):
            flags |= 0x8000 >> number
            parts.append(draw(strategy))
    size = draw(st.integers(0, 2**40))
    return struct.pack(">HHQH", 60, 0, size, flags) + b"".join(parts)


scalars_0_10 = st.one_of(
    *[fixed(bytes((code,)), 1) for code in (0x00, 0x01, 0x02, 0x04, 0x08)],
    *[fixed(bytes((code,)), 2) for code in (0x10, 0x11, 0x12)],
    *[fixed(bytes((code,)), 4) for code in (0x20, 0x21, 0x22, 0x23, 0x27)],
    *[fixed(bytes((code,)), 8) for code in (0x30, 0x31, 0x32, 0x33, 0x38)],
    *[fixed(bytes((code,)), 16) for code in (0x40, 0x48)],
    *[fixed(bytes((code,)), n) for code, n in ((0x50, 32), (0x60, 64), (0x70, 128))],
    *[fixed(bytes((code,)), n) for code, n in ((0xC0, 5), (0xC8, 5), (0xD0, 9), (0xD8, 9))],
    st.sampled_from([b"\xf0", b"\xf1"]),
    *[
        st.binary(max_size=6).map(lambda raw, code=code: bytes((code,)) + sized(raw, 1))
        for code in (0x80, 0x84, 0x85, 0x86)
    ],
    *[
        st.binary(max_size=6).map(lambda raw, code=code: bytes((code,)) + sized(raw, 2))
        for code in (0x90, 0x94, 0x95, 0x96)
    ],
    st.text(max_size=6).map(lambda text: b"\x95" + sized(text.encode(), 2)),
    st.sampled_from([0, 3, 0x1_0001]).map(lambda size: b"\xa0" + sized(b"y" * size)),
    st.sampled_from([b"", b"\x00\x00\x00\x02\x04\x01\x00\x00"]).map(lambda r: b"\xab" + sized(r)),
    st.lists(st.binary(min_size=2, max_size=2), max_size=3).map(
        lambda items: b"\xaa" + sized(b"\x12" + len(items).to_bytes(4, "big") + b"".join(items))
    ),
)


def map_body(entries: list[tuple[str, bytes]]) -> bytes:
    return len(entries).to_bytes(4, "big") + table_body(entries)


values_0_10 = st.recursive(
    scalars_0_10,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(
            lambda items: b"\xa9" + sized(len(items).to_bytes(4, "big") + b"".join(items))
        ),
        unique(inner, 3).map(lambda entries: b"\xa8" + sized(map_body(entries))),
    ),
    max_leaves=5,
)
number64 = st.binary(min_size=8, max_size=8)
octets16 = st.one_of(
    st.binary(max_size=12),
    short_text.map(lambda text: text.encode()),
    st.binary(min_size=300, max_size=300),
).map(lambda raw: sized(raw, 2))


@st.composite
def reply_tos(draw: st.DrawFn) -> bytes:
    flags, parts = 0, []
    for bit in (1, 2):
        if draw(st.booleans()):
            flags |= bit
            parts.append(draw(texts))
    return sized(bytes((flags, 0)) + b"".join(parts), 2)


MESSAGE_FIELDS = (
    None,  # The content length is not the message's own.
    st.binary(min_size=16, max_size=16),
    octets16,
    reply_tos(),
    texts,
    texts,
    texts.map(lambda raw: b"\x00" + raw),
    octets16,
    unique(values_0_10, 4).map(lambda entries: sized(map_body(entries))),
)


@st.composite
def transfer_headers(draw: st.DrawFn) -> bytes:
    flags = 0x300
    parts = []
    for bit, strategy in (
        (0x08, st.integers(0, 9).map(lambda p: bytes((p,)))),
        (0x10, st.sampled_from([b"\x01", b"\x02"])),
        (0x20, st.one_of(number64, st.integers(0, 2**32).map(lambda n: n.to_bytes(8, "big")))),
        (0x40, number64),
        (0x80, number64),
    ):
        if bit == 0x80 and flags & 0x20:
            continue
        if draw(st.booleans()):
            flags |= bit
            parts.append(draw(strategy))
    parts += [b"\x02ex", b"\x01k"]
    delivery = encode_struct(DELIVERY_PROPERTIES, flags, b"".join(parts))
    flags = 0
    parts = []
    for number, field in enumerate(MESSAGE_FIELDS):
        if field is not None and draw(st.booleans()):
            flags |= 1 << number
            parts.append(draw(field))
    message = encode_struct(MESSAGE_PROPERTIES, flags, b"".join(parts)) if flags else b""
    if draw(st.booleans()):
        message += sized(b"\x09\x07\x00\x00" + draw(st.binary(max_size=5)))
    return delivery + message


def said(payload: bytes) -> dict[str, Any]:
    """Return the fields of a 0-10 header; the order of its application headers does not matter."""
    p = read_transfer(payload)
    facts = {name: getattr(p, name) for name in p.__slots__}
    if p.headers is not None:
        facts["headers"] = dict(p.headers)
    if facts["reply_exchange"] is None and facts["reply_key"] is None:
        facts["reply_text"] = None
    return facts


# --- Whatever is said comes back ------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(basic_headers())
def test_a_0_x_header_comes_back_from_0_10_octet_by_octet(payload: bytes) -> None:
    scan = BasicScan()
    assert scan_basic(payload, 0, len(payload), scan)
    converted = write_transfer(read_basic(payload), b"ex", b"k")
    size = int.from_bytes(payload[4:12], "big")
    assert write_basic(read_transfer(converted), size) == payload


@settings(max_examples=150, deadline=None)
@given(transfer_headers())
def test_a_0_10_header_comes_back_from_0_x(payload: bytes) -> None:
    basic = write_basic(read_transfer(payload), 7)
    assert decode_content_header(V0_9_1, basic)[:2] == (60, 7)
    returned = write_transfer(read_basic(basic), b"ex", b"k")
    assert said(returned) == said(payload)


@settings(max_examples=100, deadline=None)
@given(transfer_headers())
def test_a_header_more_leaves_the_others_of_0_10_alone(payload: bytes) -> None:
    name, value = b"x-delivery-count", (INT64, bytes(7) + b"\x05")
    changed = with_application_header(payload, name, (INT64, bytes(8)))
    changed = with_application_header(changed, name, value)
    before, after = said(payload), said(changed)
    headers = before.pop("headers")
    assert isinstance(headers, dict | None)
    assert after.pop("headers") == {**(headers or {}), name: value}
    assert after == before


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 511))
def test_a_header_more_in_what_is_malformed_is_refused_with_a_reason(
    raw: bytes, flags: int
) -> None:
    for segment in (raw, encode_struct(MESSAGE_PROPERTIES, flags, raw)):
        added = refusal(lambda one: with_application_header(one, b"x", (INT64, bytes(8))), segment)
        assert added != ""


def refusal(read: Callable[[bytes], object], raw: bytes) -> str | None:
    """Why a header is refused; None when it is not."""
    try:
        read(raw)
    except CannotConvert as error:
        return error.reason
    return None


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=120))
def test_garbage_is_refused_with_a_reason(raw: bytes) -> None:
    assert refusal(read_basic, raw) != ""
    assert refusal(read_transfer, raw) != ""


@settings(max_examples=80, deadline=None)
@given(transfer_headers(), st.data())
def test_a_cut_header_is_refused_with_a_reason(payload: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(payload) - 1))
    assert refusal(read_transfer, payload[:end]) != ""


@settings(max_examples=100, deadline=None)
@given(transfer_headers(), st.lists(st.tuples(st.integers(0, 10**6), octet), max_size=4))
def test_a_bent_header_is_converted_or_refused(payload: bytes, bends: list) -> None:  # type: ignore[type-arg]
    bent = bytearray(payload)
    for at, value in bends:
        bent[at % len(bent)] = value[0]
    assert refusal(lambda raw: write_basic(read_transfer(raw), 0), bytes(bent)) != ""


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_octets_for_application_headers_are_converted_or_refused(raw: bytes) -> None:
    segment = encode_struct(MESSAGE_PROPERTIES, 0x100, sized(raw))
    assert refusal(lambda payload: write_basic(read_transfer(payload), 0), segment) != ""
    if refusal(read_transfer, segment) is None:
        headers = read_transfer(segment).headers or []
        assert rewrite_entries(headers, {**decode_entries(headers), "x-death": []})


@settings(max_examples=100, deadline=None)
@given(basic_headers(), st.lists(st.tuples(st.integers(0, 10**6), octet), max_size=4))
def test_a_bent_0_x_header_is_converted_or_refused(payload: bytes, bends: list) -> None:  # type: ignore[type-arg]
    bent = bytearray(payload)
    for at, value in bends:
        bent[at % len(bent)] = value[0]
    assert refusal(lambda raw: write_transfer(read_basic(raw), b"e", b"k"), bytes(bent)) != ""


# --- What is remembered ---------------------------------------------------------------------------


def basic_message(body: bytes, properties: bytes = b"\x10\x00\x02") -> tuple[bytes, int, int]:
    """A message as it is stored, where its header's payload starts, and its size."""
    payload = struct.pack(">HHQ", 60, 0, len(body)) + properties
    data = b"\x02ex\x01k\x00\x00" + encode_frame(2, 0, payload) + encode_frame(3, 0, body)
    return data, 14, len(payload)


def test_the_same_header_again_is_the_same_object() -> None:
    converter = Converter()
    first, at, size = basic_message(b"one")
    second, _, _ = basic_message(b"another")
    made = converter.header_for_transfer(first, 5, at, size)
    assert converter.header_for_transfer(second, 5, at, size) is made
    p = read_transfer(made)
    assert (p.delivery_mode, p.headers) == (2, None)


def test_another_address_or_header_is_converted_anew() -> None:
    converter = Converter()
    data, at, size = basic_message(b"one")
    made = converter.header_for_transfer(data, 5, at, size)
    assert made.endswith(b"\x02ex\x01k")
    moved = b"\x02ey" + data[3:]
    assert converter.header_for_transfer(moved, 5, at, size).endswith(b"\x02ey\x01k")
    other, at, size = basic_message(b"one", b"\x08\x00\x05")
    assert read_transfer(converter.header_for_transfer(other, 5, at, size)).priority == 5


def test_only_the_size_of_the_body_changes_in_a_remembered_basic_header() -> None:
    converter = Converter()
    transfer = write_transfer(read_basic(basic_message(b"")[0][14:29]), b"ex", b"k")
    data = b"\x02ex\x01k\x00\x00" + sized(transfer) + b"body"
    for size in (4, 4, 1 << 40):
        made = converter.header_for_basic(data, 5, 11, len(transfer), size)
        assert made == struct.pack(">HHQ", 60, 0, size) + b"\x10\x00\x02"


def test_a_header_larger_than_the_client_takes_is_refused() -> None:
    transfer = write_transfer(read_basic(basic_message(b"")[0][14:29]), b"ex", b"k")
    data = b"\x02ex\x01k\x00\x00" + sized(transfer)
    with pytest.raises(CannotConvert, match="exceeds the 14 that the client takes"):
        Converter(14).header_for_basic(data, 5, 11, len(transfer), 0)
    assert Converter(15).header_for_basic(data, 5, 11, len(transfer), 0)


def test_a_body_is_taken_out_of_its_frames() -> None:
    frames = b"".join([encode_frame(3, 0, part) for part in (b"one ", b"", b"two")])
    assert join_body_frames(frames, 0, len(frames)) == b"one two"
    assert join_body_frames(b"", 0, 0) == b""
    assert join_body_frames(b"x" + encode_frame(3, 0, b"one"), 1, 12) == b"one"
