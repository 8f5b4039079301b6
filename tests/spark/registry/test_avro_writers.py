# SPDX-License-Identifier: Apache-2.0
"""Bodies of several writers, whose schemas are in a registry, become columns of one reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.columns.errors import RegistryError
from headrace.columns.options.options import OptionError, read_options
from headrace.columns.read.decoded_rows import make_codec
from headrace.columns.registry import schemas
from headrace.columns.registry.client import Registry

if TYPE_CHECKING:
    from headrace.columns.decode.codec import Codec
    from support.spark.fake_registry import FakeRegistry

READER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "long"}, "default": {}},
    ],
}


def without(*names: str, **types: object) -> dict[str, Any]:
    """Return the reader's schema without some fields, and with other types."""
    fields = [
        {**field, "type": types.get(field["name"], field["type"])}
        for field in READER["fields"]
        if field["name"] not in names
    ]
    return {**READER, "fields": fields}


def record(*fields: dict[str, object], name: str = "shop.Order") -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


def reader(registry: FakeRegistry, location: Path | None = None, **more: str) -> Codec:
    texts = {"uri": "amqp://h/", "stream": "s", "value": "avro", "valueSchema": json.dumps(READER)}
    texts |= {"avroFraming": "registry", "schemaRegistry": registry.url, **more}
    if location is not None:
        texts["schemaLocation"] = str(location)
    options = read_options(texts, streaming=True).decoding
    assert options is not None
    return make_codec(options, options.schema())


def framed(number: int, datum: bytes) -> bytes:
    return b"\0" + number.to_bytes(4) + datum


def test_bodies_of_three_serializers_in_one_batch(registry: FakeRegistry) -> None:
    """Confluent's own serializer writes the bodies, and its deserializer has the expected rows."""
    from decimal import Decimal

    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext("orders", MessageField.VALUE)
    rows = [
        (without("note", "tags"), {"id": 1, "price": Decimal("1.25")}),
        (without("tags", id="int"), {"id": 2, "price": Decimal("-7.50"), "note": "ä"}),
        (READER, {"id": 3, "price": Decimal("0.01"), "note": None, "tags": {"a": 1}}),
    ]
    bodies = [AvroSerializer(client, json.dumps(schema))(row, context) for schema, row in rows]
    judge = AvroDeserializer(client, json.dumps(READER))
    decoded = reader(registry).decode(bodies)
    assert decoded.faults == {}
    actual = [{**row, "tags": dict(row["tags"])} for row in decoded.values.to_pylist()]
    assert actual == [judge(body, context) for body in bodies]
    assert len({body[:5] for body in bodies}) == 3


