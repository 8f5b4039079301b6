# SPDX-License-Identifier: Apache-2.0
"""Bodies of Avro: one datum each, written with a known schema.

The framing is the bytes before the datum. There are none; or the marker and fingerprint of a single
object, which select the writer's schema among the known ones; or five bytes of a schema registry,
which have the id of the writer's schema, or are skipped.
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

from headrace.columns.decode.codec import REGISTRY_LENGTH, Decoded, reason
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
SINGLE_OBJECT: Final = b"\xc3\x01"
SINGLE_OBJECT_LENGTH: Final = 10
DEPTH_MAX: Final = 64
SIMPLE: Final[dict[str, type[DataType]]] = {
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "string": StringType,
    "bytes": BinaryType,
}
LOGICAL: Final[dict[tuple[str, str], type[DataType]]] = {
    ("int", "date"): DateType,
    ("long", "timestamp-millis"): TimestampType,
    ("long", "timestamp-micros"): TimestampType,
    ("long", "local-timestamp-millis"): TimestampNTZType,
    ("long", "local-timestamp-micros"): TimestampNTZType,
}


class AvroSchemaError(ValueError):
    """A schema that is no Avro, or has no counterpart in Spark."""


def read_schema(text: str) -> JsonObject:
    """Parse the schema of a record; drop logical types that Spark has no type for."""
    try:
        raw = json.loads(text)
        if not isinstance(raw, dict) or raw.get("type") != "record":
            raise AvroSchemaError("is not an Avro schema of a record")
        return cast("JsonObject", parse_schema(plain(raw)))
    except AvroSchemaError:
        raise
    except Exception as error:  # noqa: BLE001  # Any error means that it is not a schema.
        raise AvroSchemaError(f"is not an Avro schema: {reason(error)}") from None


def spark_type(schema: Json) -> StructType:
    """The type of what a record of the schema decodes to."""
    kind = _Types({}).of(schema, 0)
    assert isinstance(kind, StructType)
    return kind


class AvroCodec:
    """Decodes Avro into the struct of one schema; `writers` are others that are known."""

    def __init__(
        self,
        schema: JsonObject,
        framing: str = "none",
        writers: Sequence[JsonObject] = (),
        by_id: Callable[[int], JsonObject] | None = None,
    ) -> None:
        """`by_id` returns the writer's schema of an id; RegistryError without an answer."""
        assert framing in FRAMINGS, framing
        self.schema = schema
        self.framing = framing
        self.kind = spark_type(schema)
        self.arrow = arrow_type(self.kind)
        self._convert = _conversion(self.kind)
        self._by_id = by_id
        self._writers = {_mark(writer): writer for writer in (*writers, schema)}

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode body by body."""
        faults: dict[int, str] = {}
        values = []
        for index, body in enumerate(bodies):
            value = None
            try:
                value = self._datum(body)
            except RegistryError:
                raise
            except Exception as error:  # noqa: BLE001  # Whatever is said of a body, it is bad.
                faults[index] = reason(
                    f"no Avro of this schema: {str(error) or type(error).__name__}"
                )
            values.append(value)
        try:
            return Decoded(pa.array(values, self.arrow), faults)
        except (pa.ArrowException, ValueError, OverflowError):
            return Decoded(self._one_by_one(values, faults), faults)

    def _datum(self, body: bytes) -> object:
        stream = io.BytesIO(body)
        writer = self.schema
        if self.framing == "single-object":
            mark = stream.read(SINGLE_OBJECT_LENGTH)
            if mark[:2] != SINGLE_OBJECT:
                raise ValueError("the marker of a single object is missing")
            known_writer = self._writers.get(mark)
            if known_writer is None:
                raise ValueError(f"schema {mark[2:][::-1].hex()} is not known")
            writer = known_writer
        elif self.framing == "registry":
            mark = stream.read(REGISTRY_LENGTH)
            if len(mark) < REGISTRY_LENGTH or mark[0] != 0:
                raise ValueError("the mark of a schema registry is missing")
            if self._by_id is not None:
                writer = self._by_id(int.from_bytes(mark[1:]))
        reader = None if writer is self.schema else self.schema
        try:
            value = schemaless_reader(stream, writer, reader)
        except SchemaResolutionError as error:
            why = str(error).partition("{")[0].strip()  # The rest is the whole schema.
            raise ValueError(
                f"the writer's schema does not resolve to 'valueSchema': {why}"
            ) from None
        if stream.read(1):
            raise ValueError(f"octets are left over after {stream.tell() - 1}")
        return value if self._convert is None else self._convert(value)

    def _one_by_one(self, values: list[Json], faults: dict[int, str]) -> pa.Array:
        """For what Avro can hold and Arrow cannot."""
        good: list[Json] = []
        for index, value in enumerate(values):
            try:
                pa.array([value], self.arrow)
                good.append(value)
            except (pa.ArrowException, ValueError, OverflowError) as error:
                good.append(None)
                faults[index] = reason(error)
        return pa.array(good, self.arrow)


def frame(schema: JsonObject) -> bytes:
    """Return the bytes before a single object of the schema."""
    return _mark(schema)


def _mark(schema: JsonObject) -> bytes:
    number = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
    return SINGLE_OBJECT + bytes.fromhex(number)


def plain(schema: Json) -> Json:
    """Return a schema without the logical types that we do not decode."""
    if isinstance(schema, list):
        return [plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    less = {
        key: plain(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
    }
    logical = less.get("logicalType")
    is_known = logical in (None, "decimal") or (less.get("type"), logical) in LOGICAL
    if not is_known:
        del less["logicalType"]
    return less


class _Types:
    """Avro's types as Spark's; named ones are looked up, and none may contain itself."""

    def __init__(self, named: dict[str, DataType | None]) -> None:
        self._named = named

    def of(self, schema: Json, depth: int) -> DataType:
        if depth > DEPTH_MAX:
            raise AvroSchemaError(f"nests types deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            return self._union(schema, depth)
        if isinstance(schema, str):
            return SIMPLE[schema]() if schema in SIMPLE else self._named_type(schema)
        kind = schema["type"]
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return self._decimal(schema)
        if (kind, logical) in LOGICAL:
            return LOGICAL[kind, logical]()
        if kind == "record":
            return self._record(schema, depth)
        if kind == "fixed" and schema["size"] == 0:
            raise AvroSchemaError("has a fixed of no octets")
        if kind in ("enum", "fixed"):
            named_type = StringType() if kind == "enum" else BinaryType()
            self._named[schema["name"]] = named_type
            return named_type
        if kind == "array":
            element = self.of(schema["items"], depth + 1)
            if _is_empty(element):  # A few octets could say that there are 2**60 of them.
                raise AvroSchemaError("has an array of records without fields")
            return ArrayType(element)
        if kind == "map":
            return MapType(StringType(), self.of(schema["values"], depth + 1))
        return self.of(kind, depth + 1)

    def _record(self, schema: Mapping[str, Json], depth: int) -> DataType:
        name = schema["name"]
        self._named[name] = None
        fields = [
            StructField(field["name"], self.of(field["type"], depth + 1))
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

    def _union(self, branches: list[Json], depth: int) -> DataType:
        kinds = [self.of(branch, depth + 1) for branch in branches if branch != "null"]
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

    def _named_type(self, name: str) -> DataType:
        if name == "null":
            raise AvroSchemaError("has a field that is always null")
        named_type = self._named.get(name)
        if named_type is None:
            raise AvroSchemaError(f"has the type {name!r}, which contains itself or is not known")
        return named_type

    def _decimal(self, schema: Mapping[str, Json]) -> DecimalType:
        precision, scale = schema["precision"], schema.get("scale", 0)
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise AvroSchemaError(f"has a decimal of precision {precision} and scale {scale}")
        return DecimalType(precision, scale)


def _is_empty(kind: DataType) -> bool:
    """Return True if a datum of the schema has no bytes."""
    return isinstance(kind, StructType) and all(_is_empty(field.kind) for field in kind.fields)


def _conversion(kind: DataType) -> Callable[[Json], Json] | None:
    """Return the function that makes Arrow's pairs of the maps in a value; None without maps."""
    if isinstance(kind, StructType):
        inner = {field.name: _conversion(field.kind) for field in kind.fields}
        changed = [(name, convert) for name, convert in inner.items() if convert is not None]

        def struct(value: Json) -> Json:
            if value is not None:
                for name, convert in changed:
                    value[name] = convert(value[name])
            return value

        return struct if changed else None
    if isinstance(kind, ArrayType):
        element = _conversion(kind.element)
        if element is None:
            return None
        return lambda value: None if value is None else [element(item) for item in value]
    if isinstance(kind, MapType):
        inner_value = _conversion(kind.value) or (lambda value: value)
        return lambda value: (
            None if value is None else [(key, inner_value(item)) for key, item in value.items()]
        )
    return None
