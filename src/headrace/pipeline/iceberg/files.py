# SPDX-License-Identifier: Apache-2.0
"""Spark's tasks write the data files of a batch straight to the table's place.

A file has the field ids of the table's schema, so that a reader needs no mapping of names. A task
has at most WRITERS_MAX files open and WAITING_BYTES_MAX of rows in memory. The files of a task that
failed are in no snapshot: `headrace pipeline compact --keep-hours` deletes them.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.iceberg.catalogs import hide_secrets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionKey, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

    from headrace.untyped import Arrow, Cell

WRITERS_MAX: Final = 32
WAITING_BYTES_MAX: Final = 64 << 20
TARGET_BYTES: Final = 128 << 20
COMPRESSION: Final = "write.parquet.compression-codec"


@dataclass(frozen=True, slots=True)
class Layout:
    """The properties of a table that a task needs to write files."""

    schema: str
    spec: str
    order_id: int | None
    location: str
    properties: dict[str, str]
    io: dict[str, str]  # May have secrets: it travels inside the function, not in a plan.
    prefix: str
    target_bytes: int = TARGET_BYTES


def layout_of(table: Table, prefix: str, target_bytes: int = TARGET_BYTES) -> Layout:
    """Return the layout of a table as it is; `prefix` begins the names of the files."""
    order = table.sort_order().order_id
    properties = {
        name: value for name, value in table.properties.items() if name.startswith("write.")
    }
    return Layout(
        table.schema().model_dump_json(),
        table.spec().model_dump_json(),
        order or None,
        table.location(),
        properties,
        dict(table.io.properties),
        prefix,
        target_bytes,
    )


def written(frame: DataFrame, layout: Layout, sort_by: list[str]) -> list[DataFile]:
    """Write the rows with Spark's tasks; return the files, which are not in the table yet."""
    if sort_by:
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform

        schema = Schema.model_validate_json(layout.schema)
        spec = PartitionSpec.model_validate_json(layout.spec)
        # Few files are open at once where rows of one partition follow one another.
        same = [
            partition.source_id
            for partition in spec.fields
            if isinstance(partition.transform, IdentityTransform)
        ]
        first = [schema.find_column_name(source_id) for source_id in same]
        names = list(dict.fromkeys([*(name for name in first if name), *sort_by]))
        frame = frame.sortWithinPartitions(*names)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            files = list(Writing(layout).write(batches))
        except Exception as error:  # noqa: BLE001  # Any may tell a secret.
            raise PipelineError(
                hide_secrets(f"{type(error).__name__}: {error}", layout.io)
            ) from None
        kept = [pickle.dumps(file) for file in files]
        yield pa.RecordBatch.from_arrays([pa.array(kept, pa.binary())], names=["file"])

    rows = frame.mapInArrow(write, "file binary").collect()
    return [pickle.loads(row["file"]) for row in rows]  # noqa: S301  # Our own tasks made them.


@dataclass(slots=True)
class _Open:
    """A file that is being written, and the rows that wait to be a row group of it."""

    path: str
    key: PartitionKey | None
    stream: Arrow
    writer: Arrow
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    metadata: list[Arrow] = field(default_factory=list)


