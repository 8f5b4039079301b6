# SPDX-License-Identifier: Apache-2.0
"""Messages of Protocol Buffers into Arrow: what the protobuf library says, and nothing raises."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import (
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.columns.decode import protobuf
from headrace.columns.decode.protobuf import ProtobufCodec, ProtobufSchemaError, find_message
from headrace.columns.options.options import OptionError, read_options
from headrace.columns.read.decoded_rows import make_codec
from headrace.columns.read_schema import read_schema
from support.spark.fake_registry import fake_registry

if TYPE_CHECKING:
    from google.protobuf.message import Message

ONE, MANY, REQUIRED = 1, 3, 2
KINDS = (
    *("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32"),
    *("sfixed64", "float", "double", "bool", "string", "bytes"),
)


def add(message: Any, name: str, kind: str, label: int = ONE, **more: Any) -> None:
    """Add a field; `kind` is a scalar, or the full name of a type that begins with a dot."""
    field = message.field.add(name=name, number=len(message.field) + 1, label=label, **more)
    if kind.startswith("."):
        field.type_name = kind
        field.type = FieldDescriptorProto.TYPE_ENUM if kind == ".shop.Kind" else 11
    else:
        field.type = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}")


def shop() -> FileDescriptorProto:
    """Return a file with two messages; the second has every kind of field."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kinds = file.enum_type.add(name="Kind")
    kinds.value.add(name="PLAIN", number=0)
    kinds.value.add(name="FANCY", number=5)
    item = file.message_type.add(name="Item")
    add(item, "sku", "string")
    add(item, "n", "int32")
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="paid")
    order.oneof_decl.add(name="_note")
    for kind in KINDS:
        add(order, f"a_{kind}", kind)
        add(order, f"some_{kind}", kind, MANY)
    add(order, "kind", ".shop.Kind")
    add(order, "item", ".shop.Item")
    add(order, "items", ".shop.Item", MANY)
    add(order, "at", ".google.protobuf.Timestamp")
    add(order, "cash", "int64", oneof_index=0)
    add(order, "card", ".shop.Item", oneof_index=0)
    add(order, "note", "string", oneof_index=1, proto3_optional=True)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add(entry, "key", "string")
    add(entry, "value", ".shop.Item")
    add(order, "counts", ".shop.Order.CountsEntry", MANY)
    add(order.nested_type.add(name="Nothing"), "x", "int32")
    order.nested_type[-1].ClearField("field")
    add(order, "nothing", ".shop.Order.Nothing")
    return file


def descriptors(*files: FileDescriptorProto) -> bytes:
    descriptor_set = FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(descriptor_set.file.add())
    descriptor_set.file.extend(files)
    return descriptor_set.SerializeToString()


ALL = descriptors(shop())
ORDER = find_message(ALL, "shop.Order")
Order = GetMessageClass(ORDER)
CODEC = ProtobufCodec(ORDER)


