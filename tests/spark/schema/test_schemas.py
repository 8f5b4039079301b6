# SPDX-License-Identifier: Apache-2.0
"""Schemas of bodies: inferred, versioned, of Avro, and what the options say about them."""

from __future__ import annotations

import gzip
import io
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client import Message
from headrace.client.blocking import connect
from headrace.columns.decode import avro
from headrace.columns.decode.infer import InferenceError, grow, infer
from headrace.columns.decode.values import loads
from headrace.columns.options.options import OptionError, read_options
from headrace.columns.read_schema import read_schema
from headrace.columns.runtime.schema_log import SchemaLog, SchemaLogError
from headrace.columns.sample import infer_json_schema
from headrace.columns.schema.types import LongType, StringType, StructField, StructType

if TYPE_CHECKING:
    from headrace.testing import LocalBroker

READ = {"uri": "amqp://h/", "stream": "s"}


def infer_schema(*texts: str) -> str:
    return infer(map(loads, texts)).text()


def test_types_are_inferred_and_widened() -> None:
    assert infer_schema('{"b": 1, "a": "x", "c": null, "d": [1, null]}') == (
        "struct<a:string,b:bigint,c:string,d:array<bigint>>"
    )
    assert infer_schema('{"a": 1}', '{"a": 1.0}') == "struct<a:double>"
    assert infer_schema('{"a": 1}', '{"a": 99999999999999999999}') == "struct<a:decimal(38,0)>"
    assert infer_schema('{"a": 1}', '{"a": true}') == "struct<a:string>"
    assert infer_schema('{"a": {"x": 1}}', '{"a": {"y": [{}]}}') == (
        "struct<a:struct<x:bigint,y:array<string>>>"
    )
    assert infer_schema('{"a": 1, "A": 2}') == "struct<A:bigint>"
    with pytest.raises(InferenceError, match="no record of the sample has columns"):
        infer_json_schema([b"?", b"[1]", b"{}"])


def test_a_schema_grows_at_its_end_and_changes_nothing() -> None:
    before = infer([loads('{"b": 1, "r": {"x": 1}}')])
    after = grow(before, infer([loads('{"a": 1, "b": "text", "r": {"y": 1}}')]))
    assert after.text() == "struct<b:bigint,r:struct<x:bigint,y:bigint>,a:bigint>"


def test_versions_never_change_and_none_is_lost(tmp_path: Path) -> None:
    """Concurrent tasks add one new column each; the newest version has all of them."""

    def add(name: str) -> None:
        def change(newest: StructType | None) -> StructType:
            return grow(newest or StructType([]), StructType([StructField(name, LongType())]))

        SchemaLog(str(tmp_path / "schema")).put("json", change)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, [f"c{index % 10}" for index in range(40)]))
    log = SchemaLog(str(tmp_path / "schema"))
    assert log.versions() == list(range(10))
    newest = log.latest()
    assert newest is not None
    assert sorted(newest.types) == [f"c{index}" for index in range(10)]
    assert [path.name for path in log.path.iterdir() if path.suffix != ".json"] == []
    (log.path / "10.json").write_text('{"v": 2}')
    with pytest.raises(SchemaLogError, match=r"10\.json is not a version of a schema"):
        log.latest()


def record(*fields: tuple[str, Any], name: str = "order") -> str:
    """Return an Avro schema of a record as JSON."""
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}
    )


def encoded(schema: str, value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, avro.parse_record_schema(schema), value)
    return stream.getvalue()


ALL_OF_AVRO = record(
    ("i", "int"),
    ("l", ["null", "long"]),
    ("b", "bytes"),
    ("day", {"type": "int", "logicalType": "date"}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("here", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}),
    ("e", {"type": "enum", "name": "colour", "symbols": ["RED", "BLUE"]}),
    ("e2", "colour"),
    ("u", {"type": "string", "logicalType": "uuid"}),
    ("t", {"type": "int", "logicalType": "time-millis"}),
    ("x", {"type": "fixed", "name": "four", "size": 4}),
    ("m", {"type": "map", "values": {"type": "array", "items": ["null", "float"]}}),
    ("n", ["int", "long"]),
    ("r", json.loads(record(("k", {"type": "map", "values": "int"}), name="inner"))),
)
ROW = {
    "i": 1,
    "l": None,
    "b": b"\xff",
    "day": date(2026, 1, 31),
    "price": Decimal("-12.50"),
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "here": datetime(2026, 1, 31),  # noqa: DTZ001
    "e": "RED",
    "e2": "BLUE",
    "u": "u",
    "t": 5,
    "x": b"abcd",
    "m": {"a": [1.5, None]},
    "n": 2**40,
    "r": {"k": {"z": 1}},
}


