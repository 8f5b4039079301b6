# SPDX-License-Identifier: Apache-2.0
"""Every type of AMQP 0-10, there and back, and what is no map."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire import types_0_10 as types
from headrace.wire.errors import MalformedError
from headrace.wire.table import Timestamp
from headrace.wire.types_0_10 import (
    BIT,
    MAP_BYTES_MAX,
    MAP_DEPTH_MAX,
    MAP_ENTRIES_MAX,
    Array,
    Bit,
    Opaque,
    Struct32,
    check_map,
    check_value,
    decode_array,
    decode_list,
    decode_map,
    decode_struct32,
    decode_value,
    encode_array,
    encode_list,
    encode_map,
    encode_struct32,
    encode_value,
    type_code,
)

# Name, code and an example of every type that can stand in a map, as the standard lists them.
EXAMPLES: list[tuple[str, int, Any, str]] = [
    ("bin8", 0x00, types.Bin8(b"\x80"), "80"),
    ("int8", 0x01, types.Int8(-2), "fe"),
    ("uint8", 0x02, types.UInt8(254), "fe"),
    ("char", 0x04, types.Char("€"), "a4"),
    ("boolean", 0x08, True, "01"),
    ("bin16", 0x10, types.Bin16(b"ab"), "6162"),
    ("int16", 0x11, types.Int16(-2), "fffe"),
    ("uint16", 0x12, types.UInt16(65534), "fffe"),
    ("bin32", 0x20, types.Bin32(b"abcd"), "61626364"),
    ("int32", 0x21, -2, "fffffffe"),
    ("uint32", 0x22, types.UInt32(2**32 - 2), "fffffffe"),
    ("float", 0x23, types.Float32(1.5), "3fc00000"),
    ("char-utf32", 0x27, types.CharUtf32("é"), "000000e9"),
    ("bin64", 0x30, types.Bin64(b"abcdefgh"), "6162636465666768"),
    ("int64", 0x31, types.Int64(-2), "fffffffffffffffe"),
    ("int64", 0x31, -(2**40), "ffffff0000000000"),
    ("uint64", 0x32, types.UInt64(2), "0000000000000002"),
    ("uint64", 0x32, 2**64 - 2, "fffffffffffffffe"),
    ("double", 0x33, 1.5, "3ff8000000000000"),
    ("datetime", 0x38, datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC), "000000003b9aca00"),
    ("datetime", 0x38, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "ffffffffffffffff"),
    ("datetime", 0x38, Timestamp(2**62), "4000000000000000"),
    ("bin128", 0x40, types.Bin128(b"a" * 16), "61" * 16),
    ("uuid", 0x48, UUID(int=5), "00" * 15 + "05"),
    ("bin256", 0x50, types.Bin256(b"a" * 32), "61" * 32),
    ("bin512", 0x60, types.Bin512(b"a" * 64), "61" * 64),
    ("bin1024", 0x70, types.Bin1024(b"a" * 128), "61" * 128),
    ("vbin8", 0x80, types.VBin8(b"ab"), "026162"),
    ("str8-latin", 0x84, types.Str8Latin("a€"), "0261a4"),
    ("str8", 0x85, types.Str8("é"), "02c3a9"),
    ("str8-utf16", 0x86, types.Str8Utf16("é"), "0200e9"),
    ("vbin16", 0x90, types.VBin16(b"ab"), "00026162"),
    ("str16-latin", 0x94, types.Str16Latin("a€"), "000261a4"),
    ("str16", 0x95, "é", "0002c3a9"),
    ("str16-utf16", 0x96, types.Str16Utf16("é"), "000200e9"),
    ("vbin32", 0xA0, b"ab", "000000026162"),
    ("map", 0xA8, {"k": None}, "0000000700000001016bf0"),
    ("list", 0xA9, [None, BIT], "0000000600000002f0f1"),
    ("array", 0xAA, Array(0x02, [types.UInt8(7)]), "00000006020000000107"),
    ("struct32", 0xAB, Struct32(4, 9, b"xy"), "0000000404097879"),
    ("bin40", 0xC0, types.Bin40(b"abcde"), "6162636465"),
    ("dec32", 0xC8, Decimal("-1.23"), "02ffffff85"),
    ("bin72", 0xD0, types.Bin72(b"abcdefghi"), "616263646566676869"),
    ("dec64", 0xD8, types.Dec64("1.23"), "02000000000000007b"),
    ("dec64", 0xD8, Decimal("12345678901.2"), "010000001cbe991a14"),
    ("void", 0xF0, None, ""),
    ("bit", 0xF1, BIT, ""),
    ("unknown", 0x0F, Opaque(0x0F, b"x"), "78"),
    ("unknown", 0x9F, Opaque(0x9F, b"xy"), "00027879"),
    ("unknown", 0xAF, Opaque(0xAF, b"xy"), "000000027879"),
    ("unknown", 0xCF, Opaque(0xCF, b"abcde"), "6162636465"),
    ("unknown", 0xFF, Opaque(0xFF, b""), ""),
]


@pytest.mark.parametrize(
    ("name", "code", "value", "octets"),
    EXAMPLES,
    ids=[f"{row[0]}-{row[3][:16]}" for row in EXAMPLES],
)
def test_every_type(name: str, code: int, value: Any, octets: str) -> None:
    raw = bytes.fromhex(octets)
    assert encode_value(value) == (code, raw)
    assert type_code(value) == code
    again, end = decode_value(b"x" + raw, code, 1)
    assert (again, type(again), end) == (value, type(value), 1 + len(raw))
    assert encode_value(again) == (code, raw)
    assert decode_map(encode_map({name: value}))[0] == {name: value}
    if raw:
        assert check_value(raw, code, 0, len(raw) - 1) == -1
        with pytest.raises(MalformedError):
            decode_value(raw[:-1], code)


def test_there_is_an_example_of_every_type() -> None:
    assert len({row[1] for row in EXAMPLES if row[0] != "unknown"}) == 42


def text(most: int, encoding: str) -> st.SearchStrategy[str]:
    def fits(value: str) -> bool:
        try:
            return len(value.encode(encoding)) <= most
        except UnicodeEncodeError:
            return False

    alphabet = st.characters(codec="iso8859-15") if encoding == "iso8859-15" else st.characters()
    return st.text(alphabet, max_size=20).filter(fits)


def fixed(kind: type[bytes], size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size).map(kind)


def numbers(kind: type[int], bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high).map(kind)


DECIMALS = st.builds(
    lambda digits, places: Decimal(digits).scaleb(-places),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 255),
)
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.just(BIT),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    numbers(types.Int8, 8, True),
    numbers(types.UInt8, 8, False),
    numbers(types.Int16, 16, True),
    numbers(types.UInt16, 16, False),
    numbers(types.UInt32, 32, False),
    numbers(types.Int64, 32, True),
    numbers(types.UInt64, 63, False),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(types.Float32),
    DECIMALS,
    st.integers(-(2**31), 2**31 - 1).map(types.Dec64),
    st.uuids(),
    st.datetimes().map(lambda moment: moment.replace(microsecond=0, tzinfo=UTC)),
    st.characters(codec="iso8859-15").map(types.Char),
    st.characters().map(types.CharUtf32),
    text(60000, "utf-8"),
    text(255, "utf-8").map(types.Str8),
    text(255, "iso8859-15").map(types.Str8Latin),
    text(255, "utf-16-be").map(types.Str8Utf16),
    text(255, "iso8859-15").map(types.Str16Latin),
    text(255, "utf-16-be").map(types.Str16Utf16),
    st.binary(max_size=40),
    st.binary(max_size=40).map(types.VBin8),
    st.binary(max_size=40).map(types.VBin16),
    fixed(types.Bin8, 1),
    fixed(types.Bin40, 5),
    fixed(types.Bin72, 9),
    fixed(types.Bin128, 16),
    st.builds(Struct32, st.integers(0, 255), st.integers(0, 255), st.binary(max_size=9)),
    st.builds(Opaque, st.sampled_from([0x8F, 0x9E, 0xA7]), st.binary(max_size=9)),
)
KEYS = text(255, "utf-8")
ARRAYS = st.one_of(
    st.lists(numbers(types.UInt16, 16, False), max_size=5).map(lambda items: Array(0x12, items)),
    st.lists(text(99, "utf-8"), max_size=5).map(lambda items: Array(0x95, items)),
    st.lists(st.just(None), max_size=5).map(lambda items: Array(0xF0, items)),
)
VALUES = st.recursive(
    LEAVES | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
MAPS = st.dictionaries(KEYS, VALUES, max_size=6)


def typed(value: Any) -> Any:
    """A value with its types, for what is equal and is not the same."""
    if isinstance(value, dict):
        return {key: typed(each) for key, each in value.items()}
    if isinstance(value, list):
        return type(value), [typed(each) for each in value]
    if isinstance(value, Decimal):
        return type(value), value.as_tuple()
    return type(value), value


@settings(deadline=None, max_examples=40)
@given(MAPS)
def test_maps_there_and_back(values: dict[str, Any]) -> None:
    raw = encode_map(values)
    again, end = decode_map(b"\0" + raw + b"\0", 1)
    assert end == 1 + len(raw)
    assert encode_map(again) == raw
    assert typed(again) == typed(values)
    assert check_map(raw, 0, len(raw)) == len(raw)
    assert check_map(raw, 0, len(raw) - 1) == -1


@settings(deadline=None, max_examples=40)
@given(st.lists(VALUES, max_size=6))
def test_lists_there_and_back(items: list[Any]) -> None:
    raw = encode_list(items)
    again, end = decode_list(raw)
    assert (typed(again), end) == (typed(items), len(raw))


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 255))
def test_no_octets_do_harm(raw: bytes, code: int) -> None:
    for wanted, decode in ((0xA8, decode_map), (0xA9, decode_list), (0xAA, decode_array)):
        sized = struct.pack(">I", len(raw)) + raw
        end = check_value(sized, wanted, 0, len(sized))
        if end < 0:
            with pytest.raises(MalformedError):
                decode(sized)
        else:
            assert decode(sized)[1] == end == len(sized)
    if check_value(raw, code, 0, len(raw)) < 0:
        with pytest.raises(MalformedError):
            decode_value(raw, code)
    else:
        decode_value(raw, code)


def entries(count: int, *parts: bytes) -> bytes:
    body = struct.pack(">I", count) + b"".join(parts)
    return struct.pack(">I", len(body)) + body


@pytest.mark.rule("0-10/s002")
@pytest.mark.parametrize("count", [2, 16, 17, 200])
def test_keys_of_a_map_are_distinct(count: int) -> None:
    parts = [bytes((3,)) + b"%03d" % number + b"\xf0" for number in range(count)]
    good = entries(count, *parts)
    assert check_map(good, 0, len(good)) == len(good)
    for place in (0, count // 2):
        bad = entries(count + 1, *parts, parts[place])
        assert check_map(bad, 0, len(bad)) == -1
        with pytest.raises(MalformedError):
            decode_map(bad)


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\3\0\0\0",  # No room for the count.
        b"\0\0\0\4\0\0\0\1",  # An entry too few.
        entries(0, b"\1k\xf0"),  # One too many.
        entries(1, b"\5k\xf0"),  # A key beyond the end.
        entries(1, b"\1k"),  # No type.
        entries(1, b"\1\xff\xf0"),  # A key that is not UTF-8.
        entries(1, b"\1k\x22\0\0\0"),  # A value beyond the end.
        entries(1, b"\1k\x95\0\5abc"),
        entries(1, b"\1k\xa0\0\0\0\5abc"),
        entries(1, b"\1k\xb0"),  # A code that says no width.
        entries(1, b"\1k\xe0\0"),
        entries(1, b"\1k\xab\0\0\0\1\0"),  # A struct without its code.
        entries(1, b"\1k\xa8\0\0\0\4\0\0\0\1"),  # Inside too.
        entries(1, b"\1k\xa9\0\0\0\5\0\0\0\1\xb0"),
        entries(1, b"\1k\xaa\0\0\0\5\x22\0\0\0\1"),
        entries(1, b"\1k\xaa\0\0\0\4\x22\0\0\0"),
        entries(MAP_ENTRIES_MAX + 1),
    ],
)
def test_no_map(octets: bytes) -> None:
    assert check_map(octets, 0, len(octets)) == -1
    with pytest.raises(MalformedError):
        decode_map(octets)


def test_a_map_is_bounded() -> None:
    nested: Any = None
    for _ in range(MAP_DEPTH_MAX - 1):
        nested = [nested]
    raw = encode_map({"k": nested})
    assert decode_map(raw)[0] == {"k": nested}
    with pytest.raises(ValueError, match="deeper"):
        encode_map({"k": [nested]})
    too_deep = b"\xf0"
    for _ in range(MAP_DEPTH_MAX):
        too_deep = b"\xa9" + entries(1, too_deep)
    deep = entries(1, b"\1k" + too_deep)
    assert check_map(deep, 0, len(deep)) == -1
    void = Array(0xF0, [None] * MAP_ENTRIES_MAX)
    assert decode_array(encode_array(void))[0] == void
    many = struct.pack(">IBI", 5, 0xF0, 2**32 - 1)
    assert check_value(many, 0xAA, 0, len(many)) == -1
    with pytest.raises(ValueError, match="exceeds"):
        encode_map({"k": b"x" * MAP_BYTES_MAX})
    large = entries(1, b"\1k\xa0", struct.pack(">I", MAP_BYTES_MAX), b"x" * MAP_BYTES_MAX)
    assert check_map(large, 0, len(large)) == -1


def test_what_some_peers_send_for_an_empty_one() -> None:
    assert decode_map(b"\0\0\0\0") == ({}, 4)
    assert decode_list(b"\0\0\0\0") == ([], 4)
    assert decode_array(b"\0\0\0\0") == ([], 4)


def test_strings_that_are_not_of_their_encoding_are_carried() -> None:
    for code, raw in ((0x95, b"\0\1\xff"), (0x85, b"\1\xff"), (0x96, b"\0\3abc")):
        value, _ = decode_value(raw, code)
        assert isinstance(value, Opaque)
        assert encode_value(value) == (code, raw)
    value, _ = decode_value(b"\xff\xff\xff\xff", 0x27)
    assert value == Opaque(0x27, b"\xff\xff\xff\xff")


@pytest.mark.rule("0-10/s003")
def test_a_struct_starts_with_size_class_and_code() -> None:
    raw = encode_struct32(Struct32(4, 1, b"\0\0"))
    assert raw == b"\0\0\0\4\4\1\0\0"
    assert decode_struct32(b"x" + raw, 1) == (Struct32(4, 1, b"\0\0"), 9)
    for short in (b"", b"\0\0\0\0", b"\0\0\0\1\4", b"\0\0\0\4\4\1\0"):
        with pytest.raises(MalformedError):
            decode_struct32(short)
    with pytest.raises(ValueError, match="exceeds"):
        encode_struct32(Struct32(4, 1, b"x" * MAP_BYTES_MAX))


@pytest.mark.parametrize(
    "value",
    [
        2**64,
        -(2**63) - 1,
        types.UInt8(256),
        types.Int8(-129),
        "x" * 65536,
        types.Str8("x" * 256),
        types.Char("ab"),
        types.Bin40(b"abc"),
        types.VBin8(b"x" * 256),
        Decimal("1E+30"),
        Decimal(2**63),
        Decimal("NaN"),
        Decimal("1E-256"),
        Opaque(0xB0, b""),
        Opaque(0x95, b"x" * 65536),
        datetime(2001, 1, 1),  # noqa: DTZ001
        Timestamp(2**63),
        Array(0x02, [types.UInt16(300)]),
        {"k" * 256: None},
    ],
    ids=repr,
)
def test_what_cannot_be_sent(value: Any) -> None:
    with pytest.raises(ValueError):
        encode_map({"k": value})


def test_types_that_have_no_value_here() -> None:
    for value in (object(), 1j, Array(0x02, ["x"]), {1, 2}):
        with pytest.raises(TypeError):
            encode_map({"k": value})  # type: ignore[dict-item]  # On purpose.


def test_plain_and_other_values() -> None:
    class Text(str):
        __slots__ = ()

    class Whole(int):
        __slots__ = ()

    assert encode_value(Text("é")) == (0x95, b"\0\2\xc3\xa9")
    assert encode_value(Whole(5)) == (0x21, b"\0\0\0\5")
    assert encode_value(bytearray(b"a")) == (0xA0, b"\0\0\0\1a")  # type: ignore[arg-type]
    assert encode_value((1,)) == encode_value([1])  # type: ignore[arg-type]
    assert encode_value(Decimal(3)) == (0xC8, b"\0\0\0\0\3")
    assert encode_value(Decimal("1E+3")) == (0xC8, b"\0\0\0\3\xe8")
    assert math.isnan(decode_value(*reversed(encode_value(math.nan)))[0])  # type: ignore[arg-type]
    assert isinstance(BIT, Bit)
    assert BIT
    assert repr([BIT, Array(2, [1])]) == "[BIT, Array(0x02, [1])]"
    assert Array(2, [1]) != Array(1, [1])
    assert encode_array(Array(0x12, [1, 2])) == b"\0\0\0\x09\x12\0\0\0\2\0\1\0\2"
    assert encode_array(Array(0xD8, [Decimal(1)]))[9:] == bytes(8) + b"\1"
    assert encode_array(Array(0xA0, [b"x"]))[9:] == b"\0\0\0\1x"
    with pytest.raises(ValueError, match="does not fit"):
        encode_array(Array(0x02, [256]))