def plain(message: Message | None) -> dict[str, Any] | None:
    """Return the row of a message, computed field by field with the library."""
    if message is None:
        return None
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.name == "nothing":
            continue
        if field.name == "counts":
            row[field.name] = sorted((key, plain(one)) for key, one in value.items())
        elif field.is_repeated:
            row[field.name] = [cell(field, one) for one in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = cell(field, value)
    return row


def cell(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return {0: "PLAIN", 5: "FANCY"}.get(value, str(value))
    if field.message_type is not None and field.message_type.name == "Timestamp":
        return value.ToDatetime(ZoneInfo("UTC")).replace(microsecond=value.nanos // 1000)
    if field.message_type is not None:
        return plain(value)
    if field.type in (FieldDescriptorProto.TYPE_UINT64, FieldDescriptorProto.TYPE_FIXED64):
        return Decimal(value)
    return value


ranges = {
    "32": st.integers(-(2**31), 2**31 - 1),
    "64": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": st.text(st.characters(exclude_categories=("Cs",))),  # type: ignore[arg-type]
    "bytes": st.binary(),
}


def values(kind: str) -> st.SearchStrategy[Any]:
    size = kind[-2:]
    if kind.startswith(("uint", "fixed")):
        return st.integers(0, 2 ** int(size) - 1)
    return ranges[size if size in ranges else kind]


items = st.builds(lambda sku, n: {"sku": sku, "n": n}, ranges["string"], ranges["32"])
fields: dict[str, st.SearchStrategy[Any]] = {
    **{f"a_{kind}": values(kind) for kind in KINDS},
    **{f"some_{kind}": st.lists(values(kind), max_size=3) for kind in KINDS},
    "kind": st.sampled_from([0, 5, 7]),
    "item": items,
    "items": st.lists(items, max_size=3),
    "at": st.builds(
        lambda seconds, nanos: {"seconds": seconds, "nanos": nanos},
        st.integers(protobuf.SECONDS_MIN, protobuf.SECONDS_MAX),
        st.integers(0, 999_999_999),
    ),
    "note": ranges["string"],
    "counts": st.dictionaries(ranges["string"], items, max_size=3),
}
messages = st.fixed_dictionaries({}, optional=fields).map(lambda given_: Order(**given_))


@settings(max_examples=40, deadline=None)
@given(st.lists(messages, max_size=5))
def test_a_row_is_what_the_library_says(some: list[Message]) -> None:
    decoded = CODEC.decode([one.SerializeToString() for one in some])
    assert decoded.faults == {}
    assert decoded.values.type == CODEC.arrow
    decoded.values.validate(full=True)
    assert decoded.values.to_pylist() == [plain(one) for one in some]


@settings(max_examples=60, deadline=None)
@given(messages, st.data())
def test_any_octets_are_a_row_or_bad(message: Message, data: st.DataObject) -> None:
    body = bytearray(message.SerializeToString())
    for _ in range(3):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    good = Order(a_int32=1).SerializeToString()
    decoded = CODEC.decode([good, bytes(body), good])
    rows = decoded.values.to_pylist()
    assert rows[0] == rows[2] == plain(Order(a_int32=1))
    try:
        judged = plain(Order.FromString(bytes(body)))
    except Exception:  # noqa: BLE001  # Malformed, or a moment that no calendar has.
        assert list(decoded.faults) == [1]
        assert rows[1] is None
    else:
        assert repr(rows[1]) == repr(judged)  # NaN is equal to NaN here.


def test_bad_bodies_leave_their_neighbours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "CHUNK_BYTES_MAX", 10)
    late = Order(at={"seconds": 2**62}).SerializeToString()
    good = [Order(a_int64=n, items=[{"n": n}]).SerializeToString() for n in range(4)]
    decoded = CODEC.decode([good[0], late, good[1], b"\xff", good[2], b"", good[3]])
    assert [row and row["a_int64"] for row in decoded.values.to_pylist()] == (
        [0, None, 1, None, 2, 0, 3]
    )
    assert decoded.faults == {
        1: "no message shop.Order: a timestamp of 4611686018427387904 seconds and 0 nanoseconds "
        "has no date",
        3: decoded.faults[3],
    }
    assert decoded.faults[3].startswith("no message shop.Order: ")
    assert CODEC.decode([]).values.to_pylist() == []


def of(*more: FileDescriptorProto, name: str = "x.M") -> str:
    with pytest.raises(ProtobufSchemaError) as caught:
        ProtobufCodec(find_message(descriptors(*more), name))
    return str(caught.value)


def test_a_message_without_a_type_in_spark_is_refused() -> None:
    file = FileDescriptorProto(name="x.proto", package="x", syntax="proto3")
    message = file.message_type.add(name="M")
    assert of(file) == "has a message 'x.M' without columns"
    add(message, "next", ".x.M")
    assert of(file) == "has the message 'x.M', which contains itself"
    add(message, "NEXT", "int32")
    message.field[0].type_name = ".google.protobuf.Timestamp"
    file.dependency.append("google/protobuf/timestamp.proto")
    assert of(file) == "has fields of message 'x.M' that differ in case only"
    assert of(file, name="x.N") == "has no message 'x.N'; it has google.protobuf.Timestamp, x.M"
    file.dependency.append("gone.proto")
    assert "protoc needs --include_imports" in of(file)
    with pytest.raises(ProtobufSchemaError, match="is not a set of file descriptors"):
        find_message(b"no such thing", "x.M")


def test_a_required_field_that_is_missing_makes_a_body_bad() -> None:
    file = FileDescriptorProto(name="x.proto", package="x", syntax="proto2")
    message = file.message_type.add(name="M")
    add(message, "id", "int32", REQUIRED)
    add(message, "text", "string")
    old = ProtobufCodec(find_message(descriptors(file), "x.M"))
    decoded = old.decode([b"\x08\x07", b"", b"\x08\x07\x12\x01\xff"])
    assert decoded.values.to_pylist() == [{"id": 7, "text": None}, None, None]
    assert decoded.faults[1] == "no message x.M: required fields are missing: id"
    assert 2 in decoded.faults, "text that is not valid UTF-8"


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "shop.pb").write_bytes(ALL)
    return str(tmp_path / "shop.pb")


def options(file: str, **more: str) -> dict[str, str]:
    given_ = {
        "uri": "amqp://h/",
        "stream": "s",
        "value": "protobuf",
        "protobufMessage": "shop.Order",
    }
    return {**given_, "protobufDescriptors": file, **more}


def test_messages_with_the_mark_of_a_registry(file: str) -> None:
    """Confluent's own serializer writes the body."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    message = Order(a_int32=7, at={"seconds": 1}, counts={"a": {"n": 1}})
    with fake_registry() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        serialize = ProtobufSerializer(Order, client, {"use.deprecated.format": False})
        body = serialize(message, SerializationContext("orders", MessageField.VALUE))
    decoding = read_options(options(file, protobufFraming="registry"), streaming=True).decoding
    assert decoding is not None
    item = body[:5] + b"\0" + Order(a_int32=7).item.SerializeToString()
    nested = body[:5] + b"\x04\x02\x00"
    bad = [item, nested, body[:4], b"\1" + body[1:], body[:5] + b"\xff" * 9, body[:5] + b"\x01"]
    decoded = make_codec(decoding, None).decode([body, *bad])
    assert decoded.values.to_pylist() == [plain(message), *[None] * 6]
    assert [decoded.faults[at].removeprefix("no message shop.Order: ") for at in range(1, 7)] == [
        "the body is message [0] of the schema, not [1]",
        "the body is message [1, 0] of the schema, not [1]",
        "the mark of a schema registry is missing",
        "the mark of a schema registry is missing",
        "the mark of a schema registry is damaged",
        "the mark of a schema registry is damaged",
    ]


def test_the_columns_follow_from_the_descriptors(file: str) -> None:
    kind = read_schema(options(file, protobufMessage="shop.Item")).types["value"]
    assert kind.text() == "struct<sku:string,n:int>"
    assert CODEC.kind.types["a_uint32"].text() == "bigint"
    assert CODEC.kind.types["a_uint64"].text() == "decimal(20,0)"
    assert CODEC.decode([Order(at={"seconds": 1}).SerializeToString()]).values[0]["at"].as_py() == (
        datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"protobufDescriptors": "/no/such/file"}, "'/no/such/file' cannot be read: No such file"),
        (
            {"protobufMessage": "shop.Nil"},
            "'protobufDescriptors' has no message 'shop.Nil'; it has",
        ),
        (
            {"valueSchema": "a INT"},
            "'valueSchema' does not go with option 'value' being 'protobuf'",
        ),
        ({"value": "json"}, "'protobufDescriptors' does not go with option 'value' being 'json'"),
        ({"protobufFraming": "avro"}, "'protobufFraming' must be 'none' or 'registry'"),
    ],
)
def test_options_that_are_wrong_are_named(file: str, change: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        read_options(options(file, **change), streaming=True)


def test_a_message_must_be_named(file: str) -> None:
    given_ = options(file)
    del given_["protobufMessage"]
    with pytest.raises(OptionError, match="option 'protobufMessage' is missing"):
        read_options(given_, streaming=True)
