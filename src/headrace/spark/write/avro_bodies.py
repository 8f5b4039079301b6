# SPDX-License-Identifier: Apache-2.0
"""Encoding of the column `value` in Avro, which happens before rows become messages."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from fastavro import schemaless_writer

from headrace.columns.decode.avro import (
    make_map_converter,
    parse_record_schema,
    single_object_framing,
    spark_type,
)
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
IDS_CACHED_MAX: Final = 100  # Ids of registered schemas that a process caches.

_schema_ids: dict[tuple[str, str, str], int] = {}


class EncodeError(RuntimeError):
    """A row does not fit the Avro schema of the write."""


class Encoder:
    """The encoder of one write; the driver creates it, and Spark pickles it for the tasks."""

    def __init__(self, options: EncodeOptions, schema: spark.StructType) -> None:
        """Check the column `value`, and register the schema if the options say so.

        Raises:
            SchemaError: the column `value` does not have the type of the schema.
            RegistryError: the registry refuses the schema or does not answer.
        """
        self._text = options.text
        expected = spark_type(parse_record_schema(options.text))
        _check_column(schema, expected)
        self._framing = _build_framing(options)

    def encode_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Encode the column `value` of each batch; a null stays null.

        Raises:
            EncodeError: a row does not fit the schema. The text has its number.
        """
        schema = parse_record_schema(self._text)
        convert_maps = make_map_converter(spark_type(schema), _to_dictionary)
        first = 0
        for batch in batches:
            column_index = batch.schema.names.index(VALUE)
            bodies: list[bytes | None] = []
            for row, value in enumerate(batch.column(column_index).to_pylist()):
                if value is None:  # The encoder of messages refuses a row without a body.
                    bodies.append(None)
                    continue
                stream = io.BytesIO()
                stream.write(self._framing)
                try:
                    schemaless_writer(
                        stream, schema, value if convert_maps is None else convert_maps(value)
                    )
                except Exception as error:  # noqa: BLE001  # fastavro raises any class.
                    raise EncodeError(
                        f"row {first + row} of the partition does not fit option 'valueSchema': "
                        f"{_describe_fault(schema, value, error)}"
                    ) from None
                bodies.append(stream.getvalue())
            first += batch.num_rows
            yield batch.set_column(column_index, VALUE, pa.array(bodies, pa.binary()))


def _describe_fault(schema: JsonObject, value: Json, error: Exception) -> str:
    """Return the fault of a row without its content, which fastavro puts into its message."""
    for field in schema["fields"]:
        kind = field["type"]
        if value[field["name"]] is None and "null" not in (kind if isinstance(kind, list) else ()):
            return f"field {field['name']!r} is null"
    return type(error).__name__


def _check_column(schema: spark.StructType, expected: StructType) -> None:
    """Raise SchemaError unless the column `value` has the expected type."""
    value_type = {field.name: field.dataType for field in schema.fields}.get(VALUE)
    if value_type is None or _sort_fields(from_spark(value_type, nulls=False)) != _sort_fields(
        expected
    ):
        actual = "none" if value_type is None else value_type.simpleString()
        raise SchemaError(
            f"column 'value' must be of type {expected.text()}, which option 'valueSchema' "
            f"has; it is {actual}"
        )


def _sort_fields(kind: DataType) -> DataType:
    """Return the type with sorted fields, because Avro matches fields by name."""
    if isinstance(kind, StructType):
        fields = [StructField(field.name, _sort_fields(field.kind)) for field in kind.fields]
        return StructType(sorted(fields, key=lambda field: field.name))
    if isinstance(kind, ArrayType):
        return ArrayType(_sort_fields(kind.element))
    if isinstance(kind, MapType):
        return MapType(kind.key, _sort_fields(kind.value))
    return kind


def _build_framing(options: EncodeOptions) -> bytes:
    """Return the bytes before each datum; a registry is asked for the id of the schema."""
    if options.registry is not None:
        schema_id = _find_schema_id(options)
        return b"\0" + schema_id.to_bytes(4) if options.framing == "registry" else b""
    return (
        single_object_framing(parse_record_schema(options.text))
        if options.framing == "single-object"
        else b""
    )


def _find_schema_id(options: EncodeOptions) -> int:
    """Return the id of the schema in the registry, from the cache or by a request.

    The registry checks that a new schema is compatible with the earlier ones of its subject.
    """
    assert options.registry is not None
    key = (options.registry.url, options.subject, options.text)
    schema_id = _schema_ids.get(key)
    if schema_id is None:
        registry = Registry(options.registry)
        request_id = registry.register if options.register else registry.find_id
        schema_id = request_id(options.subject, options.text)
        if schema_id is None:
            raise RegistryError(
                f"subject {options.subject!r} does not have the schema of option 'valueSchema', "
                "and option 'schemaRegister' is 'false'"
            )
        if len(_schema_ids) >= IDS_CACHED_MAX:
            _schema_ids.clear()
        _schema_ids[key] = schema_id
    return schema_id


def _to_dictionary(pairs: Json, convert_value: Callable[[Json], Json]) -> Json:
    """Return a map of Arrow, which is pairs, as a dictionary."""
    return {key: convert_value(value) for key, value in pairs}
