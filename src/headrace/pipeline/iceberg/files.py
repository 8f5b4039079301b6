# SPDX-License-Identifier: Apache-2.0
"""Writing of the data files of a batch by Spark's tasks, to the location of the table.

Files have the field ids of the table's schema, so readers need no mapping of names. A task has at
most `OPEN_FILES_MAX` open files, and about `BUFFERED_BYTES_MAX` of rows in memory. The files of a
failed task are in no snapshot; `headrace pipeline compact --keep-hours` deletes them.
"""

from __future__ import annotations

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

OPEN_FILES_MAX: Final = 32
BUFFERED_BYTES_MAX: Final = 64 << 20
TARGET_BYTES: Final = 128 << 20  # The size at which a file is closed, by default.
COMPRESSION: Final = "write.parquet.compression-codec"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The properties of a table that a task needs to write files."""

    schema: str  # JSON.
    spec: str  # The partitions, in JSON.
    order_id: int | None  # The id of the sort order; None for an unsorted table.
    location: str
    properties: dict[str, str]
    io: dict[str, str]  # May have secrets, so no plan may show it.
    prefix: str  # The start of the names of files.
    target_bytes: int = TARGET_BYTES


def make_layout(table: Table, prefix: str, target_bytes: int = TARGET_BYTES) -> TableLayout:
    """Return the current layout of a table; the names of files begin with `prefix`."""
    order = table.sort_order().order_id
    properties = {
        name: value for name, value in table.properties.items() if name.startswith("write.")
    }
    return TableLayout(
        table.schema().model_dump_json(),
        table.spec().model_dump_json(),
        order or None,
        table.location(),
        properties,
        dict(table.io.properties),
        prefix,
        target_bytes,
    )


def write_files(rows: DataFrame, layout: TableLayout, sort_by: list[str]) -> list[DataFile]:
    """Write the rows with Spark's tasks; return the files, which are in no snapshot yet."""
    if sort_by:
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform

        schema = Schema.model_validate_json(layout.schema)
        spec = PartitionSpec.model_validate_json(layout.spec)
        # If rows are sorted by partition, a task has few open files at a time.
        identity_ids = [
            partition.source_id
            for partition in spec.fields
            if isinstance(partition.transform, IdentityTransform)
        ]
        partition_columns = [schema.find_column_name(source_id) for source_id in identity_ids]
        names = list(dict.fromkeys([*(name for name in partition_columns if name), *sort_by]))
        rows = rows.sortWithinPartitions(*names)

    def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            files = list(TaskWriter(layout).write(batches))
        except Exception as error:  # noqa: BLE001  # Any error text may contain a secret.
            raise PipelineError(
                hide_secrets(f"{type(error).__name__}: {error}", layout.io)
            ) from None
        pickled_files = [pickle.dumps(file) for file in files]
        yield pa.RecordBatch.from_arrays([pa.array(pickled_files, pa.binary())], names=["file"])

    results = rows.mapInArrow(write_partition, "file binary").collect()
    return [pickle.loads(result["file"]) for result in results]  # noqa: S301  # Written by the tasks above.


@dataclass(slots=True)
class _OpenFile:
    """An open file, and the buffered rows of its next row group."""

    path: str
    key: PartitionKey | None
    stream: Arrow
    writer: Arrow
    buffered: list[pa.Table] = field(default_factory=list)
    buffered_bytes: int = 0
    metadata: list[Arrow] = field(default_factory=list)


