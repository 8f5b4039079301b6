# SPDX-License-Identifier: Apache-2.0
"""Bodies of Protocol Buffers: one message each, of a type from a set of file descriptors.

Each body is parsed by the protobuf library. Columns are then gathered field by field over all
messages, so no row becomes a dictionary.
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

from headrace.columns.decode.codec import REGISTRY_LENGTH, Decoded, reason
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
DEPTH_MAX: Final = 64
TOGETHER_BYTES_MAX: Final = 4 << 20  # Bytes of the bodies that are decoded at a time.
TIMESTAMP: Final = "google.protobuf.Timestamp"
SECONDS_MIN: Final = -62_135_596_800  # The year 1.
SECONDS_MAX: Final = 253_402_300_799  # The last second of the year 9999.
NANOS_END: Final = 1_000_000_000
INDEXES_MAX: Final = 32  # Nested types in the mark of a registry.
F: Final = FieldDescriptor
SCALARS: Final[dict[int, DataType]] = {
    F.TYPE_INT32: IntegerType(),
    F.TYPE_SINT32: IntegerType(),
    F.TYPE_SFIXED32: IntegerType(),
    F.TYPE_INT64: LongType(),
    F.TYPE_SINT64: LongType(),
    F.TYPE_SFIXED64: LongType(),
    F.TYPE_UINT32: LongType(),
    F.TYPE_FIXED32: LongType(),
    F.TYPE_UINT64: DecimalType(20, 0),
    F.TYPE_FIXED64: DecimalType(20, 0),
    F.TYPE_FLOAT: FloatType(),
    F.TYPE_DOUBLE: DoubleType(),
    F.TYPE_BOOL: BooleanType(),
    F.TYPE_STRING: StringType(),
    F.TYPE_BYTES: BinaryType(),
    F.TYPE_ENUM: StringType(),
}


class ProtobufSchemaError(ValueError):
    """A set of descriptors without the message, or a message that has no counterpart in Spark."""


class _RangeError(ValueError):
    """A value that Protobuf can hold and Spark cannot."""


def read_message(descriptors: bytes, name: str) -> Descriptor:
    """The message of a `FileDescriptorSet`, as `protoc --descriptor_set_out` writes it."""
    try:
        files = FileDescriptorSet.FromString(descriptors).file
    except DecodeError as error:
        raise ProtobufSchemaError(f"is not a set of file descriptors: {reason(error)}") from None
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
        listed = ", ".join(messages[:20]) or "none"
        raise ProtobufSchemaError(f"has no message {name!r}; it has {listed}") from None
    except TypeError as error:  # A file that it imports is missing, or contradicts itself.
        raise ProtobufSchemaError(
            f"is not complete: {reason(error)}; protoc needs --include_imports"
        ) from None


def spark_type(message: Descriptor) -> StructType:
    """The type of what a message decodes to. Messages without fields have no column."""
    struct = _struct(message, (), 0)
    if not struct.fields:
        raise ProtobufSchemaError(f"has a message {message.full_name!r} without columns")
    return struct


class ProtobufCodec:
    """Decodes messages of one type."""

    def __init__(self, message: Descriptor, framing: str = "none") -> None:
        assert framing in FRAMINGS, framing
        self.kind = spark_type(message)
        self.arrow = arrow_type(self.kind)
        self._name = message.full_name
        self._class = GetMessageClass(message)
        self._build = _struct_builder(message, self.arrow)
        self._mark = _indexes(message) if framing == "registry" else None

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Parse body by body, then gather the columns of all."""
        faults: dict[int, str] = {}
        parts = []
        for start, end in _together(bodies):
            messages = [self._parse(bodies[at], at, faults) for at in range(start, end)]
            try:
                parts.append(self._build(messages))
            except (_RangeError, UnicodeError):
                parts.extend(
                    self._alone(message, start + at, faults) for at, message in enumerate(messages)
                )
        values = pa.concat_arrays(parts) if parts else pa.array([], self.arrow)
        return Decoded(values, dict(sorted(faults.items())))

    def _parse(self, body: bytes, at: int, faults: dict[int, str]) -> Message | None:
        try:
            if self._mark is not None:
                body = self._strip_framing(body)
            message: Message = self._class.FromString(body)
        except (DecodeError, ValueError) as error:
            faults[at] = reason(f"no message {self._name}: {str(error) or type(error).__name__}")
            return None
        if message.IsInitialized():
            return message
        missing = ", ".join(message.FindInitializationErrors())
        faults[at] = reason(f"no message {self._name}: required fields are missing: {missing}")
        return None

    def _strip_framing(self, body: bytes) -> bytes:
        """Return the message without the framing of a registry."""
        if len(body) <= REGISTRY_LENGTH or body[0] != 0:
            raise ValueError("the mark of a schema registry is missing")
        indexes, at = _read_indexes(body, REGISTRY_LENGTH)
        if indexes != self._mark:
            raise ValueError(f"it is message {indexes} of its file, not {self._mark}")
        return body[at:]

    def _alone(self, message: Message | None, at: int, faults: dict[int, str]) -> pa.Array:
        try:
            return self._build([message])
        except (_RangeError, UnicodeError) as error:
            faults[at] = reason(f"no message {self._name}: {error}")
            return self._build([None])


Build = Callable[[Sequence["Json"]], pa.Array]