class Writing:
    """The files of one task."""

    def __init__(self, layout: Layout) -> None:
        from pyiceberg.io import load_file_io
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.table.locations import load_location_provider

        self.layout = layout
        self.schema: Schema = Schema.model_validate_json(layout.schema)
        self.spec: PartitionSpec = PartitionSpec.model_validate_json(layout.spec)
        self.columns = schema_to_pyarrow(self.schema)
        self.io: FileIO = load_file_io(layout.io, layout.location)
        self.locations = load_location_provider(layout.location, layout.properties)
        self.codec = layout.properties.get(COMPRESSION, "zstd").replace("uncompressed", "none")
        self._open: OrderedDict[tuple[Cell, ...], _Open] = OrderedDict()
        self._transforms: list[tuple[str, Arrow]] = []
        for partition in self.spec.fields:
            source = self.schema.find_field(partition.source_id)
            name = self.schema.find_column_name(partition.source_id)
            assert name is not None
            self._transforms.append(
                (name, partition.transform.pyarrow_transform(source.field_type))
            )

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        """Write the rows; a file is given when it is closed."""
        import pyarrow as pa

        for batch in batches:
            if not batch.num_rows:
                continue
            rows = self.as_columns(pa.Table.from_batches([batch]))
            for values, part in self._parts(rows):
                yield from self._add(values, part)
        for values in list(self._open):
            yield self._close(values)

    def as_columns(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns of the table: in its order, with its types, null if new."""
        import pyarrow as pa

        arrays = []
        for column in self.columns:
            if column.name in rows.column_names:
                arrays.append(_cast(rows.column(column.name), column.type))
            else:
                arrays.append(pa.chunked_array([pa.nulls(rows.num_rows, column.type)]))
        return pa.Table.from_arrays(arrays, schema=self.columns)

    def _parts(self, rows: pa.Table) -> Iterator[tuple[tuple[Cell, ...], pa.Table]]:
        """Yield the rows of each partition, in order."""
        import pyarrow as pa

        if not self._transforms:
            yield (), rows
            return
        names = [f"part_{number}" for number in range(len(self._transforms))]
        keys = [
            transform(_column(rows, name)).combine_chunks() for name, transform in self._transforms
        ]
        if len(keys[0]) == 0:
            return
        place = pa.array(range(rows.num_rows), pa.int64())
        table = pa.Table.from_arrays([*keys, place], names=[*names, "row"])
        groups = table.group_by(names, use_threads=False).aggregate([("row", "list")])
        for group in groups.to_pylist():
            yield tuple(group[name] for name in names), rows.take(group["row_list"])

    def _add(self, values: tuple[Cell, ...], rows: pa.Table) -> Iterator[DataFile]:
        open_file = self._open.get(values)
        if open_file is None:
            if len(self._open) >= WRITERS_MAX:
                yield self._close(next(iter(self._open)))
            open_file = self._open[values] = self._begin(values)
        self._open.move_to_end(values)
        open_file.waiting.append(rows)
        open_file.waiting_bytes += rows.nbytes
        while sum(each.waiting_bytes for each in self._open.values()) > WAITING_BYTES_MAX:
            largest = max(self._open, key=lambda key: self._open[key].waiting_bytes)
            _flush(self._open[largest])
            if self._open[largest].stream.tell() >= self.layout.target_bytes:
                yield self._close(largest)

    def _begin(self, values: tuple[Cell, ...]) -> _Open:
        import pyarrow.parquet as pq
        from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

        key = None
        if values:
            parts = [
                PartitionFieldValue(part, value)
                for part, value in zip(self.spec.fields, values, strict=True)
            ]
            key = PartitionKey(parts, self.spec, self.schema)
        name = f"{self.layout.prefix}-{uuid.uuid4().hex}.parquet"
        path = self.locations.new_data_location(name, key)
        stream = self.io.new_output(path).create()
        metadata: list[Arrow] = []
        writer = pq.ParquetWriter(
            stream, self.columns, compression=self.codec, metadata_collector=metadata
        )
        return _Open(path, key, stream, writer, metadata=metadata)

    def _close(self, values: tuple[Cell, ...]) -> DataFile:
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        open_file = self._open.pop(values)
        _flush(open_file)
        open_file.writer.close()
        open_file.stream.close()
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=open_file.metadata[0],
            stats_columns=compute_statistics_plan(self.schema, self.layout.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(self.schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=open_file.path,
            file_format=FileFormat.PARQUET,
            partition=Record() if open_file.key is None else open_file.key.partition,
            file_size_in_bytes=len(self.io.new_input(open_file.path)),
            sort_order_id=self.layout.order_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


def _flush(open_file: _Open) -> None:
    import pyarrow as pa

    if open_file.waiting:
        open_file.writer.write_table(pa.concat_tables(open_file.waiting).combine_chunks())
        open_file.waiting, open_file.waiting_bytes = [], 0


def _column(rows: pa.Table, name: str) -> Arrow:
    """A column, or a field of a struct."""
    import pyarrow.compute as pc

    first, *inner = name.split(".")
    column = rows.column(first)
    return pc.struct_field(column, inner) if inner else column


def _cast(column: Arrow, kind: Arrow) -> Arrow:
    """The column with the names, types and order of the table's, parts of structs too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_struct(kind) or column.type.equals(kind):
        return column.cast(kind)
    rows = column.combine_chunks()
    names = {rows.type.field(number).name for number in range(rows.type.num_fields)}
    parts = [
        _cast(pa.chunked_array([pc.struct_field(rows, part.name)]), part.type).combine_chunks()
        if part.name in names
        else pa.nulls(len(rows), part.type)
        for part in kind
    ]
    made = pa.StructArray.from_arrays(parts, fields=list(kind), mask=pc.is_null(rows))
    return pa.chunked_array([made])


def describe_offsets(offsets: list[str], chars_max: int) -> str:
    """Return the offsets of a batch as JSON text; too long offsets are left out."""
    text = json.dumps(offsets)
    return text if len(text) <= chars_max else json.dumps(f"{len(offsets)} sources")
