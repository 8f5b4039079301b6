# SPDX-License-Identifier: Apache-2.0
"""The staged files of a batch, in a hidden directory that readers ignore."""

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
    """A staged file. `rows` is None if the format has no row count."""

    path: Path
    folder: str  # Its partition, such as `date=2026-01-31/hour=7`, or empty.
    rows: int | None


def write_staged(
    frame: DataFrame, sink: FileSink | DeltaSink, folder: Path, options: dict[str, str]
) -> list[StagedFile]:
    """Write the rows into `folder` with Spark; return the files that have rows."""
    shutil.rmtree(folder, ignore_errors=True)
    kind = "parquet" if sink.type == "delta" else sink.type
    if sink.files is not None:
        frame = frame.coalesce(sink.files)
    if sink.sort_by:
        frame = frame.sortWithinPartitions(*sink.partition_by, *sink.sort_by)
    writer = frame.write.format(kind).mode("overwrite").options(**options)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    writer.save(str(folder))
    staged = []
    for path in sorted(folder.rglob(f"*{SUFFIXES[kind]}*")):
        relative = path.relative_to(folder)
        if any(part.startswith((".", "_")) for part in relative.parts):
            continue
        rows = _count_rows(path, kind)
        if rows == 0 or path.stat().st_size == 0:
            continue
        parent = relative.parent.as_posix()
        staged.append(StagedFile(path, "" if parent == "." else parent, rows))
    return staged


def partition_values(folder: str) -> dict[str, str | None]:
    """Return the partition's values by column, from the name of its directory."""
    values: dict[str, str | None] = {}
    for part in filter(None, folder.split("/")):
        name, _, value = part.partition("=")
        values[unquote(name)] = None if value == NULL_PARTITION else unquote(value)
    return values


def _count_rows(path: Path, kind: str) -> int | None:
    if kind == "parquet":
        import pyarrow.parquet as pq

        count: int = pq.read_metadata(path).num_rows
        return count
    if kind == "orc":
        from pyarrow import orc

        rows: Arrow = orc.ORCFile(path).nrows
        return int(rows)
    return None
