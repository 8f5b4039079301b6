# SPDX-License-Identifier: Apache-2.0
"""Structs into bodies of Avro: the column `value` becomes bytes before rows become messages."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from fastavro import schemaless_writer

from headrace.columns.decode.avro import frame, read_schema, spark_type
from headrace.columns.errors import RegistryError
from headrace.columns.registry.client import Registry
from headrace.columns.schema.columns import SchemaError
from headrace.columns.schema.types import ArrayType, DataType, MapType, StructField, StructType
from headrace.spark.schema.types import from_spark

if TYPE_CHECKING:
    from pyspark.sql import types as spark

    from headrace.columns.options.encode_options import EncodeOptions
    from headrace.untyped import Json, JsonObject

VALUE: Final = "value"
IDS_MAX: Final = 100  # Ids of registered schemas that a process caches.

_ids: dict[tuple[str, str, str], int] = {}


class EncodeError(RuntimeError):
    """A row does not fit the schema of the bodies."""


class Encoder:
    """Encodes the rows of one write; made at the driver, and pickled to its tasks."""

    def __init__(self, options: EncodeOptions, schema: spark.StructType) -> None:
        """SchemaError if `schema` has no such column, RegistryError if the registry refuses."""
        self._text = options.text
        expected = spark_type(read_schema(options.text))
        _check(schema, expected)
        self._mark = _mark(options)

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, in which the column is bytes. EncodeError names a row that does not fit."""
        schema = read_schema(self._text)
        plain = _plain(spark_type(schema))
        first = 0
        for batch in batches:
            at = batch.schema.names.index(VALUE)
            bodies: list[bytes | None] = []
            for row, value in enumerate(batch.column(at).to_pylist()):
                if value is None:  # A message without a body, which is refused later.
                    bodies.append(None)
                    continue
                stream = io.BytesIO()
                stream.write(self._mark)
                try:
                    schemaless_writer(stream, schema, value if plain is None else plain(value))
                except Exception as error:  # noqa: BLE001  # Whatever is said of it, it is bad.
                    raise EncodeError(
                        f"row {first + row} of the partition does not fit option 'valueSchema': "
                        f"{_fault(schema, value, error)}"
                    ) from None
                bodies.append(stream.getvalue())
            first += batch.num_rows
            yield batch.set_column(at, VALUE, pa.array(bodies, pa.binary()))


def _fault(schema: JsonObject, value: Json, error: Exception) -> str:
    """Return the mistake in a row without the row's content, which the library's text has."""
    for field in schema["fields"]:
        kind = field["type"]
        if value[field["name"]] is None and "null" not in (kind if isinstance(kind, list) else ()):
            return f"field {field['name']!r} is null"
    return type(error).__name__


def _check(schema: spark.StructType, expected: StructType) -> None:
    value_type = {field.name: field.dataType for field in schema.fields}.get(VALUE)
    if value_type is None or _sort_fields(from_spark(value_type, nulls=False)) != _sort_fields(
        expected
    ):
        got = "none" if value_type is None else value_type.simpleString()
        raise SchemaError(
            f"column 'value' must be of type {expected.text()}, which option 'valueSchema' "
            f"has; it is {got}"
        )


def _sort_fields(kind: DataType) -> DataType:
    """The type with its fields in the order of their names: Avro's rows go by name."""
    if isinstance(kind, StructType):
        fields = [StructField(field.name, _sort_fields(field.kind)) for field in kind.fields]
        return StructType(sorted(fields, key=lambda field: field.name))
    if isinstance(kind, ArrayType):
        return ArrayType(_sort_fields(kind.element))
    if isinstance(kind, MapType):
        return MapType(kind.key, _sort_fields(kind.value))
    return kind


def _mark(options: EncodeOptions) -> bytes:
    """Return the bytes before each datum."""
    if options.registry is not None:
        number = _schema_id(options)
        return b"\0" + number.to_bytes(4) if options.framing == "registry" else b""
    return frame(read_schema(options.text)) if options.framing == "single-object" else b""


def _schema_id(options: EncodeOptions) -> int:
    """The id of the schema; the registry checks that it is compatible with its subject."""
    assert options.registry is not None
    key = (options.registry.url, options.subject, options.text)
    number = _ids.get(key)
    if number is None:
        registry = Registry(options.registry)
        ask = registry.register if options.register else registry.number
        number = ask(options.subject, options.text)
        if number is None:
            raise RegistryError(
                f"subject {options.subject!r} does not have the schema of option 'valueSchema', "
                "and option 'schemaRegister' is 'false'"
            )
        if len(_ids) >= IDS_MAX:
            _ids.clear()
        _ids[key] = number
    return number


def _plain(kind: DataType) -> Callable[[Json], Json] | None:
    """Return the function that makes dictionaries of Arrow's maps; None without maps."""
    if isinstance(kind, StructType):
        inner = {field.name: _plain(field.kind) for field in kind.fields}
        changed = [(name, make) for name, make in inner.items() if make is not None]

        def struct(value: Json) -> Json:
            if value is not None:
                for name, make in changed:
                    value[name] = make(value[name])
            return value

        return struct if changed else None
    if isinstance(kind, ArrayType):
        element = _plain(kind.element)
        if element is None:
            return None
        return lambda value: None if value is None else [element(one) for one in value]
    if isinstance(kind, MapType):
        item = _plain(kind.value) or (lambda value: value)
        return lambda value: None if value is None else {key: item(one) for key, one in value}
    return None
