# SPDX-License-Identifier: Apache-2.0
"""CBOR and MessagePack have the columns that the same value has in JSON, and nothing raises."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import cbor2
import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.columns.decode.binary_values import PARSERS
from headrace.columns.decode.json import JsonCodec
from headrace.columns.options.options import read_options
from headrace.columns.read.decoded_rows import make_codec
from headrace.columns.sample import infer_json_schema

if TYPE_CHECKING:
    from headrace.columns.decode.codec import Codec

DUMPS: dict[str, Callable[[Any], bytes]] = {"cbor": cbor2.dumps, "msgpack": msgpack.packb}
SCHEMA = (
    "i INT, f DOUBLE, b BOOLEAN, s STRING, d DECIMAL(7, 2), t TIMESTAMP, a ARRAY<BIGINT>, "
    "r STRUCT<i: TINYINT>, m MAP<STRING, INT>"
)


def made(form: str, ddl: str, **more: str) -> Codec:
    given_ = {"uri": "amqp://h/", "stream": "s", "value": form, "valueSchema": ddl, **more}
    decoding = read_options(given_, streaming=True).decoding
    assert decoding is not None
    return make_codec(decoding, decoding.schema())


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)  # type: ignore[arg-type]
leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | texts
anything = st.recursive(
    leaves, lambda one: st.lists(one) | st.dictionaries(texts, one), max_leaves=9
)
rows = st.fixed_dictionaries({}, optional=dict.fromkeys("ifbsdtarmx", anything))


@pytest.mark.parametrize("form", DUMPS)
@settings(max_examples=60, deadline=None)
@given(row=rows)
def test_a_row_is_what_json_makes_of_it(form: str, row: dict[str, Any]) -> None:
    more = {"rescuedDataColumn": "rest"}
    actual = made(form, SCHEMA, **more).decode([DUMPS[form](row)])
    judge = made("json", SCHEMA, **more)
    assert isinstance(judge, JsonCodec)
    expected = judge.decode_rows([json.dumps(row).encode()])
    assert repr(actual.values.to_pylist()) == repr(expected.values.to_pylist())  # NaN is NaN.
    assert actual.rescued == expected.rescued
    assert actual.faults == expected.faults


@pytest.mark.parametrize("form", DUMPS)
@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=30))
def test_any_octets_are_a_row_or_bad(form: str, body: bytes) -> None:
    good = DUMPS[form]({"i": 1})
    decoded = made(form, "i INT, s STRING").decode([good, body, good])
    assert decoded.values[0] == decoded.values[2]
    assert decoded.values[1].is_valid != (1 in decoded.faults)


@pytest.mark.parametrize("form", DUMPS)
def test_kinds_that_json_lacks_have_columns(form: str) -> None:
    moment = datetime(2026, 1, 31, 12, 30, 0, 250_000, tzinfo=UTC)
    stamp = msgpack.Timestamp.from_datetime(moment) if form == "msgpack" else moment
    body = DUMPS[form]({"b": b"\0\xff", "t": stamp, "m": {1: 2}})
    decoded = made(form, "b BINARY, t TIMESTAMP, m MAP<STRING, INT>").decode([body])
    assert decoded.values.to_pylist() == [{"b": b"\0\xff", "t": moment, "m": [("1", 2)]}]
    kind = infer_json_schema([DUMPS[form]({"a": 1, "b": 1.5}), b"\xc1"], PARSERS[form])
    assert kind.text() == "struct<a:bigint,b:double>"


def test_numbers_of_cbor_keep_their_digits() -> None:
    body = cbor2.dumps({"d": Decimal("1.10"), "s": Decimal("1.10"), "n": 2**70})
    decoded = made("cbor", "d DECIMAL(30, 3), s STRING, n DECIMAL(38, 0)").decode([body])
    assert decoded.values.to_pylist() == [{"d": Decimal("1.100"), "s": "1.10", "n": 2**70}]


HOSTILE = {
    "cut off": ("cbor", cbor2.dumps({"i": 1})[:-1], "not valid CBOR: premature end"),
    "more": ("cbor", cbor2.dumps({"i": 1}) + b"x", "not valid CBOR: bytes are left over"),
    "deep": ("cbor", b"\x81" * 10_000 + b"\0", "nesting depth"),
    "contains itself": ("cbor", b"\xa1\x61s\xd8\x1c\x81\xd8\x1d\x00", "its values are shared"),
    "long number": ("cbor", b"\xa1\x61i\xc2\x59\x27\x10" + b"\xff" * 10_000, "4300 digits"),
    "expression": ("cbor", b"\xa1\x61s\xd8\x23" + cbor2.dumps("(a+)+"), "of the kind Pattern"),
    "tag": ("cbor", b"\xa1\x61s\xda\x7f\xff\xff\xff\0", "of the kind CBORTag"),
    "key": ("cbor", cbor2.dumps({b"i": 1}), "a key of the kind bytes"),
    "large claim": (
        "msgpack",
        b"\xdd\xff\xff\xff\xff",
        "MessagePack: 4294967295 exceeds",
    ),
    "deep, too": ("msgpack", b"\x91" * 10_000 + b"\0", "not valid MessagePack: "),
    "more, too": (
        "msgpack",
        msgpack.packb({"i": 1}) + b"x",
        "MessagePack: unpack(b) received",
    ),
    "extension": ("msgpack", b"\x81\xa1s\xd4\x05\x01", "of the kind ExtType"),
    "text": ("msgpack", b"\x81\xa1s\xa1\xff", "not valid MessagePack: 'utf-8' codec"),
    "nothing": ("msgpack", b"", "not valid MessagePack: "),
    "a number": ("msgpack", b"\x01", "the body is of another kind than the schema's"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_body_is_bad(case: str) -> None:
    form, body, fault = HOSTILE[case]
    decoded = made(form, "i INT, s STRING").decode([body])
    assert decoded.values.to_pylist() == [None]
    assert fault in decoded.faults[0]
