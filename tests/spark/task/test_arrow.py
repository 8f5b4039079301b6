# SPDX-License-Identifier: Apache-2.0
"""Arrow batches from wire bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.stream.blocks import BLOCK_BYTES_MAX, Block
from headrace.columns.read.arrow import RecordError, convert_blocks
from headrace.columns.read.header_columns import ARRIVAL_HEADER
from headrace.columns.schema.columns import COLUMNS, CONTENT_HEADER, SchemaError, parse_columns
from headrace.columns.schema.ddl import parse_schema
from headrace.columns.schema.types import StructType
from headrace.protocol.codec_0_x import BasicProperties, encode_content_header
from headrace.spec.tables import V0_9_1
from headrace.wire.properties import with_header_entry
from headrace.wire.table import encode_entry

ALL = tuple(name for name in COLUMNS.names if name != CONTENT_HEADER)

# Offset, payload of the header frame, body, exchange, routing key.
Record = tuple[int, bytes, bytes, str, str]


def record(offset: int, properties: BasicProperties | None = None, body: bytes = b"") -> Record:
    """Return a record in the form in which a stream delivers it."""
    header = encode_content_header(V0_9_1, 60, len(body), properties or BasicProperties())
    entry = b"\x0fx-stream-offsetl" + offset.to_bytes(8, "big")
    return (offset, with_header_entry(header, entry), body, "flights", "flights.EWR.UA")


def blocks(records: Iterable[Record]) -> Iterator[Block]:
    """Yield the records in blocks like those of the client."""
    block = Block()
    for offset, header, body, exchange, routing_key in records:
        block.add(offset, header, body, exchange.encode(), routing_key.encode(), False)
        if block.is_full():
            yield block
            block = Block()
    yield block


def batches(
    stream: str, names: tuple[str, ...], records: Iterable[Record]
) -> Iterator[pa.RecordBatch]:
    """Return Arrow batches of the records."""
    return convert_blocks(stream, names, blocks(records))


def one(properties: BasicProperties) -> dict[str, Any]:
    """Return the row of a record with these properties."""
    (batch,) = batches("orders", ALL, [record(7, properties, b"body")])
    row: dict[str, Any] = batch.to_pylist()[0]
    return row


def test_every_property_has_its_place() -> None:
    moment = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    strings: dict[str, Any] = {
        name: f"{name} ä"
        for name in (
            *("content_type", "content_encoding", "correlation_id", "reply_to", "message_id"),
            *("type", "user_id", "app_id", "cluster_id"),
        )
    }
    properties = BasicProperties(
        **strings,
        delivery_mode=2,
        priority=255,
        expiration="1500",
        timestamp=moment,  # type: ignore[arg-type]
    )
    row = one(properties)
    assert row == {
        "body": b"body",
        "exchange": "flights",
        "routing_key": "flights.EWR.UA",
        "properties": {
            **strings,
            "delivery_mode": 2,
            "priority": 255,
            "expiration": "1500",
            "timestamp": moment,
        },
        "headers": [],
        "redelivered": False,
        "stream": "orders",
        "offset": 7,
        "timestamp": None,
    }


def test_a_record_without_properties_has_only_nulls() -> None:
    properties = one(BasicProperties())["properties"]
    assert isinstance(properties, dict)
    assert set(properties.values()) == {None}


def test_headers_are_text_and_nested_ones_are_json() -> None:
    headers: dict[str, Any] = {
        "text": "ä",
        "number": -5,
        "yes": True,
        "real": 0.5,
        "nothing": None,
        "money": Decimal("12.50"),
        "raw": b"\xff\x00",
        "when": datetime(2026, 1, 31, tzinfo=UTC),
        "table": {"a": [1, None, "ö"], "when": datetime(2026, 1, 31, tzinfo=UTC)},
        "array": [True, b"\xff"],
    }
    actual = one(BasicProperties(headers=headers))["headers"]
    assert isinstance(actual, list)
    assert dict(actual) == {
        "text": "ä",
        "number": "-5",
        "yes": "true",
        "real": "0.5",
        "nothing": None,
        "money": "12.50",
        "raw": "/wA=",
        "when": "2026-01-31T00:00:00Z",
        "table": '{"a":[1,null,"ö"],"when":"2026-01-31T00:00:00Z"}',
        "array": '[true,"/w=="]',
    }


def test_a_map_has_each_name_once_and_the_last_value_counts() -> None:
    header = encode_content_header(V0_9_1, 60, 0, BasicProperties())
    twice = encode_entry("a", "first") + encode_entry("b", 1) + encode_entry("a", "last")
    header = with_header_entry(header, twice)
    (batch,) = batches("orders", ("headers",), [(0, header, b"", "", "")])
    assert batch.to_pylist() == [{"headers": [("a", "last"), ("b", "1")]}]


def test_the_time_of_arrival_is_a_column_and_no_header() -> None:
    row = one(BasicProperties(headers={ARRIVAL_HEADER: 1_769_862_600_123, "a": "b"}))
    assert row["timestamp"] == datetime(2026, 1, 31, 12, 30, 0, 123000, tzinfo=UTC)
    assert row["headers"] == [("a", "b")]


def test_properties_of_some_records_leave_the_others_null() -> None:
    mixed = [
        record(0),
        record(1, BasicProperties(message_id="m1")),
        record(2),
        record(3, BasicProperties(message_id="m3", headers={"a": "b"})),
        record(4),
    ]
    (batch,) = batches("orders", ("offset", "properties", "headers"), mixed)
    rows = batch.to_pylist()
    assert [row["properties"]["message_id"] for row in rows] == [None, "m1", None, "m3", None]
    assert [row["headers"] for row in rows] == [[], [], [], [("a", "b")], []]


def test_a_moment_after_the_calendar_is_null() -> None:
    header = encode_content_header(V0_9_1, 60, 0, BasicProperties(timestamp=2**63))
    (batch,) = batches("orders", ("properties",), [(0, header, b"", "", "")])
    assert batch.to_pylist()[0]["properties"]["timestamp"] is None


def test_batches_are_bounded_in_records_and_octets() -> None:
    small = [record(offset) for offset in range(25_000)]
    assert [b.num_rows for b in batches("s", ("offset",), small)] == [10_000, 10_000, 5_000]
    body = bytes(BLOCK_BYTES_MAX // 2)
    large = [record(offset, body=body) for offset in range(5)]
    assert [b.num_rows for b in batches("s", ("offset", "body"), large)] == [2, 2, 1]


def test_no_records_make_no_batch() -> None:
    assert list(batches("s", ALL, [])) == []


def test_a_malformed_header_is_named_by_its_offset() -> None:
    with pytest.raises(RecordError, match="offset 3 of stream 's' has a malformed content header"):
        list(batches("s", ALL, [(3, b"\x00\x3c" + bytes(9), b"", "", "")]))


def test_a_schema_of_the_user_takes_some_of_the_columns() -> None:
    def asked(text: str) -> tuple[str, ...]:
        schema = parse_schema(text)
        assert isinstance(schema, StructType)
        return parse_columns(schema).names

    assert asked("offset BIGINT, body BINARY") == ("offset", "body")
    with pytest.raises(SchemaError, match="no column 'price'; it has body, exchange"):
        asked("price BINARY")
    with pytest.raises(SchemaError, match=r"no column 'value'.*option 'value' makes one"):
        asked("value BINARY")
    with pytest.raises(SchemaError, match="column 'offset' is of type bigint, not int"):
        asked("offset INT")


def test_only_the_columns_asked_for_are_made() -> None:
    (batch,) = batches("s", ("offset", "stream"), [record(1)])
    assert batch.schema == pa.schema([("offset", pa.int64()), ("stream", pa.string())])


def test_the_content_header_is_a_column_for_those_who_ask() -> None:
    one = record(1, BasicProperties(message_id="m"))
    (batch,) = batches("s", (CONTENT_HEADER,), [one])
    assert batch.to_pylist() == [{CONTENT_HEADER: one[1]}]
