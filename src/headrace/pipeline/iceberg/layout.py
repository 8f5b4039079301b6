# SPDX-License-Identifier: Apache-2.0
"""Comparison and change of a table's columns and partitions, to fit those of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.config.settings import PartitionField, parse_partition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.update.spec import UpdateSpec
    from pyiceberg.transforms import Transform
    from pyspark.sql.types import StructType

    from headrace.untyped import Arrow, Cell

_TRANSFORM_SUFFIXES: Final = {"bucket": "bucket", "truncate": "trunc"}


def arrow_columns(schema: StructType, label: str) -> pa.Schema:
    """Return the columns of a DataFrame as Arrow fields, all of them nullable.

    Raises:
        PipelineError: Iceberg has no type for a column.
    """
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    fields = []
    for field in schema.fields:
        try:
            arrow_type = _make_nullable(to_arrow_type(field.dataType, timezone="UTC"))
        except (PySparkException, TypeError):
            arrow_type = None
        if (
            arrow_type is None
            or pa.types.is_interval(arrow_type)
            or pa.types.is_duration(arrow_type)
        ):
            name = field.dataType.simpleString()
            raise PipelineError(
                f"{label}: Iceberg has no type for the column {field.name!r}, {name}: cast it"
            )
        fields.append(pa.field(field.name, arrow_type))
    return pa.schema(fields)


def _make_nullable(kind: Arrow) -> Arrow:
    """Return the type with nullable inner fields, because a later batch may have nulls in them."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _make_nullable(part.type)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _make_nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_make_nullable(kind.key_type), _make_nullable(kind.item_type))
    return kind


def add_partitions(update: UpdateSpec, schema: Schema, partition_by: Sequence[str]) -> None:
    """Add partitions to a new table.

    Raises:
        PipelineError: the type of a column does not allow the transform.
    """
    for text in partition_by:
        partition = parse_partition(text)
        kind = schema.find_field(partition.column).field_type
        transform = _make_transform(partition)
        if not transform.can_transform(kind):
            raise PipelineError(f"{text!r} is not a partition of a column of type {kind}")
        update.add_field(partition.column, transform, _partition_name(partition))


def check_partitions(table: Table, partition_by: Sequence[str], label: str) -> None:
    """Raise PipelineError if the table has other partitions than the pipeline's file."""
    schema = table.schema()
    current = [
        (schema.find_column_name(partition.source_id), str(partition.transform))
        for partition in table.spec().fields
    ]
    expected = [
        (partition.column, str(_make_transform(partition)))
        for partition in map(parse_partition, partition_by)
    ]
    if current != expected:
        listed = [
            column if transform == "identity" else f"{transform} of {column}"
            for column, transform in current
        ]
        raise PipelineError(
            f"{label} is partitioned by {listed}, not by {list(partition_by)}: "
            "change 'partition_by'"
        )


def evolve_columns(table: Table, columns: pa.Schema, label: str) -> bool:
    """Add missing columns to the table and widen types; return True if the table changed.

    A column that the rows lack stays in the table and becomes null.

    Raises:
        PipelineError: the table cannot hold the type of a column.
    """
    import pyarrow as pa
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    table_types = {field.name: field.type for field in schema_to_pyarrow(table.schema())}
    table_types = {
        name: table_type for name, table_type in table_types.items() if name in columns.names
    }
    changed_fields = []
    for field in columns:
        table_type = table_types.get(field.name)
        if table_type is not None and _can_hold(table_type, field.type):
            continue
        changed_fields.append(field)
    if not changed_fields:
        return False
    with table.update_schema() as update:
        for field in changed_fields:
            try:
                update.union_by_name(pa.schema([field]))
            except (ValidationError, ValueError, TypeError) as error:
                reason = str(error).strip().splitlines()[0]
                raise PipelineError(
                    f"{label}: the column {field.name!r} is now {field.type}, and the table has "
                    f"{table_types.get(field.name)}, which cannot take it ({reason}): cast it, or "
                    "rename it"
                ) from None
    return True


def _can_hold(table: Arrow, rows: Arrow) -> bool:
    """Return True if a column of type `table` can hold values of type `rows` as it is."""
    import pyarrow as pa

    if bool(table.equals(rows)):
        return True
    if pa.types.is_integer(table) and pa.types.is_integer(rows):
        return bool(table.bit_width >= rows.bit_width)
    if pa.types.is_floating(table) and pa.types.is_floating(rows):
        return bool(table.bit_width >= rows.bit_width)
    for is_kind in (_is_text, _is_bytes):
        if is_kind(table) and is_kind(rows):
            return True
    if pa.types.is_struct(table) and pa.types.is_struct(rows):
        names = {part.name: part.type for part in table}
        return all(part.name in names and _can_hold(names[part.name], part.type) for part in rows)
    if _is_list(table) and _is_list(rows):
        return _can_hold(table.value_type, rows.value_type)
    if pa.types.is_map(table) and pa.types.is_map(rows):
        same_keys = _can_hold(table.key_type, rows.key_type)
        return same_keys and _can_hold(table.item_type, rows.item_type)
    if pa.types.is_decimal(table) and pa.types.is_decimal(rows):
        return bool(table.scale == rows.scale and table.precision >= rows.precision)
    return False


def _is_text(kind: Arrow) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: Arrow) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: Arrow) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _make_transform(field: PartitionField) -> Transform[Cell, Cell]:
    from pyiceberg import transforms

    if field.transform == "bucket":
        return transforms.BucketTransform(field.width or 1)
    if field.transform == "truncate":
        return transforms.TruncateTransform(field.width or 1)
    transforms_by_name: dict[str, Callable[[], Transform[Cell, Cell]]] = {
        "identity": transforms.IdentityTransform,
        "year": transforms.YearTransform,
        "month": transforms.MonthTransform,
        "day": transforms.DayTransform,
        "hour": transforms.HourTransform,
    }
    return transforms_by_name[field.transform]()


def _partition_name(field: PartitionField) -> str:
    if field.transform == "identity":
        return field.column
    return f"{field.column}_{_TRANSFORM_SUFFIXES.get(field.transform, field.transform)}"
