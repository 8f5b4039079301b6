# SPDX-License-Identifier: Apache-2.0
"""Field tables: every tag, every limit, and agreement of the checker with the decoder."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import amqp.serialization
import pika.data
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.wire.errors import MalformedError
from headrace.wire.table import (
    TABLE_BYTES_MAX,
    TABLE_DEPTH_MAX,
    TABLE_ENTRIES_MAX,
    Byte,
    Long,
    Short,
    Single,
    Timestamp,
    UnsignedByte,
    UnsignedInt,
    UnsignedShort,
    Value,
    check_table,
    check_utf8,
    decode_array,
    decode_table,
    encode_array,
    encode_entry,
    encode_table,
    encode_timestamp,
    value_end,
)


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def one(tagged: bytes) -> bytes:
    """A table whose field `k` has this tag and value."""
    return sized(b"\x01k" + tagged)


TAGS: list[tuple[bytes, Value]] = [
    (b"t\x00", False),
    (b"t\x01", True),
    (b"t\x07", True),
    (b"b\xff", Byte(-1)),
    (b"b\x7f", Byte(127)),
    (b"B\xff", UnsignedByte(255)),
    (b"s\xff\xfe", Short(-2)),
    (b"u\xff\xfe", UnsignedShort(65534)),
    (b"I\x80\x00\x00\x00", -(2**31)),
    (b"i\x80\x00\x00\x00", UnsignedInt(2**31)),
    (b"l\xff\xff\xff\xff\xff\xff\xff\xff", Long(-1)),
    (b"l\x7f\xff\xff\xff\xff\xff\xff\xff", 2**63 - 1),
    (b"L\xff\xff\xff\xff\xff\xff\xff\xff", Long(-1)),
    (b"f\x3f\xc0\x00\x00", Single(1.5)),
    (b"d\xbf\xf8\x00\x00\x00\x00\x00\x00", -1.5),
    (b"D\x02\x00\x00\x00\x7d", Decimal("1.25")),
    (b"D\x00\xff\xff\xff\xff", Decimal(-1)),
    (b"D\xff\x00\x00\x00\x01", Decimal("1E-255")),
    (b"S\x00\x00\x00\x03\xe2\x82\xac", "€"),
    (b"S\x00\x00\x00\x02\xff\x00", b"\xff\x00"),
    (b"x\x00\x00\x00\x02ab", b"ab"),
    (b"T\x00\x00\x00\x00\x5e\x0b\xe1\x00", datetime(2020, 1, 1, tzinfo=UTC)),
    (b"T\xff\xff\xff\xff\xff\xff\xff\xff", Timestamp(2**64 - 1)),
    (b"V", None),
    (b"A\x00\x00\x00\x04Vt\x01V", [None, True, None]),
    (b"F\x00\x00\x00\x03\x01aV", {"a": None}),
]


@pytest.mark.parametrize(("tagged", "value"), TAGS, ids=lambda item: repr(item)[:40])
def test_every_tag_decodes_to_its_value(tagged: bytes, value: Value) -> None:
    raw = one(tagged)
    assert check_table(raw, 0, len(raw)) == len(raw)
    table, end = decode_table(raw)
    assert table == {"k": value}
    assert type(table["k"]) is type(value)
    assert end == len(raw)
    assert decode_array(sized(tagged)) == ([value], len(tagged) + 4)
    assert value_end(tagged, 0) == len(tagged)


SAME = [pair for pair in TAGS if pair[0][:2] not in {b"t\x07", b"S\x00"} and pair[0][:1] != b"L"]


@pytest.mark.parametrize(("tagged", "value"), SAME, ids=lambda item: repr(item)[:40])
def test_what_was_decoded_goes_back_as_it_came(tagged: bytes, value: Value) -> None:
    assert encode_table(decode_table(one(tagged))[0]) == one(tagged)


@pytest.mark.parametrize(
    "value",
    [
        Byte(128),
        UnsignedByte(-1),
        Short(2**15),
        UnsignedShort(-1),
        UnsignedInt(-1),
        Long(2**63),
        Single(1e39),
    ],
    ids=repr,
)
def test_a_number_beyond_its_width_is_refused(value: Value) -> None:
    with pytest.raises(ValueError, match=f"does not fit {type(value).__name__}"):
        encode_table({"k": value})


@pytest.mark.parametrize(("tagged", "value"), TAGS, ids=lambda item: repr(item)[:40])
def test_a_value_cut_off_anywhere_is_malformed(tagged: bytes, value: Value) -> None:
    for size in range(len(tagged)):
        raw = one(tagged[:size])
        assert check_table(raw, 0, len(raw)) == -1
        with pytest.raises(MalformedError):
            decode_table(raw)


@pytest.mark.parametrize("tag", sorted(set(range(256)) - set(b"tbBsuIilLfdDSATFxV")))
def test_no_other_tag_is_accepted(tag: int) -> None:
    raw = one(bytes([tag]) + bytes(16))
    assert check_table(raw, 0, len(raw)) == -1


def test_a_table_in_the_middle_of_other_bytes() -> None:
    inner = encode_table({"a": 1, "b": [None]})
    raw = b"\xff" * 5 + inner + b"\xff" * 5
    assert check_table(raw, 5, len(raw)) == 5 + len(inner)
    assert check_table(raw, 5, 5 + len(inner)) == 5 + len(inner)
    assert check_table(raw, 5, 5 + len(inner) - 1) == -1
    assert decode_table(raw, 5) == ({"a": 1, "b": [None]}, 5 + len(inner))


@pytest.mark.parametrize("at", [-1, 1, 5])
def test_a_table_that_starts_outside_is_malformed(at: int) -> None:
    assert check_table(b"\x00\x00\x00\x00", at, 4) == -1
    with pytest.raises(MalformedError):
        decode_table(b"\x00\x00\x00\x00", at)
    with pytest.raises(MalformedError):
        decode_array(b"\x00\x00\x00\x00", at)


@pytest.mark.parametrize(
    "body",
    [
        b"\x05ab",  # The key is longer than the table.
        b"\x02ab",  # No tag after the key.
        b"\x01\xffV",  # The key is not UTF-8.
        b"\x03\xed\xa0\x80V",  # A surrogate.
        b"\x01kS\xff\xff\xff\xff",  # A size that lies.
        b"\x01kS\x00\x00\x00\x01",
        b"\x01kF\x00\x00\x00\x02\x01a",  # The nested table is cut inside.
        b"\x01kF\x00\x00\x00\x04\x01aV",  # The nested table ends after its parent.
        b"\x01kA\x00\x00\x00\x01S",
    ],
)
def test_lying_sizes_are_malformed(body: bytes) -> None:
    raw = sized(body)
    assert check_table(raw, 0, len(raw)) == -1
    padded = raw + bytes(64)  # What follows the table must not help it.
    assert check_table(padded, 0, len(padded)) == -1
    with pytest.raises(MalformedError):
        decode_table(raw)


def nested(depth: int) -> bytes:
    raw = sized(b"")
    for _ in range(depth - 1):
        raw = one(b"F" + raw)
    return raw


def test_depth_is_limited() -> None:
    good, bad = nested(TABLE_DEPTH_MAX), nested(TABLE_DEPTH_MAX + 1)
    assert check_table(good, 0, len(good)) == len(good)
    table, _ = decode_table(good)
    assert encode_table(table) == good
    assert check_table(bad, 0, len(bad)) == -1
    with pytest.raises(MalformedError):
        decode_table(bad)
    with pytest.raises(ValueError, match="deeper"):
        encode_table({"k": table})
    bottomless = nested(2_000)
    assert check_table(bottomless, 0, len(bottomless)) == -1


def test_arrays_count_as_depth_too() -> None:
    raw = b""
    for _ in range(TABLE_DEPTH_MAX):
        raw = b"A" + sized(raw)
    assert check_table(one(raw), 0, len(one(raw))) == -1
    assert decode_array(raw[1:])[1] == len(raw) - 1
    with pytest.raises(MalformedError):
        decode_array(sized(raw))
    deep: list[Value] = []
    for _ in range(TABLE_DEPTH_MAX):
        deep = [deep]
    with pytest.raises(ValueError, match="deeper"):
        encode_array(deep)


def test_the_number_of_values_is_limited() -> None:
    good = one(b"A" + sized(b"V" * (TABLE_ENTRIES_MAX - 1)))
    bad = one(b"A" + sized(b"V" * TABLE_ENTRIES_MAX))
    spread = sized((b"\x01k" + b"A" + sized(b"V" * 4095)) * 17)
    assert check_table(good, 0, len(good)) == len(good)
    assert check_table(bad, 0, len(bad)) == -1
    assert check_table(spread, 0, len(spread)) == -1


def test_the_size_of_a_table_is_limited() -> None:
    good = one(b"S" + sized(bytes(TABLE_BYTES_MAX - 7)))
    bad = one(b"S" + sized(bytes(TABLE_BYTES_MAX - 6)))
    assert check_table(good, 0, len(good)) == len(good)
    assert check_table(bad, 0, len(bad)) == -1
    with pytest.raises(ValueError, match="exceeds"):
        encode_table({"k": "x" * TABLE_BYTES_MAX})


@pytest.mark.parametrize(
    ("value", "tagged"),
    [
        (True, b"t\x01"),
        (2**31 - 1, b"I\x7f\xff\xff\xff"),
        (2**31, b"l\x00\x00\x00\x00\x80\x00\x00\x00"),
        (-(2**31) - 1, b"l\xff\xff\xff\xff\x7f\xff\xff\xff"),
        ("ä", b"S\x00\x00\x00\x02\xc3\xa4"),
        (b"\x00", b"x\x00\x00\x00\x01\x00"),
        (bytearray(b"\x00"), b"x\x00\x00\x00\x01\x00"),
        ((1,), b"A\x00\x00\x00\x05I\x00\x00\x00\x01"),
        (Decimal("1E+2"), b"D\x00\x00\x00\x00\x64"),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), b"T" + bytes(8)),
    ],
)
def test_encoding_takes_the_smallest_tag_that_fits(value: Value, tagged: bytes) -> None:
    assert encode_table({"k": value}) == one(tagged)
    assert encode_entry("k", value) == b"\x01k" + tagged


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("1E-256"),
        Decimal("1E+11"),
        Decimal("0.3333333333"),
        datetime(2020, 1, 1),  # noqa: DTZ001  (that it has no zone is the point)
        datetime(1969, 1, 1, tzinfo=UTC),
        Timestamp(2**64),
        "\ud800",
    ],
    ids=repr,
)
def test_what_no_tag_holds_is_refused(value: Value) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_table({"k": value})


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        encode_table({"k": object()})  # type: ignore[dict-item]  # That is the point.


def test_a_key_is_a_short_string() -> None:
    with pytest.raises(ValueError, match="255"):
        encode_table({"k" * 256: None})
    longest = encode_table({"k" * 255: None})
    assert check_table(longest, 0, len(longest)) == len(longest)


def test_whole_seconds_are_kept() -> None:
    assert encode_timestamp(datetime(1970, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC)) == 1
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    after = Timestamp(encode_timestamp(last) + 1)
    raw = encode_table({"k": last, "l": after})
    assert decode_table(raw)[0] == {"k": last, "l": after}


KEYS = st.text(max_size=20).filter(lambda key: len(key.encode()) < 256)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=50)
    | st.binary(max_size=50)
    | st.datetimes(
        min_value=datetime(1970, 1, 1),  # noqa: DTZ001  (hypothesis wants them naive)
        timezones=st.just(UTC),
    ).map(lambda moment: moment.replace(microsecond=0))
    | st.builds(
        lambda number, places: Decimal(number).scaleb(-places),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 255),
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=6)


@given(TABLES)
def test_a_table_survives_the_wire(table: dict[str, Value]) -> None:
    raw = encode_table(table)
    assert decode_table(raw) == (table, len(raw))
    assert check_table(raw, 0, len(raw)) == len(raw)


@given(st.binary(max_size=200).map(sized) | st.binary(max_size=200))
@example(b"\x00\x00\x00\x00")
def test_the_checker_and_the_decoder_agree_on_any_bytes(raw: bytes) -> None:
    agree(raw)


@given(TABLES, st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4))
def test_the_checker_and_the_decoder_agree_on_damaged_tables(
    table: dict[str, Value], damage: list[tuple[int, int]]
) -> None:
    raw = bytearray(encode_table(table))
    for at, octet in damage:
        raw[at % len(raw)] = octet
    agree(bytes(raw))


def agree(raw: bytes) -> None:
    end = check_table(raw, 0, len(raw))
    if end < 0:
        with pytest.raises(MalformedError):
            decode_table(raw)
        return
    table, decoded_end = decode_table(raw)
    assert decoded_end == end
    encode_table(table)  # Whatever came in can go out again.


@given(
    st.binary(max_size=12) | st.text(max_size=6).map(lambda text: text.encode("utf-8", "replace"))
)
@example(b"\xc0\x80")
@example(b"\xe0\x80\x80")
@example(b"\xed\xa0\x80")
@example(b"\xf0\x80\x80\x80")
@example(b"\xf4\x90\x80\x80")
@example(b"\xf4\x8f\xbf\xbf")
@example(b"\xe2\x82")
def test_utf8_is_what_python_takes_for_it(raw: bytes) -> None:
    try:
        raw.decode()
        expected = True
    except UnicodeDecodeError:
        expected = False
    assert bool(check_utf8(raw, 0, len(raw))) is expected


# -- Other people's encoders -----------------------------------------------------------------------

PLAIN: dict[str, Value] = {
    "bool": True,
    "int": 7,
    "negative": -7,
    "big": 2**40,
    "text": "grüße",
    "none": None,
    "list": [1, "two", {"three": 3}],
    "table": {"a": {"b": {}}},
    "moment": datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
    "decimal": Decimal("3.14"),
}


def test_tables_of_pika_are_understood_and_the_other_way_round() -> None:
    pieces: list[bytes] = []
    pika.data.encode_table(pieces, PLAIN)
    assert decode_table(b"".join(pieces))[0] == PLAIN
    theirs, _ = pika.data.decode_table(encode_table(PLAIN), 0)  # pika 1.3 truncates doubles.
    moment = theirs.pop("moment").replace(tzinfo=UTC)  # pika gives it without its zone.
    assert {**theirs, "moment": moment} == PLAIN


def test_tables_of_py_amqp_are_understood_and_the_other_way_round() -> None:
    raw = amqp.serialization.dumps("F", (PLAIN,))
    assert decode_table(raw)[0] == PLAIN
    theirs, _ = amqp.serialization.loads("F", encode_table({**PLAIN, "float": 1.5}), 0)
    moment = theirs[0].pop("moment").replace(tzinfo=UTC)
    assert {**theirs[0], "moment": moment} == {**PLAIN, "float": 1.5}


def test_not_a_number_survives() -> None:
    table, _ = decode_table(one(b"d" + struct.pack(">d", math.nan)))
    assert isinstance(table["k"], float)
    assert math.isnan(table["k"])