class TaskWriter:
    """A writer of the data files of one task."""

    def __init__(self, layout: TableLayout) -> None:
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
        self._open_files: OrderedDict[tuple[Cell, ...], _OpenFile] = OrderedDict()
        self._transforms: list[tuple[str, Arrow]] = []
        for partition in self.spec.fields:
            source = self.schema.find_field(partition.source_id)
            name = self.schema.find_column_name(partition.source_id)
            assert name is not None
            self._transforms.append(
                (name, partition.transform.pyarrow_transform(source.field_type))
            )

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        """Write the rows; yield each file after it is closed."""
        import pyarrow as pa

        for batch in batches:
            if not batch.num_rows:
                continue
            rows = self.to_table_columns(pa.Table.from_batches([batch]))
            for values, partition_rows in self._split_by_partition(rows):
                yield from self._add_rows(values, partition_rows)
        for values in list(self._open_files):
            yield self._close_file(values)

    def to_table_columns(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the columns and types of the table; missing columns are null."""
        import pyarrow as pa

        arrays = []
        for column in self.columns:
            if column.name in rows.column_names:
                arrays.append(_cast(rows.column(column.name), column.type))
            else:
                arrays.append(pa.chunked_array([pa.nulls(rows.num_rows, column.type)]))
        return pa.Table.from_arrays(arrays, schema=self.columns)

    def _split_by_partition(self, rows: pa.Table) -> Iterator[tuple[tuple[Cell, ...], pa.Table]]:
        """Yield the partition values and the rows of each partition."""
        import pyarrow as pa

        if not self._transforms:
            yield (), rows
            return
        names = [f"part_{number}" for number in range(len(self._transforms))]
        keys = [
            transform(_find_column(rows, name)).combine_chunks()
            for name, transform in self._transforms
        ]
        if len(keys[0]) == 0:
            return
        row_numbers = pa.array(range(rows.num_rows), pa.int64())
        table = pa.Table.from_arrays([*keys, row_numbers], names=[*names, "row"])
        groups = table.group_by(names, use_threads=False).aggregate([("row", "list")])
        for group in groups.to_pylist():
            yield tuple(group[name] for name in names), rows.take(group["row_list"])

    def _add_rows(self, values: tuple[Cell, ...], rows: pa.Table) -> Iterator[DataFile]:
        """Buffer rows of a partition; yield the files that are closed to stay within the limits."""
        open_file = self._open_files.get(values)
        if open_file is None:
            if len(self._open_files) >= OPEN_FILES_MAX:
                yield self._close_file(next(iter(self._open_files)))
            open_file = self._open_files[values] = self._open_file(values)
        self._open_files.move_to_end(values)
        open_file.buffered.append(rows)
        open_file.buffered_bytes += rows.nbytes
        while sum(file.buffered_bytes for file in self._open_files.values()) > BUFFERED_BYTES_MAX:
            largest = max(self._open_files, key=lambda key: self._open_files[key].buffered_bytes)
            _flush(self._open_files[largest])
            if self._open_files[largest].stream.tell() >= self.layout.target_bytes:
                yield self._close_file(largest)

    def _open_file(self, values: tuple[Cell, ...]) -> _OpenFile:
        """Create a file for the partition with these values."""
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
        return _OpenFile(path, key, stream, writer, metadata=metadata)

    def _close_file(self, values: tuple[Cell, ...]) -> DataFile:
        """Finish a file; return its description for a snapshot, with statistics."""
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        open_file = self._open_files.pop(values)
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


def _flush(open_file: _OpenFile) -> None:
    """Write the buffered rows as one row group."""
    import pyarrow as pa

    if open_file.buffered:
        open_file.writer.write_table(pa.concat_tables(open_file.buffered).combine_chunks())
        open_file.buffered, open_file.buffered_bytes = [], 0


def _find_column(rows: pa.Table, name: str) -> Arrow:
    """Return a column, or a field of a struct by its dotted name."""
    import pyarrow.compute as pc

    outer, *inner = name.split(".")
    column = rows.column(outer)
    return pc.struct_field(column, inner) if inner else column


def _cast(column: Arrow, kind: Arrow) -> Arrow:
    """Cast a column to the table's type; fields of structs are matched by name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_struct(kind) or column.type.equals(kind):
        return column.cast(kind)
    rows = column.combine_chunks()
    names = {rows.type.field(number).name for number in range(rows.type.num_fields)}
    fields = [
        _cast(pa.chunked_array([pc.struct_field(rows, inner.name)]), inner.type).combine_chunks()
        if inner.name in names
        else pa.nulls(len(rows), inner.type)
        for inner in kind
    ]
    struct = pa.StructArray.from_arrays(fields, fields=list(kind), mask=pc.is_null(rows))
    return pa.chunked_array([struct])
