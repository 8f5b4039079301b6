# SPDX-License-Identifier: Apache-2.0
"""Rows encoded column by column are what they would be one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.bulk.publisher import parse_publishes
from headrace.client.message import decode_properties, encode_header
from headrace.client.url import Secret
from headrace.columns.options.options import WriteOptions
from headrace.columns.schema.columns import HEADERS_TYPE, PROPERTIES, PROPERTIES_TYPE
from headrace.spark.write.encode import encode
from headrace.spark.write.rows import Row, RowError, make_rows

FRAME_MAX = 4096
SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("properties", PROPERTIES_TYPE),
        ("headers", HEADERS_TYPE),
    ]
)


def options(**given: Any) -> WriteOptions:
    return WriteOptions(uri=Secret("amqp://localhost/"), **given)


def published(batch: pa.RecordBatch, asked: WriteOptions) -> tuple[list[Any], dict[int, str]]:
    """Return the messages of a batch's frames, and the errors by row."""
    encoded = encode(asked, batch, None, FRAME_MAX)
    actual: list[Any] = []
    for octets, count in encoded.frames(1, FRAME_MAX, 5000):
        publishes = parse_publishes(octets)
        assert len(publishes) == count
        actual += [
            (exchange.decode(), key.decode(), decode_properties(header), body)
            for exchange, key, header, body in publishes
        ]
    return actual, {row: error.reason for row, error in encoded.errors.items()}


def one_by_one(batch: pa.RecordBatch, asked: WriteOptions) -> tuple[list[Any], dict[int, str]]:
    """Return the same as `published`, by the conversion row by row."""
    good: list[Any] = []
    bad: dict[int, str] = {}
    for index, row in enumerate(make_rows(asked, batch, FRAME_MAX - 32)):
        if isinstance(row, RowError):
            bad[index] = row.reason
            continue
        assert isinstance(row, Row)
        message = row.message
        good.append((row.exchange, row.routing_key, message, message.body))
    return good, bad


def text(random: Random) -> str | None:
    if random.random() < 0.3:
        return None
    size = 300 if random.random() < 0.01 else random.randrange(12)
    return "".join(random.choice("abcäö€𝄞") for _ in range(size))


def value(random: Random, name: str) -> Any:
    if random.random() < 0.4:
        return None
    if name == "timestamp":
        return datetime.fromtimestamp(random.randrange(-5, 2**31), UTC)
    if name == "delivery_mode":
        return random.choice((1, 2, 2, 2, 3) if random.random() < 0.1 else (1, 2))
    if name == "priority":
        return random.choice((0, 5, 255, 256) if random.random() < 0.1 else (0, 9))
    if name == "expiration":
        return random.choice(("1", "60000", "x") if random.random() < 0.1 else ("1", "99"))
    return text(random)


def row(random: Random) -> dict[str, Any]:
    properties = {name: value(random, name) for name in PROPERTIES}
    count = random.randrange(4)
    return {
        "body": None if random.random() < 0.02 else random.randbytes(random.choice((0, 3, 5000))),
        "exchange": text(random),
        "routing_key": text(random),
        "properties": None if random.random() < 0.2 else properties,
        "headers": None
        if random.random() < 0.3
        else [(f"{text(random) or ''}{n}", text(random)) for n in range(count)],
    }


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("asked", [options(exchange="x", routing_key="k"), options()])
def test_columns_say_what_rows_say(seed: int, asked: WriteOptions) -> None:
    random = Random(seed)
    batch = pa.RecordBatch.from_pylist([row(random) for _ in range(200)], SCHEMA).slice(3, 180)
    good, bad = published(batch, asked)
    expected, wrong = one_by_one(batch, asked)
    assert bad == wrong
    assert len(good) == len(expected)
    for (exchange, key, properties, body), (to, by, message, octets) in zip(
        good, expected, strict=True
    ):
        assert (exchange, key, body) == (to, by, octets)
        sent = decode_properties(encode_header(message))
        for name in (*PROPERTIES[:2], *PROPERTIES[3:]):
            assert getattr(properties, name) == getattr(sent, name), name
        assert (properties.delivery_mode == 2) == message.persistent
        assert dict(properties.headers or {}) == dict(message.headers or {})


def test_what_is_not_given_costs_no_column() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b"]})
    encoded = encode(options(exchange="", routing_key="q"), batch, None, FRAME_MAX)
    assert encoded.properties.is_constant
    good, bad = published(batch, options(exchange="", routing_key="q", persistent=False))
    assert [(key, body) for _, key, _, body in good] == [("q", b"a"), ("q", b"b")]
    assert good[0][2].delivery_mode is None
    assert bad == {}


def test_rows_without_message_id_get_one_by_their_number() -> None:
    schema = pa.schema(
        [("body", pa.string()), ("properties", pa.struct([("message_id", pa.string())]))]
    )
    batch = pa.RecordBatch.from_pylist(
        [
            {"body": "a", "properties": None},
            {"body": None, "properties": None},
            {"body": "c", "properties": {"message_id": "mine"}},
            {"body": "d", "properties": {"message_id": None}},
        ],
        schema,
    )
    encoded = encode(options(exchange="x"), batch, ("q:7:0:", 100), FRAME_MAX)
    ((octets, _),) = encoded.frames(1, FRAME_MAX)
    actual = [decode_properties(header).message_id for _, _, header, _ in parse_publishes(octets)]
    assert actual == ["q:7:0:100", "mine", "q:7:0:103"]
    assert [encoded.row_number(index) for index in range(3)] == [0, 2, 3]
    assert encoded.errors[1].reason == "the body is null"