def test_a_batch_that_is_read_again_asks_no_registry(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    number = registry.add("orders", without("note", "tags"))
    registry.add("unused", READER)
    other = registry.add("orders", without("tags"))
    bodies = [framed(number, b"\x02\x02\x05"), framed(other, b"\x04\x02\x05\x00")]
    bodies += [framed(number, b"\x06\x02\x05"), framed(number, b"\x06")]
    first = reader(registry, tmp_path).decode(bodies)
    assert list(first.faults) == [3]
    assert [row and row["id"] for row in first.values.to_pylist()] == [1, 2, 3, None]
    assert sorted(one.name for one in (tmp_path / "registry").iterdir()) == ["1.json", "3.json"]
    assert registry.asked == ["GET /schemas/ids/1", "GET /schemas/ids/3"]
    schemas._schemas.clear()  # Another process.
    again = reader(registry, tmp_path).decode(bodies)
    assert (again.values, again.faults) == (first.values, first.faults)
    assert len(registry.asked) == 2
    assert reader(registry).decode(bodies).faults == first.faults
    assert len(registry.asked) == 2, "this process has them"


def test_a_schema_may_refer_to_others(registry: FakeRegistry, tmp_path: Path) -> None:
    price = READER["fields"][1]["type"]
    registry.add("money", record({"name": "amount", "type": price}, name="shop.Money"))
    boxed = record({"name": "money", "type": "shop.Money"}, name="shop.Box")
    registry.add("box", boxed, **{"shop.Money": "money"})
    schema = without("note", "tags")
    schema["fields"].append({"name": "box", "type": "shop.Box"})
    schema["fields"].append({"name": "more", "type": "shop.Money"})
    number = registry.add("orders", schema, **{"shop.Box": "box", "shop.Money": "money"})
    bodies = [framed(number, b"\x02\x02\x05\x02\x01\x02\x01")]
    for _ in range(2):
        decoded = reader(registry, tmp_path).decode(bodies)
        assert decoded.faults == {}
        (row,) = decoded.values.to_pylist()
        assert (row["id"], str(row["price"]), row["note"], row["tags"]) == (1, "0.05", None, [])
        schemas._schemas.clear()


DIFFERENT = "the writer's schema does not resolve to 'valueSchema': Schema mismatch"
ITSELF = record({"name": "next", "type": ["null", "shop.Order"]})
NOTHING = {"type": "array", "items": record(name="shop.None")}
UNUSABLE: dict[str, tuple[object, str]] = {
    "not avro": ("{", "schema 1 is not an Avro schema"),
    "no record": ('"string"', "schema 1 is not an Avro schema of a record"),
    "contains itself": (ITSELF, "schema 1 has the type 'shop.Order', which contains itself"),
    "without end": (
        record({"name": "many", "type": NOTHING}),
        "schema 1 has an array of values without bytes",
    ),
    "nulls": (
        record({"name": "many", "type": {"type": "array", "items": "null"}}),
        "schema 1 has an array of values without bytes",
    ),
    "incompatible": (record({"name": "id", "type": "string"}), DIFFERENT),
    "another record": (record(name="Other"), DIFFERENT),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_body_whose_schema_cannot_be_used_is_bad(registry: FakeRegistry, case: str) -> None:
    schema, fault = UNUSABLE[case]
    number = registry.add("orders", schema)
    decoded = reader(registry).decode([framed(number, b"\x02" * 50)])
    assert decoded.values.to_pylist() == [None]
    assert fault in decoded.faults[0]


def test_a_body_without_a_known_schema_is_bad(registry: FakeRegistry) -> None:
    registry.add("orders", "message A {}", "PROTOBUF")
    gone = registry.add("orders", without("tags"), **{"shop.Box": "no-such-subject"})
    round_ = registry.add("round", without("note"), **{"shop.Box": "round"})
    bodies = [framed(1, b""), framed(gone, b""), framed(round_, b""), framed(99, b""), b"\0\0", b""]
    bodies += [b"\1\0\0\0\1\2", framed(99, b"")]
    decoded = reader(registry).decode(bodies)
    assert [decoded.faults[at].removeprefix("no Avro of this schema: ") for at in range(8)] == [
        "schema 1 is of PROTOBUF, not of AVRO",
        "schema 2 refers to version 1 of 'no-such-subject', which the registry does not have",
        "schema 3 refers to version 1 of 'round', which refers to itself",
        "the registry has no schema 99",
        "the mark of a schema registry is missing",
        "the mark of a schema registry is missing",
        "the mark of a schema registry is missing",
        "the registry has no schema 99",
    ]
    assert registry.asked.count("GET /schemas/ids/99") == 1


def test_a_writer_of_unknown_ids_does_not_flood_the_registry(registry: FakeRegistry) -> None:
    bodies = [framed(number, b"") for number in range(1000, 1300)]
    decoded = reader(registry).decode(bodies)
    assert len(decoded.faults) == 300
    assert "100 others of this task are unknown" in decoded.faults[299]
    assert len(registry.asked) == schemas.UNKNOWN_MAX


def test_a_damaged_file_is_named(registry: FakeRegistry, tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry" / "1.json").write_text('{"v": 1, "id": 2}')
    with pytest.raises(RegistryError, match=r"registry/1\.json is not a schema of a registry"):
        reader(registry, tmp_path).decode([framed(1, b"")])


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([(401, b'{"message": "who are you"}')], "answers 401 Unauthorized: who are you"),
        ([(403, b"<html>")], "answers 403 Forbidden"),
        ([(302, b"")], "answers 302 Found"),
        ([(200, b"<html>")], "answered with no JSON"),
        ([(200, b"[" * 100_000)], "answered with no JSON"),
        ([(200, b"[]")], "answered with no schema"),
        ([(200, b'{"schema": 7}')], "answered with no schema"),
        ([(200, b'{"schema": "{}", "references": [7]}')], "answered with no schema"),
        ([(200, b" " * ((4 << 20) + 1))], "is longer than 4194304 bytes"),
        ([(503, b"")] * 100, "answers 503 Service Unavailable"),
    ],
)
def test_a_registry_that_refuses_or_lies_fails_the_task(
    registry: FakeRegistry, answers: list[tuple[int, bytes]], told: str
) -> None:
    registry.faults = answers
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    decoding = read_options(
        {"uri": "amqp://h/", "stream": "s", "value": "avro", "valueSchema": json.dumps(READER)}
        | {"avroFraming": "registry", "schemaRegistry": registry.url, "schemaRegistryUser": "ada"}
        | {"schemaRegistryPassword": "hunter2"},
        streaming=True,
    ).decoding
    assert decoding is not None
    assert decoding.registry is not None
    with pytest.raises(RegistryError) as caught:
        Registry(decoding.registry, wait, lambda: now).fetch_schema(7)
    assert told in str(caught.value)
    assert "/schemas/ids/7" in str(caught.value)
    assert "hunter2" not in f"{caught.value}{decoding}"
    assert registry.logins == {"Basic YWRhOmh1bnRlcjI="}


def test_a_registry_that_is_busy_is_asked_again(registry: FakeRegistry) -> None:
    number = registry.add("orders", READER)
    registry.faults = [(503, b""), (429, b"")]
    assert reader(registry).decode([framed(number, b"\x02\x02\x05\x00\x00")]).faults == {}
    assert len(registry.asked) == 3


def test_a_registry_that_is_away_is_no_fault_of_a_body(registry: FakeRegistry) -> None:
    address = read_options(
        {"uri": "amqp://h/", "stream": "s", "value": "avro", "valueSchema": json.dumps(READER)}
        | {"avroFraming": "registry", "schemaRegistry": "http://127.0.0.1:1"},
        streaming=True,
    ).decoding
    assert address is not None
    assert address.registry is not None
    moments = iter(range(0, 1000, 20))
    with pytest.raises(RegistryError, match=r"127\.0\.0\.1:1: /schemas/ids/7 cannot be asked"):
        Registry(address.registry, lambda _: None, lambda: next(moments)).fetch_schema(7)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"schemaRegistry": "http://ada:hunter2@h/"},
            "must be a URL such as https://registry:8081",
        ),
        ({"schemaRegistry": "ftp://h/"}, "must be a URL"),
        ({"schemaRegistry": "http://h/?a=b"}, "without a user, a query or a fragment"),
        ({"avroFraming": "none"}, "needs option 'avroFraming' being 'registry'"),
        ({"schemaRegistryUser": "ada"}, "needs option 'schemaRegistryPassword'"),
        (
            {"value": "json", "valueSchema": "a INT"},
            "'avroFraming' does not go with option 'value'",
        ),
    ],
)
def test_options_of_a_registry(change: dict[str, str], told: str) -> None:
    texts = {"uri": "amqp://h/", "stream": "s", "value": "avro", "valueSchema": json.dumps(READER)}
    texts |= {"avroFraming": "registry", "schemaRegistry": "http://h:8081", **change}
    with pytest.raises(OptionError, match=told):
        read_options(texts, streaming=True)


def test_a_password_without_a_user_is_a_token(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", "t0ken")
    number = registry.add("orders", READER)
    reader(registry, schemaRegistryPasswordEnv="REGISTRY_TOKEN").decode([framed(number, b"")])
    assert registry.logins == {"Bearer t0ken"}
