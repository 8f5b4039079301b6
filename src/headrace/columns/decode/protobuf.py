# SPDX-License-Identifier: Apache-2.0
"""Decoder of Protocol Buffers: each body is one message of a type from a set of descriptors.

The protobuf library parses each body. The decoder then builds columns field by field over all
messages, without a dictionary for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from headrace.columns.decode.codec import REGISTRY_FRAMING_BYTES, Decoded, format_reason
from headrace.columns.schema.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    arrow_type,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from headrace.untyped import Json

FRAMINGS: Final = ("none", "registry")
DEPTH_MAX: Final = 64  # The maximum depth of nested messages.
CHUNK_BYTES_MAX: Final = 4 << 20  # The approximate size of the bodies that are decoded at a time.
TIMESTAMP: Final = "google.protobuf.Timestamp"
SECONDS_MIN: Final = -62_135_596_800  # The year 1.
SECONDS_MAX: Final = 253_402_300_799  # The last second of the year 9999.
NANOS_END: Final = 1_000_000_000
INDEXES_MAX: Final = 32  # The maximum number of message indexes in the framing of a registry.
Field: Final = FieldDescriptor
SCALAR_TYPES: Final[dict[int, DataType]] = {
    Field.TYPE_INT32: IntegerType(),
    Field.TYPE_SINT32: IntegerType(),
    Field.TYPE_SFIXED32: IntegerType(),
    Field.TYPE_INT64: LongType(),
    Field.TYPE_SINT64: LongType(),
    Field.TYPE_SFIXED64: LongType(),
    Field.TYPE_UINT32: LongType(),
    Field.TYPE_FIXED32: LongType(),
    Field.TYPE_UINT64: DecimalType(20, 0),
    Field.TYPE_FIXED64: DecimalType(20, 0),
    Field.TYPE_FLOAT: FloatType(),
    Field.TYPE_DOUBLE: DoubleType(),
    Field.TYPE_BOOL: BooleanType(),
    Field.TYPE_STRING: StringType(),
    Field.TYPE_BYTES: BinaryType(),
    Field.TYPE_ENUM: StringType(),
}


class ProtobufSchemaError(ValueError):
    """A set of descriptors lacks the message, or Spark has no type for the message."""


class _RangeError(ValueError):
    """A value of Protobuf is out of the range of Spark's type."""


def find_message(descriptors: bytes, name: str) -> Descriptor:
    """Return the descriptor of the message `name` in an encoded `FileDescriptorSet`.

    `protoc --include_imports --descriptor_set_out` writes such a set.

    Raises:
        ProtobufSchemaError: the set lacks the message or an import.
    """
    try:
        files = FileDescriptorSet.FromString(descriptors).file
    except DecodeError as error:
        raise ProtobufSchemaError(
            f"is not a set of file descriptors: {format_reason(error)}"
        ) from None
    pool = DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except KeyError:
        messages = sorted(
            f"{file.package}.{message.name}".lstrip(".")
            for file in files
            for message in file.message_type
        )
        message_names = ", ".join(messages[:20]) or "none"
        raise ProtobufSchemaError(f"has no message {name!r}; it has {message_names}") from None
    except TypeError as error:  # An imported file is missing, or contradicts itself.
        raise ProtobufSchemaError(
            f"is not complete: {format_reason(error)}; protoc needs --include_imports"
        ) from None


def spark_type(message: Descriptor) -> StructType:
    """Return the type of a decoded message; nested messages without fields are left out.

    Raises:
        ProtobufSchemaError: the message has no columns, or contains itself.
    """
    struct = _struct_type(message, (), 0)
    if not struct.fields:
        raise ProtobufSchemaError(f"has a message {message.full_name!r} without columns")
    return struct