def _together(bodies: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    start, size = 0, 0
    for at, body in enumerate(bodies):
        if size > TOGETHER_BYTES_MAX:
            yield start, at
            start, size = at, 0
        size += len(body)
    if bodies:
        yield start, len(bodies)


def _struct(message: Descriptor, within: tuple[str, ...], depth: int) -> StructType:
    if message.full_name in within:
        raise ProtobufSchemaError(f"has the message {message.full_name!r}, which contains itself")
    if depth > DEPTH_MAX:
        raise ProtobufSchemaError(f"nests messages deeper than {DEPTH_MAX}")
    within = (*within, message.full_name)
    fields = []
    for field in message.fields:
        kind = _field_type(field, within, depth)
        if kind is not None:
            fields.append(StructField(field.name, kind))
    names = [field.name.lower() for field in fields]
    if len(set(names)) < len(names):
        raise ProtobufSchemaError(
            f"has fields of message {message.full_name!r} that differ in case only"
        )
    return StructType(fields)


def _field_type(field: FieldDescriptor, within: tuple[str, ...], depth: int) -> DataType | None:
    entry = _entry(field)
    if entry is not None:
        value = _one_type(entry.fields_by_name["value"], within, depth)
        key = _one_type(entry.fields_by_name["key"], within, depth)
        return None if value is None or key is None else MapType(key, value)
    kind = _one_type(field, within, depth)
    return kind if kind is None or not field.is_repeated else ArrayType(kind)


def _one_type(field: FieldDescriptor, within: tuple[str, ...], depth: int) -> DataType | None:
    if field.message_type is None:
        return SCALARS[field.type]
    if field.message_type.full_name == TIMESTAMP:
        return TimestampType()
    struct = _struct(field.message_type, within, depth + 1)
    return struct if struct.fields else None


def _entry(field: FieldDescriptor) -> Descriptor | None:
    """The message of the entries of a map."""
    kind: Descriptor | None = field.message_type
    return kind if kind is not None and kind.GetOptions().map_entry else None


def _struct_builder(message: Descriptor, arrow: pa.StructType) -> Build:
    """Return the function that makes an array of messages; None is null."""
    empty = GetMessageClass(message)()
    fields = [arrow.field(at) for at in range(arrow.num_fields)]
    builders = [_field_builder(message.fields_by_name[field.name], field.type) for field in fields]

    def build(messages: Sequence[Json]) -> pa.Array:
        absent = [value is None for value in messages]
        present = [empty if value is None else value for value in messages]
        arrays = [make(present) for make in builders]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent, pa.bool_()))

    return build


def _field_builder(field: FieldDescriptor, arrow: pa.DataType) -> Build:
    name = field.name
    entry = _entry(field)
    if entry is not None:
        keys = _one_builder(entry.fields_by_name["key"], arrow.key_type)
        items = _one_builder(entry.fields_by_name["value"], arrow.item_type)

        def build_map(messages: Sequence[Json]) -> pa.Array:
            # A parsed map has the order of a hash; a batch that runs again has the same rows.
            maps = [
                sorted(getattr(message, name).items(), key=itemgetter(0)) for message in messages
            ]
            pairs = list(chain.from_iterable(maps))
            return pa.MapArray.from_arrays(
                _offsets(maps),
                keys([pair[0] for pair in pairs]),
                items([pair[1] for pair in pairs]),
                arrow,
            )

        return build_map
    if field.is_repeated:
        values = _one_builder(field, arrow.value_type)

        def build_list(messages: Sequence[Json]) -> pa.Array:
            lists = [getattr(message, name) for message in messages]
            flat = values(list(chain.from_iterable(lists)))
            return pa.ListArray.from_arrays(_offsets(lists), flat, arrow)

        return build_list
    one_value = _one_builder(field, arrow)
    if not field.has_presence:
        return lambda messages: one_value([getattr(message, name) for message in messages])
    return lambda messages: one_value(
        [getattr(message, name) if message.HasField(name) else None for message in messages]
    )


def _one_builder(field: FieldDescriptor, arrow: pa.DataType) -> Build:
    if field.message_type is not None and field.message_type.full_name == TIMESTAMP:
        return lambda values: pa.array([_micros(moment) for moment in values], arrow)
    if field.message_type is not None:
        return _struct_builder(field.message_type, arrow)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda values: pa.array(
            [None if number is None else names.get(number, str(number)) for number in values], arrow
        )

    def build(values: Sequence[Json]) -> pa.Array:
        try:
            return pa.array(values, arrow)
        except (pa.ArrowException, UnicodeError) as error:
            raise _RangeError(reason(f"{field.full_name}: {error}")) from None

    return build


def _micros(moment: Json) -> int | None:
    if moment is None:
        return None
    seconds, nanos = moment.seconds, moment.nanos
    if not SECONDS_MIN <= seconds <= SECONDS_MAX or not 0 <= nanos < NANOS_END:
        raise _RangeError(f"a timestamp of {seconds} seconds and {nanos} nanoseconds has no date")
    return int(seconds) * 1_000_000 + int(nanos) // 1000


def _offsets(lists: Sequence[Json]) -> pa.Array:
    return pa.array(accumulate(map(len, lists), initial=0), pa.int32())


def _indexes(message: Descriptor) -> list[int]:
    """Return the path of a message in its file: indexes from the outermost message inwards."""
    outer = message.containing_type
    if outer is None:
        return [list(message.file.message_types_by_name).index(message.name)]
    return [*_indexes(outer), [nested.name for nested in outer.nested_types].index(message.name)]


def _read_indexes(body: bytes, at: int) -> tuple[list[int], int]:
    """The indexes in the mark of a registry, and where they end; no index stands for the first."""
    count, at = _read_number(body, at)
    if not 0 <= count <= INDEXES_MAX:
        raise ValueError("the mark of a schema registry is damaged")
    indexes = []
    for _ in range(count):
        number, at = _read_number(body, at)
        indexes.append(number)
    return indexes or [0], at


def _read_number(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body) and shift < 35:  # Five bytes of seven bits.
        octet = body[at]
        at += 1
        value |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise ValueError("the mark of a schema registry is damaged")
