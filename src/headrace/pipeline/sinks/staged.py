# SPDX-License-Identifier: Apache-2.0
"""Writing of the staged files of a batch, to a hidden directory that readers ignore."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.config.settings import DeltaSink, FileSink
    from headrace.untyped import Arrow

SUFFIXES: Final = {"parquet": ".parquet", "json": ".json", "csv": ".csv", "orc": ".orc"}
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file with rows of a batch, which Spark has written to the hidden directory."""

    path: Path
    folder: str  # Its partition, such as `date=2026-01-31/hour=7`; "" without partitions.
    rows: int | None  # None if the format has no count of rows.


def write_staged(
    rows: DataFrame, sink: FileSink | DeltaSink, folder: Path, options: dict[str, str]
) -> list[StagedFile]:
    """Write the rows into `folder` with Spark; return the files that have rows."""
    shutil.rmtree(folder, ignore_errors=True)
    file_format = "parquet" if sink.type == "delta" else sink.type
    if sink.files is not None:
        rows = rows.coalesce(sink.files)
    if sink.sort_by:
        rows = rows.sortWithinPartitions(*sink.partition_by, *sink.sort_by)
    writer = rows.write.format(file_format).mode("overwrite").options(**options)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    writer.save(str(folder))
    staged = []
    for path in sorted(folder.rglob(f"*{SUFFIXES[file_format]}*")):
        relative = path.relative_to(folder)
        if any(part.startswith((".", "_")) for part in relative.parts):
            continue
        row_count = _count_rows(path, file_format)
        if row_count == 0 or path.stat().st_size == 0:
            continue
        parent = relative.parent.as_posix()
        staged.append(StagedFile(path, "" if parent == "." else parent, row_count))
    return staged


def partition_values(folder: str) -> dict[str, str | None]:
    """Return the values of a partition by column, from the name of its directory."""
    values: dict[str, str | None] = {}
    for part in filter(None, folder.split("/")):
        name, _, value = part.partition("=")
        values[unquote(name)] = None if value == NULL_PARTITION else unquote(value)
    return values


def _count_rows(path: Path, file_format: str) -> int | None:
    """Return the number of rows in a file; None if its format does not have it."""
    if file_format == "parquet":
        import pyarrow.parquet as pq

        count: int = pq.read_metadata(path).num_rows
        return count
    if file_format == "orc":
        from pyarrow import orc

        orc_count: Arrow = orc.ORCFile(path).nrows
        return int(orc_count)
    return None
