# SPDX-License-Identifier: Apache-2.0
"""The types of decoded values, with the names that Spark gives them.

With these classes a process without Spark can decode bodies. `to_json` returns the format of
Spark's own schemas, in which `runtime.schema_log` stores the versions of a schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

if TYPE_CHECKING:
    from headrace.untyped import Json


@dataclass(frozen=True, slots=True)
class DataType:
    """A type of a column or of its parts, equal to a type of Spark."""

    name: ClassVar[str]  # The name in Spark's JSON.
    sql: ClassVar[str]  # The name in DDL.

    def text(self) -> str:
        """Return the type as Spark prints it."""
        return self.sql

    def to_json(self) -> Json:
        """Return the type as in Spark's JSON."""
        return self.name


@dataclass(frozen=True, slots=True)
class NullType(DataType):
    name = "void"
    sql = "void"


@dataclass(frozen=True, slots=True)
class BooleanType(DataType):
    name = "boolean"
    sql = "boolean"


@dataclass(frozen=True, slots=True)
class ByteType(DataType):
    name = "byte"
    sql = "tinyint"


@dataclass(frozen=True, slots=True)
class ShortType(DataType):
    name = "short"
    sql = "smallint"


@dataclass(frozen=True, slots=True)
class IntegerType(DataType):
    name = "integer"
    sql = "int"


@dataclass(frozen=True, slots=True)
class LongType(DataType):
    name = "long"
    sql = "bigint"


@dataclass(frozen=True, slots=True)
class FloatType(DataType):
    name = "float"
    sql = "float"


@dataclass(frozen=True, slots=True)
class DoubleType(DataType):
    name = "double"
    sql = "double"


@dataclass(frozen=True, slots=True)
class StringType(DataType):
    name = "string"
    sql = "string"


@dataclass(frozen=True, slots=True)
class BinaryType(DataType):
    name = "binary"
    sql = "binary"


@dataclass(frozen=True, slots=True)
class DateType(DataType):
    name = "date"
    sql = "date"


@dataclass(frozen=True, slots=True)
class TimestampType(DataType):
    """A moment in UTC, to the microsecond."""

    name = "timestamp"
    sql = "timestamp"


@dataclass(frozen=True, slots=True)
class TimestampNTZType(DataType):
    """A date and a time of day, in no time zone."""

    name = "timestamp_ntz"
    sql = "timestamp_ntz"


@dataclass(frozen=True, slots=True)
class DecimalType(DataType):
    """An exact number of up to `precision` digits, `scale` of them after the point."""

    precision: int = 10
    scale: int = 0

    def text(self) -> str:
        return f"decimal({self.precision},{self.scale})"

    def to_json(self) -> Json:
        return self.text()


@dataclass(frozen=True, slots=True)
class ArrayType(DataType):
    """A list, whose elements may be null."""

    element: DataType

    def text(self) -> str:
        return f"array<{self.element.text()}>"

    def to_json(self) -> Json:
        return {"type": "array", "elementType": self.element.to_json(), "containsNull": True}


@dataclass(frozen=True, slots=True)
class MapType(DataType):
    """A map, whose values may be null."""

    key: DataType
    value: DataType

    def text(self) -> str:
        return f"map<{self.key.text()},{self.value.text()}>"

    def to_json(self) -> Json:
        return {
            "type": "map",
            "keyType": self.key.to_json(),
            "valueType": self.value.to_json(),
            "valueContainsNull": True,
        }


@dataclass(frozen=True, slots=True)
class StructField:
    """A column, or a field of a struct; its value may be null."""

    name: str
    kind: DataType

    def to_json(self) -> Json:
        """Return the field as in Spark's JSON."""
        return {"name": self.name, "type": self.kind.to_json(), "nullable": True, "metadata": {}}


@dataclass(frozen=True, slots=True, init=False)
class StructType(DataType):
    """Fields by name, in order."""

    fields: tuple[StructField, ...]

    def __init__(self, fields: Iterable[StructField] = ()) -> None:
        object.__setattr__(self, "fields", tuple(fields))

    @property
    def types(self) -> dict[str, DataType]:
        """The type of each field by name, in order."""
        return {field.name: field.kind for field in self.fields}

    def text(self) -> str:
        return f"struct<{','.join(f'{field.name}:{field.kind.text()}' for field in self.fields)}>"

    def to_json(self) -> Json:
        return {"type": "struct", "fields": [field.to_json() for field in self.fields]}

    @classmethod
    def from_json(cls, value: Json) -> StructType:
        """Return the type that Spark's JSON describes; raise ValueError if it is not a struct."""
        parsed = _from_json(value)
        if not isinstance(parsed, cls):
            raise ValueError(f"{parsed.text()} is not a struct")
        return parsed


@dataclass(frozen=True, slots=True)
class UnsupportedType(DataType):
    """A type of Spark that a decoded value cannot have; `spelling` is for errors."""

    spelling: str

    def text(self) -> str:
        return self.spelling


SIMPLE_TYPES: Final[tuple[type[DataType], ...]] = (
    NullType,
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    StringType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
)
_TYPES_BY_NAME: Final = {kind.name: kind for kind in SIMPLE_TYPES}
_ARROW_TYPES: Final[dict[type[DataType], pa.DataType]] = {
    NullType: pa.null(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: pa.timestamp("us"),
}


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the type of a column in an Arrow batch, as Spark expects it."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    if isinstance(kind, MapType):
        return pa.map_(arrow_type(kind.key), pa.field("value", arrow_type(kind.value)))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.kind)) for field in kind.fields])
    return _ARROW_TYPES[type(kind)]


def _from_json(value: Json) -> DataType:
    """Return the type that Spark's JSON describes; raise ValueError for an unknown type."""
    if isinstance(value, str):
        if value.startswith("decimal(") and value.endswith(")"):
            precision, scale = value[8:-1].split(",")
            return DecimalType(int(precision), int(scale))
        if value not in _TYPES_BY_NAME:
            raise ValueError(f"{value!r} is not a type")
        return _TYPES_BY_NAME[value]()
    if value["type"] == "struct":
        return StructType(
            StructField(field["name"], _from_json(field["type"])) for field in value["fields"]
        )
    if value["type"] == "array":
        return ArrayType(_from_json(value["elementType"]))
    if value["type"] == "map":
        return MapType(_from_json(value["keyType"]), _from_json(value["valueType"]))
    raise ValueError(f"{value['type']!r} is not a type")
