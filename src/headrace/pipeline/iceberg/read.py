# SPDX-License-Identifier: Apache-2.0
"""Reading of a table's rows by Spark's tasks, which share the data files among them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.iceberg.catalogs import hide_secrets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TASKS_MAX: Final = 64  # Tasks of Spark in one read.


def read_rows(
    spark: SparkSession,
    table: Table,
    tasks: Sequence[FileScanTask],
    columns: Sequence[str] = (),
    file_column: str | None = None,
) -> DataFrame:
    """Return the rows of data files of a table, with deletes applied.

    `columns` are the columns to return; () for all. `file_column` is the name of an additional
    column with the path of each row's file.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    projected_schema = table.schema().select(*columns) if columns else table.schema()
    schema = spark_columns(projected_schema, file_column)
    projected = projected_schema.model_dump_json()
    if not tasks:
        return spark.createDataFrame([], schema)
    metadata = table.metadata.model_dump_json()
    location = table.metadata_location
    io = dict(table.io.properties)
    pickled_tasks = [(pickle.dumps(task),) for task in tasks]

    def read_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for pickled in batch.column(0).to_pylist():
                    for rows in _read_task(metadata, location, io, projected, pickled, file_column):
                        yield rows.cast(arrow_schema)
        except Exception as error:  # noqa: BLE001  # Any error text may contain a secret.
            raise PipelineError(hide_secrets(f"{type(error).__name__}: {error}", io)) from None

    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    task_count = min(len(pickled_tasks), TASKS_MAX)
    distributed_tasks = spark.createDataFrame(pickled_tasks, "task binary").repartition(task_count)
    return distributed_tasks.mapInArrow(read_partition, schema)


def spark_columns(schema: Schema, file_column: str | None = None) -> StructType:
    """Return the columns of a table as a Spark schema, with `file_column` as the last."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StringType

    struct = from_arrow_schema(
        schema_to_pyarrow(schema, include_field_ids=False), prefer_timestamp_ntz=True
    )
    return struct if file_column is None else struct.add(file_column, StringType())


def _read_task(
    metadata: str,
    location: str,
    io: dict[str, str],
    projected: str,
    task: bytes,
    file_column: str | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task of a scan, in the process of a task of Spark."""
    import pyarrow as pa
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io import load_file_io
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadataUtil

    table_metadata = TableMetadataUtil.parse_raw(metadata)
    scan_task: FileScanTask = pickle.loads(task)  # noqa: S301  # Written by the driver.
    schema = Schema.model_validate_json(projected)
    scan = ArrowScan(table_metadata, load_file_io(io, location), schema, AlwaysTrue())
    for batch in scan.to_record_batches([scan_task]):
        if file_column is None:
            yield batch
            continue
        paths = pa.repeat(scan_task.file.file_path, batch.num_rows)
        yield batch.append_column(file_column, paths)
