# SPDX-License-Identifier: Apache-2.0
"""Bodies into Arrow: the fast way and the sure way say the same, and nothing in a body raises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.columns.decode.codec import Codec, Policy, TextCodec
from headrace.columns.decode.csv import CsvCodec
from headrace.columns.decode.csv_dialect import Dialect
from headrace.columns.decode.json import JsonCodec
from headrace.columns.decode.values import MISFITS_MAX
from headrace.columns.options.options import OptionError, read_options
from headrace.columns.read import decoded_rows
from headrace.columns.schema.ddl import DEPTH_MAX, SchemaTextError, parse_schema
from headrace.columns.schema.types import StructType

RESCUE = Policy(unknown=True, rescue=True)
SCHEMA = (
    "i INT, f DOUBLE, b BOOLEAN, s STRING, d DECIMAL(7, 2), y DATE, t TIMESTAMP, "
    "n TIMESTAMP_NTZ, a ARRAY<BIGINT>, r STRUCT<i: TINYINT, t: ARRAY<TIMESTAMP>>"
)
FLAT = "i INT, f DOUBLE, b BOOLEAN, s STRING, d DECIMAL(7, 2), y DATE, t TIMESTAMP"

moments = st.datetimes(timezones=st.none() | st.just(UTC)).map(lambda at: at.isoformat())
fitting: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "f": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
    "b": st.booleans(),
    "s": st.text(st.characters(exclude_categories=("Cs",))),  # type: ignore[arg-type]
    "d": st.decimals(-99999, 99999, places=2).map(float),
    "y": st.dates().map(lambda day: day.isoformat()),
    "t": moments,
    "n": st.datetimes().map(lambda at: at.isoformat()),
    "a": st.lists(st.integers(-(2**63), 2**63 - 1) | st.none()),
    "r": st.fixed_dictionaries({}, optional={"i": st.integers(-130, 130), "t": st.lists(moments)}),
}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | moments,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)
good_rows = st.fixed_dictionaries({}, optional={k: v | st.none() for k, v in fitting.items()})
any_rows = st.dictionaries(st.sampled_from([*fitting, "new"]), anything)
bodies = st.lists(
    good_rows.map(lambda row: json.dumps(row, ensure_ascii=False).encode(errors="replace"))
    | any_rows.map(lambda row: json.dumps(row, indent=1).encode())
    | st.binary(max_size=8)
    | st.sampled_from([b"{} {}", b" ", b"{", b'{"i":1}{"i":2}', b'{"f": NaN}', b'{"s":"\\ud800"}']),
    max_size=8,
)


def same(codec: Codec, contents: Sequence[bytes]) -> None:
    """Check that decoding in batches and row by row gives the same result."""
    together, each = codec.decode(contents), codec.decode_rows(contents)  # type: ignore[attr-defined]  # Of both.
    assert together.faults == each.faults
    assert together.rescued == each.rescued
    together.values.validate(full=True)
    assert repr(together.values.to_pylist()) == repr(each.values.to_pylist())


@settings(max_examples=80, deadline=None)
@given(bodies)
def test_json_together_is_json_one_by_one(contents: list[bytes]) -> None:
    for policy in (Policy(), RESCUE):
        same(JsonCodec(parse_schema(SCHEMA), UTC, policy), contents)


@settings(max_examples=40, deadline=None)
@given(st.lists(good_rows, min_size=1, max_size=5))
def test_rows_that_fit_go_together(rows: list[dict[str, Any]]) -> None:
    """The batch mode decodes all common values, so it is not useless."""
    contents = [json.dumps(row).encode() for row in rows if "t" not in row and "r" not in row]
    same(JsonCodec(parse_schema(SCHEMA)), contents)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                ["", "1", "-2.50", "true", "2026-01-31", "x,y", 'q"q', "1e3", "ä", " 1"]
            )
            | st.text(max_size=4),
            min_size=6,
            max_size=8,
        ),
        max_size=6,
    )
)
def test_csv_together_is_csv_one_by_one(rows: list[list[str]]) -> None:
    contents = [",".join(row).encode(errors="replace") for row in rows]
    for policy in (Policy(), RESCUE):
        kind = parse_schema(FLAT)
        assert isinstance(kind, StructType)
        same(CsvCodec(kind, UTC, policy, Dialect()), contents)


def test_what_decides_is_not_asked_when_all_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = JsonCodec(parse_schema(SCHEMA), UTC, RESCUE)
    monkeypatch.setattr(codec, "decode_rows", None)
    row = {
        "i": 1,
        "f": 0.5,
        "b": True,
        "s": "ä",
        "d": 1.25,
        "y": "2026-01-31",
        "a": [1, None],
        "t": "2026-01-31T12:00:00.5+01:00",
        "n": "2026-01-31 12:00:00",
        "r": {"i": 1, "t": ["2026-01-31T12:00:00Z"]},
    }
    assert codec.decode([json.dumps(row).encode()] * 3).faults == {}


@pytest.mark.parametrize("bad", [(), (0,), (777,), (39, 40, 999), range(1000)])
def test_a_bad_body_among_many_is_found_at_its_place(bad: Sequence[int]) -> None:
    kind = parse_schema("i INT")
    assert isinstance(kind, StructType)
    for codec, good, new in (
        (JsonCodec(kind, UTC, RESCUE), '{"i":%d}', b'{"i":1,"new":2}'),
        (CsvCodec(kind, UTC, RESCUE), "%d", b"1,2"),
    ):
        contents = [(good % number).encode() for number in range(1000)]
        for index in bad:
            contents[index] = b'"'
        expected = [None if index in bad else {"i": index} for index in range(1000)]
        decoded = codec.decode(contents)
        assert decoded.values.to_pylist() == expected
        assert sorted(decoded.faults) == sorted(bad)
        contents[500] = contents[900] = new
        decoded = codec.decode(contents)
        assert sorted(decoded.rescued) == [500, 900]
        assert decoded.first_new == 500
        assert decoded.grown is not None
        assert len(decoded.grown.fields) == 2


def test_two_documents_in_one_body_are_not_those_of_two() -> None:
    codec = JsonCodec(parse_schema("i INT"))
    decoded = codec.decode([b'{"i":1} {"i":2}', b" "])
    assert sorted(decoded.faults) == [0, 1]
    decoded = codec.decode([b'{"i":1}\n{"i":2}', b'{"i":3}'])
    assert sorted(decoded.faults) == [0]
    assert decoded.values[1].as_py() == {"i": 3}


def test_times_without_a_zone_are_in_that_of_the_option() -> None:
    codec = JsonCodec(parse_schema("t TIMESTAMP"), ZoneInfo("Europe/Berlin"))
    decoded = codec.decode([b'{"t":"2026-07-01T12:00:00"}', b'{"t":"2026-01-01T12:00:00"}'])
    assert [row["t"].hour for row in decoded.values.to_pylist()] == [10, 11]


def test_what_finds_no_place_is_rescued_by_its_path() -> None:
    codec = JsonCodec(parse_schema("i INT, r STRUCT<a: ARRAY<STRUCT<n: INT>>>"), UTC, RESCUE)
    decoded = codec.decode(
        [
            b'{"i": 1.50, "r": {"a": [{"n": 1, "more": {"x": null}}], "new": [1, 2.0]}}',
            b'{"i": 1, "none": null}',
        ]
    )
    assert decoded.faults == {}
    assert decoded.rescued == {0: '{"i":1.50,"r.a[0].more":{"x":null},"r.new":[1,2.0]}'}
    assert decoded.values[0].as_py() == {"i": None, "r": {"a": [{"n": 1}]}}
    assert decoded.grown is not None
    assert decoded.grown.text() == (
        "struct<i:int,r:struct<a:array<struct<n:int,more:struct<x:string>>>,new:array<double>>>"
    )


def test_hostile_json_is_bad_and_nothing_worse() -> None:
    codec = JsonCodec(parse_schema("i INT, a ARRAY<INT>, d DECIMAL(5, 2)"), UTC, RESCUE)
    decoded = codec.decode(
        [
            b"[" * 100_000,
            b'{"a":' * 50_000,
            b'{"i":' + b"9" * 10_000 + b"}",
            b'{"d":1e999999999}',
            b'{"d":1e-999999999}',
            json.dumps({f"n{at}": 1 for at in range(MISFITS_MAX + 2)}).encode(),
            b'{"a":[' + b'"x",' * 5000 + b"1]}",
            b"\xef\xbb\xbf{}",
            '{"i":1}'.encode("utf-16"),
        ]
    )
    assert {0, 1, 7, 8} <= set(decoded.faults)
    assert {2, 3} <= set(decoded.rescued)
    assert str(decoded.values[4].as_py()["d"]) == "0.00"


def test_texts_must_be_utf_8() -> None:
    decoded = TextCodec().decode(["ä".encode(), b"\xff"])
    assert decoded.values.to_pylist() == ["ä", None]
    assert list(decoded.faults) == [1]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "its end instead of the name of a column"),
        ("a", "its end after 'a' instead of the type of column 'a'"),
        ("a INT,", "instead of the name of a column"),
        ("a INT b INT", "'b' after 'a INT' instead of the end or a comma"),
        ("a INTERVAL", "column 'a' the type 'INTERVAL'; the types are BIGINT"),
        ("a INT, A STRING", "names the column 'A' twice"),
        ("a MAP<INT, INT>", "a map whose keys are no STRING"),
        ("a DECIMAL(39, 0)", "an invalid DECIMAL"),
        ("a STRUCT<b: INT", "its end after 'a STRUCT<b: INT' instead of '>'"),
        ("a INT; b INT", "has '; b INT' where nothing like it can stand"),
        ("a " + "ARRAY<" * (DEPTH_MAX + 2) + "INT" + ">" * (DEPTH_MAX + 2), "nests types deeper"),
    ],
)
def test_a_schema_that_is_none_says_where(text: str, error: str) -> None:
    with pytest.raises(SchemaTextError) as caught:
        parse_schema(text)
    assert error in str(caught.value)


def test_json_behind_the_mark_of_a_registry() -> None:
    options = {"uri": "amqp://h/", "stream": "s", "value": "json", "jsonFraming": "registry"}
    decoding = read_options({**options, "valueSchema": "i INT"}, streaming=True).decoding
    assert decoding is not None
    mark = b"\0\0\0\0\7"
    bodies = [mark + b'{"i": 1}', b'{"i": 2}', mark, b"", mark + b"{", mark + b'{"i": 3}']
    decoded = decoded_rows.make_codec(decoding, decoding.schema()).decode(bodies)
    assert [row and row["i"] for row in decoded.values.to_pylist()] == [1, *[None] * 4, 3]
    missing = "the mark of a schema registry is missing"
    assert [decoded.faults[at] for at in (1, 2, 3)] == [missing] * 3
    assert decoded.faults[4].startswith("not valid JSON: ")
    with pytest.raises(OptionError, match="does not go with option 'value' being 'csv'"):
        read_options({**options, "value": "csv", "valueSchema": "i INT"}, streaming=True)
