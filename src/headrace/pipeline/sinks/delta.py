# SPDX-License-Identifier: Apache-2.0
"""Delta tables through the package `deltalake`, without a Java library.

Spark's tasks write Parquet files. Then one commit of the table's log adds all files of a batch,
with the batch's number as an application transaction. A batch that runs again finds its number in
the log and adds nothing.
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
from headrace.pipeline.sinks.ledger import HIDDEN_FOLDER
from headrace.pipeline.sinks.staged import StagedFile, partition_values

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

STATISTICS_COLUMNS_MAX: Final = 32  # Columns with statistics, as in Delta's own writers.


def open_table(path: str) -> DeltaTable | None:
    """Return the Delta table in a directory; None if there is no table."""
    try:
        from deltalake import DeltaTable
    except ModuleNotFoundError as error:
        raise PipelineError(f"Delta tables: {extras.describe_missing(error)}") from None
    return DeltaTable(path) if DeltaTable.is_deltatable(path) else None


def current_files(table: DeltaTable) -> tuple[pa.Schema, list[str]]:
    """Return the columns and the files of the current version of a table."""
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow()), [str(uri) for uri in table.file_uris()]


def read_table_state(path: str, writer: str) -> tuple[str | None, int | None]:
    """Return the id of a table and the last batch of a writer in it; None for a missing one."""
    table = open_table(path)
    if table is None:
        return None, None
    return str(table.metadata().id), table.transaction_version(writer)


def commit(
    path: str,
    schema: pa.Schema,
    partition_by: list[str],
    writer: str,
    batch: int,
    staged: list[StagedFile],
) -> str:
    """Add the files of a batch to the table in one commit; create the table if it does not exist.

    Returns:
        The id of the table.

    Raises:
        PipelineError: the table has other columns or other partitions.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    table = open_table(path)
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
        size, statistics = file.path.stat().st_size, _describe_statistics(file.path)
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
    shutil.rmtree(root / HIDDEN_FOLDER / "staging" / writer, ignore_errors=True)
    return str(table.metadata().id)


def merge(
    path: str, rows: pa.Table, partition_by: list[str], keys: list[str], writer: str, batch: int
) -> str:
    """Update rows by the columns `keys` and insert new rows, in one commit; return the table's id.

    The rows of the batch are in memory, because batches of windows are small.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction

    table = open_table(path)
    if table is None:
        table = DeltaTable.create(
            path, rows.schema, mode="ignore", partition_by=partition_by or None
        )
    condition = " AND ".join(f'(old."{key}" IS NOT DISTINCT FROM new."{key}")' for key in keys)
    merger = table.merge(
        rows,
        condition,
        source_alias="new",
        target_alias="old",
        commit_properties=CommitProperties(app_transactions=[Transaction(writer, batch)]),
    )
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    return str(table.metadata().id)


def compact(path: str, target_bytes: int, keep_hours: int | None) -> dict[str, object]:
    """Merge small files into large ones in one commit, without disturbing readers.

    Delete the files that no version of the last `keep_hours` needs; None deletes nothing. Return
    the metrics of deltalake, with the number of deleted files as `filesDeleted`.

    Raises:
        PipelineError: the directory is not a Delta table.
    """
    table = open_table(path)
    if table is None:
        raise PipelineError(f"{path} is not a Delta table")
    outcome: dict[str, object] = table.optimize.compact(target_size=target_bytes)
    if keep_hours is not None:
        deleted = table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False)
        outcome["filesDeleted"] = len(deleted)
    return outcome


def _describe_statistics(path: Path) -> str:
    """Return the statistics of a file as Delta's JSON; readers skip files by their integers."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    minima: dict[str, object] = {}
    maxima: dict[str, object] = {}
    null_counts: dict[str, int] = {}
    for column in range(min(metadata.num_columns, STATISTICS_COLUMNS_MAX)):
        chunks = [
            metadata.row_group(group).column(column) for group in range(metadata.num_row_groups)
        ]
        name = chunks[0].path_in_schema if chunks else ""
        physical_types = {chunk.physical_type for chunk in chunks}
        statistics = [chunk.statistics for chunk in chunks]
        if (
            "." in name
            or physical_types - {"INT32", "INT64"}
            or not all(
                chunk_statistics is not None and chunk_statistics.has_min_max
                for chunk_statistics in statistics
            )
        ):
            continue
        low, high = (
            choose(getattr(chunk_statistics, bound) for chunk_statistics in statistics)
            for choose, bound in ((min, "min"), (max, "max"))
        )
        if isinstance(low, int):
            minima[name], maxima[name] = low, high
            null_counts[name] = sum(
                chunk_statistics.null_count or 0 for chunk_statistics in statistics
            )
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": minima,
            "maxValues": maxima,
            "nullCount": null_counts,
        }
    )
