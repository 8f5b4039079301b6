# SPDX-License-Identifier: Apache-2.0
"""Decoder of Avro: each body is one datum, written with a known schema.

The framing is the bytes before the datum. The framing `none` has no bytes. `single-object` is a
marker and a fingerprint, which selects the writer's schema among the known schemas. `registry` is
five bytes with the id of the writer's schema in a schema registry; without a registry they are
skipped.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.read import SchemaResolutionError
from fastavro.schema import fingerprint, to_parsing_canonical_form

from headrace.columns.decode.codec import REGISTRY_FRAMING_BYTES, Decoded, format_reason
from headrace.columns.errors import RegistryError
from headrace.columns.schema.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    arrow_type,
)

if TYPE_CHECKING:
    from headrace.untyped import Json, JsonObject

FRAMINGS: Final = ("none", "single-object", "registry")
SINGLE_OBJECT_MARKER: Final = b"\xc3\x01"
SINGLE_OBJECT_FRAMING_BYTES: Final = 10
DEPTH_MAX: Final = 64  # The maximum depth of nested types.
PRIMITIVE_TYPES: Final[dict[str, type[DataType]]] = {
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "string": StringType,
    "bytes": BinaryType,
}
LOGICAL_TYPES: Final[dict[tuple[str, str], type[DataType]]] = {
    ("int", "date"): DateType,
    ("long", "timestamp-millis"): TimestampType,
    ("long", "timestamp-micros"): TimestampType,
    ("long", "local-timestamp-millis"): TimestampNTZType,
    ("long", "local-timestamp-micros"): TimestampNTZType,
}


class AvroSchemaError(ValueError):
    """A schema is not a valid Avro schema, or has no counterpart in Spark."""


def parse_record_schema(text: str) -> JsonObject:
    """Parse the schema of a record, without logical types that the decoder does not convert.

    Raises:
        AvroSchemaError: the text is not an Avro schema of a record.
    """
    try:
        raw = json.loads(text)
        if not isinstance(raw, dict) or raw.get("type") != "record":
            raise AvroSchemaError("is not an Avro schema of a record")
        return cast("JsonObject", parse_schema(drop_unknown_logical_types(raw)))
    except AvroSchemaError:
        raise
    except Exception as error:  # noqa: BLE001  # Any error means that it is not a schema.
        raise AvroSchemaError(f"is not an Avro schema: {format_reason(error)}") from None


def spark_type(schema: Json) -> StructType:
    """Return the type of a decoded record; raise AvroSchemaError if Spark has no such type."""
    kind = _TypeMapper({}).map_type(schema, 0)
    assert isinstance(kind, StructType)
    return kind


class AvroCodec:
    """A decoder of Avro to the struct of one schema, the reader's."""

    def __init__(
        self,
        schema: JsonObject,
        framing: str = "none",
        writers: Sequence[JsonObject] = (),
        writer_by_id: Callable[[int], JsonObject] | None = None,
    ) -> None:
        """Make a decoder; the framing selects the writer's schema of a body.

        `writers` are the known schemas for the framing `single-object`. `writer_by_id` returns the
        schema of an id for the framing `registry`, and raises RegistryError without an answer.
        """
        assert framing in FRAMINGS, framing
        self.schema = schema
        self.framing = framing
        self.kind = spark_type(schema)
        self.arrow = arrow_type(self.kind)
        self._convert = make_map_converter(self.kind, _to_pairs)
        self._writer_by_id = writer_by_id
        self._writers = {single_object_framing(writer): writer for writer in (*writers, schema)}

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode body by body; a body that raises any error but RegistryError is malformed."""
        faults: dict[int, str] = {}
        values = []
        for index, body in enumerate(bodies):
            value = None
            try:
                value = self._decode_datum(body)
            except RegistryError:
                raise
            except Exception as error:  # noqa: BLE001  # fastavro raises any class for bad data.
                faults[index] = format_reason(
                    f"no Avro of this schema: {str(error) or type(error).__name__}"
                )
            values.append(value)
        try:
            return Decoded(pa.array(values, self.arrow), faults)
        except (pa.ArrowException, ValueError, OverflowError):
            return Decoded(self._convert_each(values, faults), faults)

    def _decode_datum(self, body: bytes) -> object:
        """Decode one body with its writer's schema, resolved to the reader's."""
        stream = io.BytesIO(body)
        writer = self.schema
        if self.framing == "single-object":
            framing = stream.read(SINGLE_OBJECT_FRAMING_BYTES)
            if framing[:2] != SINGLE_OBJECT_MARKER:
                raise ValueError("the marker of a single object is missing")
            known_writer = self._writers.get(framing)
            if known_writer is None:
                raise ValueError(f"schema {framing[2:][::-1].hex()} is not known")
            writer = known_writer
        elif self.framing == "registry":
            framing = stream.read(REGISTRY_FRAMING_BYTES)
            if len(framing) < REGISTRY_FRAMING_BYTES or framing[0] != 0:
                raise ValueError("the mark of a schema registry is missing")
            if self._writer_by_id is not None:
                writer = self._writer_by_id(int.from_bytes(framing[1:]))
        reader = None if writer is self.schema else self.schema
        try:
            value = schemaless_reader(stream, writer, reader)
        except SchemaResolutionError as error:
            reason_text = str(error).partition("{")[0].strip()  # The whole schema follows.
            raise ValueError(
                f"the writer's schema does not resolve to 'valueSchema': {reason_text}"
            ) from None
        if stream.read(1):
            raise ValueError(f"bytes are left over after {stream.tell() - 1}")
        return value if self._convert is None else self._convert(value)

    def _convert_each(self, values: list[Json], faults: dict[int, str]) -> pa.Array:
        """Convert value by value; values that Arrow cannot represent become null and faults."""
        valid_values: list[Json] = []
        for index, value in enumerate(values):
            try:
                pa.array([value], self.arrow)
                valid_values.append(value)
            except (pa.ArrowException, ValueError, OverflowError) as error:
                valid_values.append(None)
                faults[index] = format_reason(error)
        return pa.array(valid_values, self.arrow)


def single_object_framing(schema: JsonObject) -> bytes:
    """Return the bytes before a single object: the marker and the fingerprint of the schema."""
    digits = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
    return SINGLE_OBJECT_MARKER + bytes.fromhex(digits)


def drop_unknown_logical_types(schema: Json) -> Json:
    """Return a schema without the logical types that the decoder does not convert."""
    if isinstance(schema, list):
        return [drop_unknown_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    known_schema = {
        key: drop_unknown_logical_types(value)
        if key in ("type", "items", "values", "fields")
        else value
        for key, value in schema.items()
    }
    logical_type = known_schema.get("logicalType")
    is_known = (
        logical_type in (None, "decimal")
        or (known_schema.get("type"), logical_type) in LOGICAL_TYPES
    )
    if not is_known:
        del known_schema["logicalType"]
    return known_schema


class _TypeMapper:
    """A mapper of Avro's types to Spark's.

    `named` has the named types of the schema so far, with None for a record that is being mapped.
    """

    def __init__(self, named: dict[str, DataType | None]) -> None:
        self._named = named

    def map_type(self, schema: Json, depth: int) -> DataType:
        """Return Spark's type for a schema at a depth of nesting.

        Raises:
            AvroSchemaError: the type contains itself, or Spark has no such type.
        """
        if depth > DEPTH_MAX:
            raise AvroSchemaError(f"nests types deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            return self._map_union(schema, depth)
        if isinstance(schema, str):
            return (
                PRIMITIVE_TYPES[schema]()
                if schema in PRIMITIVE_TYPES
                else self._find_named_type(schema)
            )
        kind = schema["type"]
        logical_type = schema.get("logicalType")
        if logical_type == "decimal" and kind in ("bytes", "fixed"):
            return self._map_decimal(schema)
        if (kind, logical_type) in LOGICAL_TYPES:
            return LOGICAL_TYPES[kind, logical_type]()
        if kind == "record":
            return self._map_record(schema, depth)
        if kind == "fixed" and schema["size"] == 0:
            raise AvroSchemaError("has a fixed of no octets")
        if kind in ("enum", "fixed"):
            named_type = StringType() if kind == "enum" else BinaryType()
            self._named[schema["name"]] = named_type
            return named_type
        if kind == "array":
            element = self.map_type(schema["items"], depth + 1)
            if _has_no_bytes(element):  # A few bytes could encode an array of 2**60 elements.
                raise AvroSchemaError("has an array of records without fields")
            return ArrayType(element)
        if kind == "map":
            return MapType(StringType(), self.map_type(schema["values"], depth + 1))
        return self.map_type(kind, depth + 1)

    def _map_record(self, schema: Mapping[str, Json], depth: int) -> DataType:
        name = schema["name"]
        self._named[name] = None
        fields = [
            StructField(field["name"], self.map_type(field["type"], depth + 1))
            for field in schema["fields"]
        ]
        names = [field.name.lower() for field in fields]
        if len(set(names)) < len(names):
            raise AvroSchemaError(f"has columns of record {name!r} that differ in case only")
        if not fields and depth == 0:
            raise AvroSchemaError("has no fields")
        record = StructType(fields)
        self._named[name] = record
        return record

    def _map_union(self, branches: list[Json], depth: int) -> DataType:
        """Return the type of a union: of null and one type, or of two numeric types."""
        kinds = [self.map_type(branch, depth + 1) for branch in branches if branch != "null"]
        if len(kinds) == 1:
            return kinds[0]
        names = {type(kind) for kind in kinds}
        if names == {IntegerType, LongType}:
            return LongType()
        if names == {FloatType, DoubleType}:
            return DoubleType()
        raise AvroSchemaError(
            "has a union of several types; null with one other, int with long, and float with "
            "double have a type in Spark"
        )

    def _find_named_type(self, name: str) -> DataType:
        if name == "null":
            raise AvroSchemaError("has a field that is always null")
        named_type = self._named.get(name)
        if named_type is None:
            raise AvroSchemaError(f"has the type {name!r}, which contains itself or is not known")
        return named_type

    def _map_decimal(self, schema: Mapping[str, Json]) -> DecimalType:
        precision, scale = schema["precision"], schema.get("scale", 0)
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise AvroSchemaError(f"has a decimal of precision {precision} and scale {scale}")
        return DecimalType(precision, scale)


def _has_no_bytes(kind: DataType) -> bool:
    """Return True if an encoded datum of the type has no bytes."""
    return isinstance(kind, StructType) and all(_has_no_bytes(field.kind) for field in kind.fields)


def make_map_converter(
    kind: DataType, convert_map: Callable[[Json, Callable[[Json], Json]], Json]
) -> Callable[[Json], Json] | None:
    """Return a function that converts the maps in a value of the type ``kind``; None without maps.

    ``convert_map`` converts one map, and its values by a function.
    """
    if isinstance(kind, StructType):
        converters = {
            field.name: make_map_converter(field.kind, convert_map) for field in kind.fields
        }
        map_fields = [
            (name, convert) for name, convert in converters.items() if convert is not None
        ]

        def convert_struct(value: Json) -> Json:
            if value is not None:
                for name, convert in map_fields:
                    value[name] = convert(value[name])
            return value

        return convert_struct if map_fields else None
    if isinstance(kind, ArrayType):
        convert_element = make_map_converter(kind.element, convert_map)
        if convert_element is None:
            return None
        return lambda value: None if value is None else [convert_element(item) for item in value]
    if isinstance(kind, MapType):
        convert_value = make_map_converter(kind.value, convert_map) or (lambda value: value)
        return lambda value: None if value is None else convert_map(value, convert_value)
    return None


def _to_pairs(value: Json, convert_value: Callable[[Json], Json]) -> Json:
    """Return Arrow's form of a map: pairs."""
    return [(key, convert_value(item)) for key, item in value.items()]