def test_avro_has_sparks_types() -> None:
    codec = avro.AvroCodec(avro.parse_record_schema(ALL_OF_AVRO))
    assert codec.kind.text() == (
        "struct<i:int,l:bigint,b:binary,day:date,at:timestamp,here:timestamp_ntz,"
        "price:decimal(6,2),e:string,e2:string,u:string,t:int,x:binary,m:map<string,array<float>>,"
        "n:bigint,r:struct<k:map<string,int>>>"
    )
    decoded = codec.decode([encoded(ALL_OF_AVRO, ROW)])
    assert decoded.faults == {}
    expected = {**ROW, "m": [("a", [1.5, None])], "r": {"k": [("z", 1)]}}
    assert decoded.values[0].as_py() == expected


def test_bad_avro_is_bad_and_nothing_worse() -> None:
    datum = encoded(ALL_OF_AVRO, ROW)
    cuts = [datum[:at] for at in range(len(datum))]
    codec = avro.AvroCodec(avro.parse_record_schema(ALL_OF_AVRO))
    decoded = codec.decode([*cuts, datum + b"\0", datum])
    assert sorted(decoded.faults) == list(range(len(datum) + 1))
    assert decoded.faults[len(datum)].endswith(f"bytes are left over after {len(datum)}")
    large = avro.parse_record_schema(
        record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}))
    )
    decoded = avro.AvroCodec(large).decode([b"\x04\x7f\xff", b"\x02\x05"])
    assert list(decoded.faults) == [0]
    assert decoded.values[1].as_py() == {"d": Decimal(5)}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64), st.binary(max_size=20), st.integers(0, 200))
def test_any_octets_are_decoded_or_bad(garbage: bytes, patch: bytes, at: int) -> None:
    codec = avro.AvroCodec(avro.parse_record_schema(ALL_OF_AVRO))
    datum = encoded(ALL_OF_AVRO, ROW)
    decoded = codec.decode([garbage, datum[:at] + patch + datum[at + len(patch) :]])
    decoded.values.validate(full=True)
    assert [value is None for value in decoded.values.to_pylist()] == [
        index in decoded.faults for index in range(2)
    ]


