# SPDX-License-Identifier: Apache-2.0
"""Rows become bodies of Avro that other people's programs read, and no wrong ones."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from headrace.columns.decode.avro import AvroCodec, parse_record_schema
from headrace.columns.errors import RegistryError
from headrace.columns.options.options import OptionError, write_options
from headrace.columns.schema.columns import SchemaError
from headrace.columns.schema.ddl import parse_schema
from headrace.spark.schema.types import to_spark
from headrace.spark.write import avro_bodies
from headrace.spark.write.avro_bodies import EncodeError
from headrace.spark.write.writer import BatchWriter

if TYPE_CHECKING:
    from support.spark.fake_registry import FakeRegistry

SCHEMA = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "counts", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    ],
}
# The fields go by name, so their order is free.
DDL = (
    "exchange STRING, value STRUCT<note: STRING, id: BIGINT, day: DATE, at: TIMESTAMP, "
    "price: DECIMAL(9, 2), counts: MAP<STRING, ARRAY<INT>>>"
)
ROW = {
    "id": 7,
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "price": Decimal("-1.25"),
    "note": None,
    "counts": {"a": [1, -2], "b": []},
}


@pytest.fixture(autouse=True)
def _new_process() -> Iterator[None]:
    avro_bodies._schema_ids.clear()
    yield
    avro_bodies._schema_ids.clear()


def struct(ddl: str = DDL) -> StructType:
    kind = to_spark(parse_schema(ddl))
    assert isinstance(kind, StructType)
    return kind


def options(**more: str) -> dict[str, str]:
    texts = {"uri": "amqp://h/", "exchange": "", "routingKey": "q", "value": "avro"}
    return {**texts, "valueSchema": json.dumps(SCHEMA), **more}


def bodies(rows: list[dict[str, Any] | None], ddl: str = DDL, **more: str) -> list[bytes]:
    """Return the bodies that a task encodes with the pickled encoder."""
    writer = BatchWriter(options(**more), struct(ddl), overwrite=False)
    encoder = pickle.loads(pickle.dumps(writer)).encoder
    kind = to_arrow_type(struct(ddl), timezone="UTC")
    plain = [
        row and {**row, "counts": list(row["counts"].items())} if ddl == DDL else row
        for row in rows
    ]
    table = [{"exchange": "", "value": row} for row in plain]
    batch = pa.RecordBatch.from_struct_array(pa.array(table, kind))
    actual: list[bytes] = []
    for result in encoder.encode_batches(iter([batch.slice(0, 1), batch.slice(1)])):
        assert result.schema.field("value").type == pa.binary()
        actual += result.column("value").to_pylist()
    return actual


@pytest.mark.parametrize("framing", ["none", "single-object"])
def test_what_is_written_is_read(framing: str) -> None:
    result = bodies([ROW, {**ROW, "note": "ä"}], avroFraming=framing)
    decoded = AvroCodec(parse_record_schema(json.dumps(SCHEMA)), framing).decode(result)
    assert decoded.faults == {}
    expected = {**ROW, "counts": list(ROW["counts"].items())}  # type: ignore[attr-defined]
    assert decoded.values.to_pylist() == [expected, {**expected, "note": "ä"}]


def test_others_read_what_is_written_with_an_id(registry: FakeRegistry) -> None:
    """Confluent's own deserializer decodes the bodies."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    more = {"avroFraming": "registry", "schemaRegistry": registry.url, "schemaSubject": "a/b"}
    result = bodies([ROW], **more)
    judge = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    assert judge(result[0], SerializationContext("orders", MessageField.VALUE)) == ROW
    assert bodies([ROW], **more) == result
    assert registry.asked.count("POST /subjects/a%2Fb/versions") == 1
    avro_bodies._schema_ids.clear()  # Another process.
    assert bodies([ROW], **more, schemaRegister="false") == result
    assert registry.subjects == {"a/b": [1]}


def test_a_registry_may_refuse_a_schema(registry: FakeRegistry) -> None:
    more = {"avroFraming": "registry", "schemaRegistry": registry.url, "schemaSubject": "orders"}
    with pytest.raises(RegistryError, match="'orders' does not have the schema of option"):
        bodies([ROW], **more, schemaRegister="false")
    registry.faults = [(409, b'{"message": "the new schema is incompatible"}')]
    with pytest.raises(RegistryError, match="409 Conflict: the new schema is incompatible"):
        bodies([ROW], **more)
    for lie in (b"[]", b'{"id": "7"}', b'{"id": -1}', b'{"id": 4294967296}'):
        registry.faults = [(200, lie)]
        with pytest.raises(RegistryError, match="answered with no id"):
            bodies([ROW], **more)


def test_a_row_that_does_not_fit_is_named_without_its_content() -> None:
    with pytest.raises(EncodeError, match=r"row 1 of the partition .*: field 'id' is null"):
        bodies([ROW, {**ROW, "id": None}])
    symbols = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
    schema = {**SCHEMA, "fields": [{"name": "colour", "type": symbols}]}
    ddl = "exchange STRING, value STRUCT<colour: STRING>"
    texts = {"valueSchema": json.dumps(schema)}
    assert bodies([{"colour": "RED"}, None], ddl, **texts) == [b"\0", None]
    with pytest.raises(EncodeError) as caught:
        bodies([{"colour": "RED"}, {"colour": "s3cret"}], ddl, **texts)
    assert "row 1 of the partition" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        (DDL.replace("id: BIGINT", "id: INT"), "column 'value' must be of type struct<id:bigint,"),
        (DDL.replace("id: BIGINT, ", ""), "it is struct<note:string,day:date"),
        ("value BINARY", "it is binary"),
        ("exchange STRING", "it is none"),
        ("body BINARY, value STRUCT<id: BIGINT>", "one column 'body' or 'value'"),
    ],
)
def test_a_column_of_another_type_is_refused(ddl: str, told: str) -> None:
    with pytest.raises(SchemaError) as caught:
        BatchWriter(options(), struct(ddl), overwrite=False)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"value": "json"}, "option 'value' must be 'avro' for writing; got 'json'"),
        ({"valueSchema": "{}"}, "option 'valueSchema' is not an Avro schema of a record"),
        ({"avroFraming": "registry"}, "option 'schemaRegistry' is needed"),
        (
            {"avroFraming": "registry", "schemaRegistry": "http://h"},
            "option 'schemaRegistry' needs option 'schemaSubject' for writing",
        ),
        ({"schemaSubject": "x"}, "option 'schemaSubject' needs option 'schemaRegistry'"),
        ({"timeZone": "UTC"}, "option 'timeZone' is for reading only"),
    ],
)
def test_options_that_are_wrong_are_named(change: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        write_options(options(**change))
    assert told in str(caught.value)


def test_a_schema_must_be_given() -> None:
    texts = options()
    del texts["valueSchema"]
    with pytest.raises(OptionError, match="option 'valueSchema' is missing"):
        write_options(texts)
