# SPDX-License-Identifier: Apache-2.0
"""Delta tables through the package `deltalake`, without a JVM library for them.

Spark's tasks write Parquet files; one commit of the table's log then names all files of a batch,
and the batch itself as a transaction of the application. A batch that is run again finds its number
in the log and adds nothing.
"""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace import extras
from headrace.columns.runtime import atomic_files
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.sinks.ledger import HIDDEN
from headrace.pipeline.sinks.staged import Staged, partition_values

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

STATISTICS_COLUMNS_MAX: Final = 32


def table_at(path: str) -> DeltaTable | None:
    """Return the Delta table of a directory; None if it has none."""
    try:
        from deltalake import DeltaTable
    except ModuleNotFoundError as error:
        raise PipelineError(f"Delta tables: {extras.describe_missing(error)}") from None
    return DeltaTable(path) if DeltaTable.is_deltatable(path) else None


def files_of(table: DeltaTable) -> tuple[pa.Schema, list[str]]:
    """Columns and files of a table as it is now."""
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow()), [str(uri) for uri in table.file_uris()]


def state_of(path: str, writer: str) -> tuple[str | None, int | None]:
    """Return the table's id, None without a table, and the last batch of a writer in it."""
    table = table_at(path)
    if table is None:
        return None, None
    return str(table.metadata().id), table.transaction_version(writer)


def commit(
    path: str, schema: pa.Schema, partition_by: list[str], writer: str, batch: int,
    staged: list[Staged],
) -> str:  # fmt: skip
    """Put the files of a batch into the table, in one commit; makes the table at first.

    Returns the table's own id. PipelineError when the table has other columns, or other partitions.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    table = table_at(path)
    if table is None:
        table = DeltaTable.create(path, schema, mode="ignore", partition_by=partition_by or None)
    partitions = list(table.metadata().partition_columns)
    if partitions != partition_by:
        raise PipelineError(
            f"the table {path} is partitioned by {partitions}, not by {partition_by}"
        )
    root = Path(path)
    actions: list[AddAction | RemoveAction] = []
    for file in staged:
        name = f"{file.folder}/" if file.folder else ""
        name += f"part-{batch:08d}-{uuid.uuid4()}.parquet"
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        size, statistics = file.path.stat().st_size, _statistics(file.path)
        file.path.replace(target)
        atomic_files.sync_folders(target.parent, root)
        moment_ms = int(target.stat().st_mtime * 1000)
        actions.append(
            AddAction(name, size, partition_values(file.folder), moment_ms, True, statistics)
        )
    table.create_write_transaction(
        actions,
        "append",
        schema,
        partition_by or None,
        commit_properties=CommitProperties(app_transactions=[Transaction(writer, batch)]),
    )
    shutil.rmtree(root / HIDDEN / "staging" / writer, ignore_errors=True)
    return str(table.metadata().id)


def merge(
    path: str, rows: pa.Table, partition_by: list[str], keys: list[str], writer: str, batch: int
) -> str:
    """Replace rows with the keys of a batch, add the others, in one commit; return the table's id.

    The rows are in this process's memory: batches of windows are small.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction

    table = table_at(path)
    if table is None:
        table = DeltaTable.create(
            path, rows.schema, mode="ignore", partition_by=partition_by or None
        )
    same = " AND ".join(f'(old."{key}" IS NOT DISTINCT FROM new."{key}")' for key in keys)
    merging = table.merge(
        rows,
        same,
        source_alias="new",
        target_alias="old",
        commit_properties=CommitProperties(app_transactions=[Transaction(writer, batch)]),
    )
    merging.when_matched_update_all().when_not_matched_insert_all().execute()
    return str(table.metadata().id)


def compact(path: str, target_bytes: int, keep_hours: int | None) -> dict[str, object]:
    """Make large files of small ones, in one commit; readers of the table before are not disturbed.

    Files that no version of the last `keep_hours` needs are deleted; None deletes nothing.
    """
    table = table_at(path)
    if table is None:
        raise PipelineError(f"{path} is not a Delta table")
    outcome: dict[str, object] = table.optimize.compact(target_size=target_bytes)
    if keep_hours is not None:
        deleted = table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False)
        outcome["filesDeleted"] = len(deleted)
    return outcome


def _statistics(path: Path) -> str:
    """Rows, smallest and largest values of a file, as Delta wants them: readers may skip."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    least: dict[str, object] = {}
    most: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for column in range(min(metadata.num_columns, STATISTICS_COLUMNS_MAX)):
        parts = [
            metadata.row_group(group).column(column) for group in range(metadata.num_row_groups)
        ]
        name = parts[0].path_in_schema if parts else ""
        kinds = {part.physical_type for part in parts}
        statistics = [part.statistics for part in parts]
        if (
            "." in name
            or kinds - {"INT32", "INT64"}
            or not all(
                part_statistics is not None and part_statistics.has_min_max
                for part_statistics in statistics
            )
        ):
            continue
        low, high = (
            f(getattr(part_statistics, end) for part_statistics in statistics)
            for f, end in ((min, "min"), (max, "max"))
        )
        if isinstance(low, int):
            least[name], most[name] = low, high
            nulls[name] = sum(part_statistics.null_count or 0 for part_statistics in statistics)
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    )