class ProtobufCodec:
    """A decoder of messages of one type."""

    def __init__(self, message: Descriptor, framing: str = "none") -> None:
        assert framing in FRAMINGS, framing
        self.kind = spark_type(message)
        self.arrow = arrow_type(self.kind)
        self._name = message.full_name
        self._class = GetMessageClass(message)
        self._build = _struct_builder(message, self.arrow)
        self._framing_indexes = _message_indexes(message) if framing == "registry" else None

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Parse body by body, then build the columns from all messages of a chunk."""
        faults: dict[int, str] = {}
        parts = []
        for start, end in _chunk_bounds(bodies):
            messages = [self._parse(bodies[index], index, faults) for index in range(start, end)]
            try:
                parts.append(self._build(messages))
            except (_RangeError, UnicodeError):
                parts.extend(
                    self._build_alone(message, start + index, faults)
                    for index, message in enumerate(messages)
                )
        values = pa.concat_arrays(parts) if parts else pa.array([], self.arrow)
        return Decoded(values, dict(sorted(faults.items())))

    def _parse(self, body: bytes, index: int, faults: dict[int, str]) -> Message | None:
        """Parse a body; return None and add a fault if it is malformed."""
        try:
            if self._framing_indexes is not None:
                body = self._strip_framing(body)
            message: Message = self._class.FromString(body)
        except (DecodeError, ValueError) as error:
            faults[index] = format_reason(
                f"no message {self._name}: {str(error) or type(error).__name__}"
            )
            return None
        if message.IsInitialized():
            return message
        missing = ", ".join(message.FindInitializationErrors())
        faults[index] = format_reason(
            f"no message {self._name}: required fields are missing: {missing}"
        )
        return None

    def _strip_framing(self, body: bytes) -> bytes:
        """Return the message without the framing of a registry."""
        if len(body) <= REGISTRY_FRAMING_BYTES or body[0] != 0:
            raise ValueError("the mark of a schema registry is missing")
        indexes, index = _read_indexes(body, REGISTRY_FRAMING_BYTES)
        if indexes != self._framing_indexes:
            raise ValueError(
                f"the body is message {indexes} of the schema, not {self._framing_indexes}"
            )
        return body[index:]

    def _build_alone(self, message: Message | None, index: int, faults: dict[int, str]) -> pa.Array:
        """Build the array of one message; null, and a fault, if a value is out of range."""
        try:
            return self._build([message])
        except (_RangeError, UnicodeError) as error:
            faults[index] = format_reason(f"no message {self._name}: {error}")
            return self._build([None])


# A function that builds an array from the values of one field, or from messages.
Build = Callable[[Sequence["Json"]], pa.Array]


def _chunk_bounds(bodies: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the chunks of bodies as [start, end)."""
    start, size = 0, 0
    for index, body in enumerate(bodies):
        if size > CHUNK_BYTES_MAX:
            yield start, index
            start, size = index, 0
        size += len(body)
    if bodies:
        yield start, len(bodies)


def _struct_type(message: Descriptor, outer_names: tuple[str, ...], depth: int) -> StructType:
    """Return the type of a message; `outer_names` are the messages around it."""
    if message.full_name in outer_names:
        raise ProtobufSchemaError(f"has the message {message.full_name!r}, which contains itself")
    if depth > DEPTH_MAX:
        raise ProtobufSchemaError(f"nests messages deeper than {DEPTH_MAX}")
    outer_names = (*outer_names, message.full_name)
    fields = []
    for field in message.fields:
        kind = _field_type(field, outer_names, depth)
        if kind is not None:
            fields.append(StructField(field.name, kind))
    names = [field.name.lower() for field in fields]
    if len(set(names)) < len(names):
        raise ProtobufSchemaError(
            f"has fields of message {message.full_name!r} that differ in case only"
        )
    return StructType(fields)


def _field_type(
    field: FieldDescriptor, outer_names: tuple[str, ...], depth: int
) -> DataType | None:
    """Return the type of a field; None if its messages have no fields."""
    entry = _map_entry(field)
    if entry is not None:
        value = _value_type(entry.fields_by_name["value"], outer_names, depth)
        key = _value_type(entry.fields_by_name["key"], outer_names, depth)
        return None if value is None or key is None else MapType(key, value)
    kind = _value_type(field, outer_names, depth)
    return kind if kind is None or not field.is_repeated else ArrayType(kind)


def _value_type(
    field: FieldDescriptor, outer_names: tuple[str, ...], depth: int
) -> DataType | None:
    if field.message_type is None:
        return SCALAR_TYPES[field.type]
    if field.message_type.full_name == TIMESTAMP:
        return TimestampType()
    struct = _struct_type(field.message_type, outer_names, depth + 1)
    return struct if struct.fields else None


def _map_entry(field: FieldDescriptor) -> Descriptor | None:
    """Return the message of a map's entries; None if the field is not a map."""
    kind: Descriptor | None = field.message_type
    return kind if kind is not None and kind.GetOptions().map_entry else None


