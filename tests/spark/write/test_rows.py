# SPDX-License-Identifier: Apache-2.0
"""Rows into messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from headrace.columns.options.options import OptionError, WriteOptions, write_options
from headrace.columns.schema.columns import HEADERS_TYPE, MOMENT_TYPE, SchemaError
from headrace.spark.write.rows import Row, RowError, check_columns, make_rows


def options(**given: str) -> WriteOptions:
    """Return the options of a write; no broker is contacted."""
    return write_options({"uri": "amqp://broker", **given})


def test_columns_override_options() -> None:
    batch = pa.table(
        {
            "value": ["a", "b"],
            "exchange": ["other", None],
            "routing_key": [None, "mine"],
        }
    ).to_batches()[0]
    result = list(make_rows(options(exchange="x", routingKey="k"), batch))
    assert [(row.exchange, row.routing_key) for row in result if isinstance(row, Row)] == [
        ("other", "k"),
        ("x", "mine"),
    ]


def test_properties_and_headers_go_with_the_message() -> None:
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    properties = {
        "content_type": "text/plain",
        "delivery_mode": 1,
        "priority": 7,
        "expiration": "1500",
        "timestamp": moment,
        "message_id": None,
    }
    fields = [
        ("content_type", pa.string()),
        ("delivery_mode", pa.int32()),
        ("priority", pa.int32()),
        ("expiration", pa.string()),
        ("timestamp", MOMENT_TYPE),
        ("message_id", pa.string()),
    ]
    batch = pa.record_batch(
        {
            "body": pa.array([b"\xff"]),
            "properties": pa.array([properties], pa.struct(fields)),
            "headers": pa.array([[("a", "b"), ("n", None)]], HEADERS_TYPE),
        }
    )
    (row,) = make_rows(options(exchange="x"), batch)
    assert isinstance(row, Row)
    message = row.message
    assert message.body == b"\xff"
    assert message.headers == {"a": "b", "n": None}
    assert (message.content_type, message.persistent, message.priority) == ("text/plain", False, 7)
    assert message.expiration == timedelta(seconds=1.5)
    assert (message.timestamp, message.message_id) == (moment, None)


def test_messages_are_persistent_unless_told() -> None:
    batch = pa.record_batch({"body": pa.array([b""])})
    for texts, persistent in (({}, True), ({"persistent": "false"}, False)):
        (row,) = make_rows(options(exchange="x", **texts), batch)
        assert isinstance(row, Row)
        assert row.message.persistent is persistent


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"body": None}, "the body is null"),
        ({"routing_key": "k" * 256}, "the routing key has more than 255 bytes"),
        ({"exchange": "ä" * 128}, "the exchange has more than 255 bytes"),
        ({"properties": {"type": "t" * 256}}, "property 'type' has more than 255 bytes"),
        ({"properties": {"priority": 256}}, "property 'priority' is 256, not from 0 to 255"),
        ({"properties": {"delivery_mode": 3}}, "'delivery_mode' is 3, neither 1 nor 2"),
        ({"properties": {"expiration": "1s"}}, "not a whole number of milliseconds"),
        ({"headers": [("k" * 256, "v")]}, "255"),
    ],
)
def test_a_bad_row_is_an_error_of_its_own(values: dict[str, Any], reason: str) -> None:
    types = {"headers": HEADERS_TYPE}
    columns = {
        name: pa.array([good, value], types.get(name))
        for name, value, good in (
            (name, value, {} if name == "properties" else [] if name == "headers" else "good")
            for name, value in {"body": "text", **values}.items()
        )
    }
    good, bad = make_rows(options(exchange="x"), pa.record_batch(columns))
    assert isinstance(good, Row)
    assert isinstance(bad, RowError)
    assert reason in bad.reason


@pytest.mark.parametrize(
    ("columns", "given", "text"),
    [
        ({"body": "binary"}, {}, "option 'exchange' is missing"),
        ({"body": "binary"}, {"exchange": ""}, "option 'routingKey' is missing"),
        ({"routing_key": "string"}, {"exchange": "x"}, "one column 'body' or 'value'"),
        ({"body": "binary", "value": "string"}, {"exchange": "x"}, "one column"),
        ({"body": "int"}, {"exchange": "x"}, "'body' must be of type binary or string, not int"),
        ({"body": "binary", "offset": "bigint"}, {"exchange": "x"}, "publish a column 'offset'"),
        ({"body": "binary", "properties": "string"}, {"exchange": "x"}, "must be a struct"),
        (
            {"body": "binary", "properties": "struct<colour:string>"},
            {"exchange": "x"},
            "a field 'colour'; the properties are content_type",
        ),
        (
            {"body": "binary", "properties": "struct<priority:string>"},
            {"exchange": "x"},
            "property 'priority' must be of type tinyint",
        ),
        (
            {"body": "binary", "headers": "map<string,int>"},
            {"exchange": "x"},
            "'headers' must be of type map<string,string>",
        ),
    ],
)
def test_columns_that_make_no_message_are_refused(
    columns: dict[str, str], given: dict[str, str], text: str
) -> None:
    with pytest.raises((OptionError, SchemaError), match=text):
        check_columns(options(**given), list(columns.items()))
