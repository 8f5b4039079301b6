# SPDX-License-Identifier: Apache-2.0
"""Bodies decoded inside the data source: what a query sees, and where bad ones go."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from headrace.client import Message, blocking
from headrace.client.blocking_pipeline import Lease
from headrace.columns.read import dead_letters
from support.queue_contents import all_ready
from support.spark.fake_registry import fake_registry
from support.spark.spark_query_log import forget_last

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Load = Callable[..., "DataFrame"]
Publish = Callable[..., None]

ORDER = "id BIGINT, price DECIMAL(10, 2), items ARRAY<STRUCT<sku: STRING, n: INT>>"


def keep(frame: DataFrame, home: Path) -> None:
    """Append the present records to Parquet files under `home`."""
    (
        frame.writeStream.format("parquet")
        .option("path", str(home / "out"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def drain(connection: blocking.Connection, queue: str) -> list[Any]:
    """Return all messages of a queue, which is empty afterwards."""
    with connection.channel() as channel:
        return all_ready(channel, queue)


def test_json_has_columns_and_a_bad_body_is_kept(read: Load, publish: Publish, name: str) -> None:
    publish(
        name,
        '{"id": 1, "price": 1.10, "items": [{"sku": "a", "n": 2}], "more": true}',
        '{"id": "two", "price": 2}',
        b"\xff not json",
        "",
    )
    rows = read(name, value="json", valueSchema=ORDER).orderBy("offset").collect()
    assert rows[0].value.asDict(recursive=True) == {
        "id": 1,
        "price": rows[0].value.price,
        "items": [{"sku": "a", "n": 2}],
    }
    assert str(rows[0].value.price) == "1.10"
    assert [row.value is None for row in rows] == [False, True, True, True]
    assert [row._corrupt_record for row in rows] == [
        None,
        bytearray(b'{"id": "two", "price": 2}'),
        bytearray(b"\xff not json"),
        bytearray(b""),
    ]
    assert rows[1]._corrupt_reason == "the value of 'id' does not fit its type"
    assert "body" not in rows[0]
    assert "headers" in rows[0]

    frame = read(name, value="json", valueSchema=ORDER, rescuedDataColumn="rest")
    rows = frame.select("value.id", "value.price", "rest").orderBy("offset").collect()
    assert (rows[0].id, json.loads(rows[0].rest)) == (1, {"more": True})
    assert (rows[1].id, str(rows[1].price), rows[1].rest) == (None, "2.00", '{"id":"two"}')


def test_modes_drop_or_fail(read: Load, publish: Publish, name: str) -> None:
    publish(name, '{"id": 1}', "?", '{"id": 3}')
    frame = read(name, value="json", valueSchema="id INT", mode="DROPMALFORMED", includeBody="true")
    assert frame.columns[:2] == ["value", "body"]
    assert [row.offset for row in frame.orderBy("offset").collect()] == [0, 2]
    with pytest.raises(
        Exception, match=f"offset 1 of '{name}': not valid JSON.*'mode' is 'FAILFAST'"
    ):
        read(name, value="json", valueSchema="id INT", mode="FAILFAST").collect()


def test_a_schema_grows_at_a_restart_and_a_changed_type_is_rescued(
    spark: SparkSession, follow: Load, publish: Publish, name: str, tmp_path: Path
) -> None:
    versions = tmp_path / "schema"

    def run() -> None:
        keep(follow(name, value="json", schemaLocation=versions), tmp_path)

    publish(name, '{"id": 1, "who": "a"}', '{"id": 2}')
    run()
    publish(name, '{"id": 3, "price": 2.5}')
    with pytest.raises(Exception, match=r"offset 2 of .*'price'|start the query again"):
        run()
    assert sorted(path.name for path in versions.iterdir()) == ["0.json", "1.json"]
    run()
    publish(name, '{"id": "four", "price": 3}')
    run()
    assert sorted(path.name for path in versions.iterdir()) == ["0.json", "1.json"]
    actual = (
        spark.read.schema(
            "offset BIGINT, value STRUCT<id: BIGINT, who: STRING, price: DOUBLE>, "
            "_rescued_data STRING"
        )
        .parquet(str(tmp_path / "out"))
        .orderBy("offset")
        .select("value.*", "_rescued_data")
        .collect()
    )
    assert [tuple(row) for row in actual] == [
        (1, "a", None, None),
        (2, None, None, None),
        (3, None, 2.5, None),
        (None, None, 3.0, '{"id":"four"}'),
    ]


@pytest.mark.once
def test_a_batch_of_poison_goes_to_the_dead_letters_and_the_query_goes_on(
    spark: SparkSession,
    follow: Load,
    publish: Publish,
    connection: blocking.Connection,
    name: str,
    tmp_path: Path,
) -> None:
    letters = f"{name}.bad"
    connection.channel().declare_queue(letters, durable=True)

    def run() -> None:
        frame = follow(
            name,
            value="json",
            valueSchema="id INT",
            mode="DEADLETTER",
            deadLetterExchange="",
            deadLetterRoutingKey=letters,
        )
        keep(frame.select("offset", "value.id"), tmp_path)

    bad = Message(b"no json", headers={"a": 1}, message_id="m7", content_type="text/x", priority=3)
    publish(name, bad, '{"id": "x"}')
    run()
    first = drain(connection, letters)
    assert [message.body for message in first] == [b"no json", b'{"id": "x"}']
    assert (first[0].content_type, first[0].priority) == ("text/x", 3)
    headers = first[0].headers
    assert headers["a"] == 1
    assert headers[dead_letters.SOURCE_HEADER] == name
    assert headers[dead_letters.RECORD_OFFSET_HEADER] == 0
    assert headers[dead_letters.ROUTING_KEY_HEADER] == name
    assert headers[dead_letters.MESSAGE_ID_HEADER] == "m7"
    assert str(headers[dead_letters.REASON_HEADER]).startswith("not valid JSON: Expecting value")

    publish(name, '{"id": 3}')
    run()
    assert [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()] == [(2, 3)]

    # The first batch runs again: its letters come again, and everybody can tell.
    forget_last(tmp_path / "checkpoint" / "commits")
    forget_last(tmp_path / "checkpoint" / "commits")
    forget_last(tmp_path / "checkpoint" / "offsets")
    forget_last(tmp_path / "out" / "_spark_metadata")
    forget_last(tmp_path / "out" / "_spark_metadata")
    run()
    again = drain(connection, letters)
    assert [message.message_id for message in again] == [message.message_id for message in first]
    assert len({message.message_id for message in first}) == 2
    assert [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()] == [(2, 3)]


def test_poison_in_a_queue_is_settled_once_its_letters_are_out(
    spark: SparkSession, uri: str, connection: blocking.Connection, name: str, tmp_path: Path
) -> None:
    channel = connection.channel()
    for queue in (name, f"{name}.bad"):
        channel.declare_queue(queue, durable=True)
    channel.publish_many(["poison", "more of it"], name)
    frame = spark.readStream.format("amqp").options(uri=uri, queue=name, value="json")
    frame = frame.options(valueSchema="id INT", mode="DEADLETTER")
    frame = frame.options(deadLetterExchange="", deadLetterRoutingKey=f"{name}.bad")
    keep(frame.load().select("offset", "value.id"), tmp_path)
    letters = drain(connection, f"{name}.bad")
    assert [message.body for message in letters] == [b"poison", b"more of it"]
    assert {message.headers[dead_letters.SOURCE_HEADER] for message in letters} == {name}
    assert drain(connection, name) == []
    with Lease(connection, name, "spark") as lease:
        assert lease.info().leased == 0


MOMENTS = FileDescriptorSet(
    file=[FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)]
)
MORE = {"name": "more", "type": "string", "default": "none"}


def test_avro_and_csv_have_columns(read: Load, publish: Publish, name: str, tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    schema: dict[str, Any] = {
        "type": "record",
        "name": "order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
        ],
    }
    encoded = io.BytesIO()
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    fastavro.schemaless_writer(encoded, schema, {"id": 7, "at": moment, "counts": {"a": 1}})
    publish(f"{name}.avro", encoded.getvalue(), b"\x0e")
    rows = read(f"{name}.avro", value="avro", valueSchema=json.dumps(schema)).collect()
    assert rows[0].value.asDict() == {
        "id": 7,
        "at": moment.replace(tzinfo=None),
        "counts": {"a": 1},
    }
    assert (rows[1].value, bytes(rows[1]._corrupt_record)) == (None, b"\x0e")
    with fake_registry() as registry:
        number = registry.add("orders", {**schema, "fields": schema["fields"][:1]})
        publish(f"{name}.registry", b"\0" + number.to_bytes(4) + b"\x0e", b"\0\0\0\0\x09\x0e")
        frame = read(
            f"{name}.registry",
            value="avro",
            valueSchema=json.dumps({**schema, "fields": [schema["fields"][0], MORE]}),
            avroFraming="registry",
            schemaRegistry=registry.url,
            schemaLocation=str(tmp_path),
        )
        rows = frame.select("value.*", "_corrupt_reason").orderBy("offset").collect()
    assert tuple(rows[0]) == (7, "none", None)
    assert rows[1]._corrupt_reason.endswith("the registry has no schema 9")
    assert [one.name for one in (tmp_path / "registry").iterdir()] == ["1.json"]

    (tmp_path / "moment.pb").write_bytes(MOMENTS.SerializeToString())
    publish(f"{name}.protobuf", timestamp_pb2.Timestamp(seconds=7).SerializeToString(), b"\xff")
    options = {"value": "protobuf", "protobufDescriptors": str(tmp_path / "moment.pb")}
    frame = read(f"{name}.protobuf", protobufMessage="google.protobuf.Timestamp", **options)
    rows = frame.select("value.*", "_corrupt_record").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(7, 0, None), (None, None, bytearray(b"\xff"))]

    publish(f"{name}.csv", '7,"a, b",2026-01-31', "8,c", "9,,2026-02-01")
    packed = [gzip.compress(b"10,d,2026-02-02"), b"11,e,2026-02-03"]
    publish(f"{name}.csv", *(Message(body, content_encoding="gzip") for body in packed))
    frame = read(f"{name}.csv", value="csv", valueSchema="id INT, text STRING, day DATE")
    rows = frame.select("value.*", "_corrupt_reason", "_corrupt_record").orderBy("offset").collect()
    assert (rows[3].id, rows[4]._corrupt_record) == (10, bytearray(packed[1]))
    assert rows[4]._corrupt_reason.startswith("content_encoding gzip: the body is not compressed")
    rows = [row[:4] for row in rows]
    assert tuple(rows[0]) == (7, "a, b", date(2026, 1, 31), None)
    assert tuple(rows[1]) == (None, None, None, "it has 2 columns instead of 3")
    assert tuple(rows[2]) == (9, None, date(2026, 2, 1), None)