def _struct_builder(message: Descriptor, arrow: pa.StructType) -> Build:
    """Return a function that builds a struct array from messages; None becomes null."""
    empty = GetMessageClass(message)()
    fields = [arrow.field(index) for index in range(arrow.num_fields)]
    builders = [_field_builder(message.fields_by_name[field.name], field.type) for field in fields]

    def build_struct(messages: Sequence[Json]) -> pa.Array:
        is_null = [message is None for message in messages]
        nonnull_messages = [empty if message is None else message for message in messages]
        arrays = [build_field(nonnull_messages) for build_field in builders]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(is_null, pa.bool_()))

    return build_struct


def _field_builder(field: FieldDescriptor, arrow: pa.DataType) -> Build:
    """Return a function that builds the array of one field from messages."""
    name = field.name
    entry = _map_entry(field)
    if entry is not None:
        build_keys = _value_builder(entry.fields_by_name["key"], arrow.key_type)
        build_items = _value_builder(entry.fields_by_name["value"], arrow.item_type)

        def build_map(messages: Sequence[Json]) -> pa.Array:
            # A parsed map has a random order, but a batch that runs again must have equal rows.
            maps = [
                sorted(getattr(message, name).items(), key=itemgetter(0)) for message in messages
            ]
            pairs = list(chain.from_iterable(maps))
            return pa.MapArray.from_arrays(
                _list_offsets(maps),
                build_keys([pair[0] for pair in pairs]),
                build_items([pair[1] for pair in pairs]),
                arrow,
            )

        return build_map
    if field.is_repeated:
        build_elements = _value_builder(field, arrow.value_type)

        def build_list(messages: Sequence[Json]) -> pa.Array:
            lists = [getattr(message, name) for message in messages]
            elements = build_elements(list(chain.from_iterable(lists)))
            return pa.ListArray.from_arrays(_list_offsets(lists), elements, arrow)

        return build_list
    build_value = _value_builder(field, arrow)
    if not field.has_presence:
        return lambda messages: build_value([getattr(message, name) for message in messages])
    return lambda messages: build_value(
        [getattr(message, name) if message.HasField(name) else None for message in messages]
    )


def _value_builder(field: FieldDescriptor, arrow: pa.DataType) -> Build:
    """Return a function that builds an array from single values of a field."""
    if field.message_type is not None and field.message_type.full_name == TIMESTAMP:
        return lambda values: pa.array([_to_micros(moment) for moment in values], arrow)
    if field.message_type is not None:
        return _struct_builder(field.message_type, arrow)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda values: pa.array(
            [None if number is None else names.get(number, str(number)) for number in values], arrow
        )

    def build_scalars(values: Sequence[Json]) -> pa.Array:
        try:
            return pa.array(values, arrow)
        except (pa.ArrowException, UnicodeError) as error:
            raise _RangeError(format_reason(f"{field.full_name}: {error}")) from None

    return build_scalars


def _to_micros(moment: Json) -> int | None:
    """Return a timestamp of Protobuf in microseconds since 1970."""
    if moment is None:
        return None
    seconds, nanos = moment.seconds, moment.nanos
    if not SECONDS_MIN <= seconds <= SECONDS_MAX or not 0 <= nanos < NANOS_END:
        raise _RangeError(f"a timestamp of {seconds} seconds and {nanos} nanoseconds has no date")
    return int(seconds) * 1_000_000 + int(nanos) // 1000


def _list_offsets(lists: Sequence[Json]) -> pa.Array:
    return pa.array(accumulate(map(len, lists), initial=0), pa.int32())


def _message_indexes(message: Descriptor) -> list[int]:
    """Return the path of a message in its file: its index, after those of enclosing messages."""
    outer = message.containing_type
    if outer is None:
        return [list(message.file.message_types_by_name).index(message.name)]
    return [
        *_message_indexes(outer),
        [nested.name for nested in outer.nested_types].index(message.name),
    ]


def _read_indexes(body: bytes, position: int) -> tuple[list[int], int]:
    """Return the message indexes in the framing of a registry, and the position after them.

    An empty list of indexes means the first message.
    """
    count, position = _read_varint(body, position)
    if not 0 <= count <= INDEXES_MAX:
        raise ValueError("the mark of a schema registry is damaged")
    indexes = []
    for _ in range(count):
        number, position = _read_varint(body, position)
        indexes.append(number)
    return indexes or [0], position


def _read_varint(body: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag-encoded number, and the position after it."""
    value = shift = 0
    while position < len(body) and shift < 35:  # Five bytes of seven bits.
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position
    raise ValueError("the mark of a schema registry is damaged")