def test_a_single_object_names_its_writers_schema() -> None:
    old, new = record(("id", "int")), record(("id", "long"), ("who", ["null", "string"]))
    new = new.replace('["null", "string"]', '["null", "string"], "default": null')
    schemas = [avro.parse_record_schema(text) for text in (old, new)]
    codec = avro.AvroCodec(schemas[1], "single-object", schemas[:1])
    decoded = codec.decode(
        [
            avro.single_object_framing(schemas[0]) + encoded(old, {"id": 1}),
            avro.single_object_framing(schemas[1]) + encoded(new, {"id": 2, "who": "x"}),
            b"\xc3\x01" + bytes(8) + encoded(old, {"id": 1}),
            encoded(old, {"id": 1}),
        ]
    )
    assert decoded.values.to_pylist()[:2] == [{"id": 1, "who": None}, {"id": 2, "who": "x"}]
    assert sorted(decoded.faults) == [2, 3]
    framed = avro.AvroCodec(schemas[0], "registry")
    decoded = framed.decode([b"\0\0\0\0\x07" + encoded(old, {"id": 1}), encoded(old, {"id": 1})])
    assert sorted(decoded.faults) == [1]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x", "is not an Avro schema"),
        ('"int"', "is not an Avro schema of a record"),
        (record(("a", ["int", "string"])), "has a union of several types"),
        (record(("a", ["null", "order"])), "has the type 'order', which contains itself"),
        (record(("a", "null")), "has a field that is always null"),
        (record(("a", "int"), ("A", "int")), "that differ in case only"),
        (record(), "has no fields"),
        (
            record(("a", {"type": "array", "items": json.loads(record(name="nothing"))})),
            "an array of records without fields",
        ),
        (record(("a", {"type": "fixed", "name": "f", "size": 0})), "a fixed of no octets"),
    ],
)
def test_avro_without_a_counterpart_is_refused(text: str, error: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_options({**READ, "value": "avro", "valueSchema": text}, streaming=False)
    assert str(caught.value).startswith("option 'valueSchema' ")
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"valueSchema": "a INT"}, "'valueSchema' needs option 'value'"),
        (
            {"value": "xml"},
            "must be 'json', 'csv', 'avro', 'protobuf', 'cbor', 'msgpack', 'string' or 'binary'",
        ),
        ({"value": "json", "valueSchema": "a INT, b"}, "'valueSchema' has its end after"),
        ({"value": "json", "valueSchema": "{}"}, "which is for option 'value' being 'avro'"),
        ({"value": "csv", "valueSchema": "a ARRAY<INT>"}, "'a' a type with parts"),
        ({"value": "avro"}, "'valueSchema' is missing"),
        ({"value": "string", "valueSchema": "a INT"}, "does not go with option 'value'"),
        ({"value": "json", "csvNull": "x"}, "does not go with option 'value' being 'json'"),
        ({"value": "json", "mode": "DEADLETTER"}, "'deadLetterExchange' is needed"),
        (
            {"value": "json", "mode": "FAILFAST", "deadLetterExchange": "x"},
            "for mode 'DEADLETTER' only",
        ),
        ({"value": "json", "timeZone": "Mars"}, "'timeZone' must be a zone"),
        ({"value": "json", "rescuedDataColumn": "offset"}, "the name of another column"),
        (
            {"value": "json", "rescuedDataColumn": "r", "schemaEvolutionMode": "none"},
            "'rescuedDataColumn' contradicts",
        ),
        (
            {"value": "json", "schemaEvolutionMode": "addNewColumns"},
            "'schemaLocation' is needed",
        ),
        ({"value": "json", "schemaLocation": "s3://x/y"}, "a path or a file: URL"),
    ],
)
def test_contradictions_name_the_option(options: dict[str, str], error: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_options({**READ, **options}, streaming=False)
    assert error in str(caught.value)


def test_a_stream_does_not_infer_its_schema_anew_at_every_start() -> None:
    with pytest.raises(OptionError, match="needs option 'schemaLocation'"):
        read_options({**READ, "value": "json"}, streaming=True)
    read_options({**READ, "value": "json", "schemaLocation": "x"}, streaming=True)


def test_columns_follow_from_the_options(tmp_path: Path) -> None:
    def columns(**options: str) -> list[str]:
        return list(read_schema({**READ, **options}).types)

    plain = columns()
    assert plain[0] == "body"
    assert columns(includeBody="false", includeHeaders="false") == [
        name for name in plain if name not in ("body", "headers")
    ]
    decoded = columns(value="json", valueSchema="a INT")
    assert decoded == ["value", "_corrupt_record", "_corrupt_reason", *plain[1:]]
    decoded = columns(value="json", valueSchema="a INT", mode="FAILFAST", rescuedDataColumn="rest")
    assert decoded == ["value", "rest", *plain[1:]]
    assert columns(value="binary", includeBody="true") == ["value", *plain]
    location = str(tmp_path / "schema")
    SchemaLog(location).put("json", lambda _: StructType([StructField("kept", StringType())]))
    schema = read_schema({**READ, "value": "json", "schemaLocation": location})
    assert schema.types["value"].text() == "struct<kept:string>"
    # What is given corrects what was inferred; what was added since stays.
    texts = {"value": "json", "schemaLocation": location, "valueSchema": "a INT, kept BIGINT"}
    corrected = read_schema({**READ, **texts}).types["value"]
    assert corrected.text() == "struct<a:int,kept:bigint>"
    assert SchemaLog(location).versions() == [0, 1]


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_sample_is_taken_from_both_ends(headrace_broker: LocalBroker, kind: str) -> None:
    """The sample of a queue is its first messages, which stay in the queue."""
    arguments = {"x-queue-type": "stream"} if kind == "stream" else {}
    with connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("q", durable=True, arguments=arguments)
        bodies = [json.dumps({f"c{number}": number}) for number in range(9)]
        packed = Message(gzip.compress(bodies[0].encode()), content_encoding="gzip")
        channel.publish_many([packed, *bodies[1:]], "q")
        options = {"uri": headrace_broker.url, kind: "q", "value": "json", "schemaSample": "4"}
        schema = read_schema(options).types["value"]
        assert isinstance(schema, StructType)
        expected = ["c0", "c1", "c7", "c8"] if kind == "stream" else ["c0", "c1", "c2", "c3"]
        assert list(schema.types) == expected
        if kind == "queue":
            assert channel.declare_queue("q", passive=True).message_count == 9
    with pytest.raises(OptionError, match="no schema can be inferred: the stream has no records"):
        read_schema({**options, "schemaSample": "1", kind: empty(headrace_broker, kind)})


def empty(broker: LocalBroker, kind: str) -> str:
    """Declare an empty stream or queue; return its name."""
    arguments = {"x-queue-type": "stream"} if kind == "stream" else {}
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("empty", durable=True, arguments=arguments)
    return "empty"
