# SPDX-License-Identifier: Apache-2.0
"""Compaction of a table's small files, and removal of old snapshots and orphaned files.

A compaction replaces the small files of a partition by large ones in one commit, so readers of the
current snapshot are not disturbed. After a conflict with another writer it starts again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.iceberg.catalogs import error_context
from headrace.pipeline.iceberg.files import TaskWriter, make_layout
from headrace.pipeline.iceberg.table import IcebergTable, TableChange, TableChanged

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask, Table

ATTEMPTS_MAX: Final = 5
COMPACTION_PROPERTY: Final = "headrace-compacted"  # The id of a compaction, in its snapshot.


@dataclass(slots=True)
class IcebergCompaction:
    """The result of a compaction: the numbers of replaced and of new files."""

    files_before: int = 0
    files_after: int = 0


def compact(table: IcebergTable, target_bytes: int, files_min: int) -> IcebergCompaction:
    """Rewrite the small files of each partition as large ones, with one commit per partition.

    A partition with fewer than `files_min` files below half of `target_bytes` stays as it is. The
    rows pass through this process, a row group at a time.

    Raises:
        PipelineError: other writers changed the table in each of `ATTEMPTS_MAX` attempts.
    """
    for _ in range(ATTEMPTS_MAX):
        try:
            return _compact(table, target_bytes, files_min)
        except TableChanged:
            continue
    raise PipelineError(f"{table.label}: others changed it {ATTEMPTS_MAX} times during compaction")


def _compact(table: IcebergTable, target_bytes: int, files_min: int) -> IcebergCompaction:
    """Make one attempt at a compaction; raise TableChanged after a conflict."""
    compaction = IcebergCompaction()
    current = table.load_existing()
    with error_context(table.label, table.properties):
        groups = list(_small_file_groups(current, target_bytes))
    for group in groups:
        if len(group) < files_min:
            continue
        with error_context(table.label, table.properties):
            layout = make_layout(current, f"compacted-{uuid.uuid4().hex[:8]}", target_bytes)
            new_files = list(TaskWriter(layout).write(_read_batches(current, group)))
        compaction_id = uuid.uuid4().hex
        old_files = [task.file for task in group]
        change = TableChange(
            new_files,
            old_files,
            summary={COMPACTION_PROPERTY: compaction_id, "headrace-operation": "compaction"},
        )

        def has_compaction(newest: Table, compaction_id: str = compaction_id) -> bool:
            return any(
                snapshot.summary is not None
                and snapshot.summary.additional_properties.get(COMPACTION_PROPERTY) == compaction_id
                for snapshot in newest.snapshots()
            )

        table.apply_change(current, change, {}, has_compaction, is_merge=False)
        compaction.files_before += len(old_files)
        compaction.files_after += len(new_files)
    return compaction


def _small_file_groups(table: Table, target_bytes: int) -> Iterator[list[FileScanTask]]:
    """Yield the small files of each partition, without those with deletes or older partitions."""
    spec = table.spec().spec_id
    groups: dict[str, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        is_small = task.file.file_size_in_bytes < target_bytes // 2
        if is_small and task.file.spec_id == spec and not task.delete_files:
            groups.setdefault(repr(task.file.partition), []).append(task)
    yield from groups.values()


def _read_batches(table: Table, tasks: list[FileScanTask]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some files, with deletes applied."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    for task in sorted(tasks, key=lambda task: task.file.file_path):
        yield from scan.to_record_batches([task])


def expire_snapshots(
    table: IcebergTable, keep_hours: int, *, dry_run: bool = False
) -> tuple[int, int]:
    """Remove snapshots older than `keep_hours`, and the files that no other snapshot has.

    Files of the same age that are in no commit, left by a driver that died, are removed as well.
    The current snapshot, branches and tags stay.

    Returns:
        The numbers of removed snapshots and files; with `dry_run`, of those that would be removed.
    """
    from pyiceberg.exceptions import CommitFailedException

    before = table.load_existing()
    limit = datetime.now(UTC) - timedelta(hours=keep_hours)
    limit_ms = int(limit.timestamp() * 1000)
    with error_context(table.label, table.properties):
        referenced = {ref.snapshot_id for ref in before.refs().values()}
        expired_ids = [
            snapshot.snapshot_id
            for snapshot in before.snapshots()
            if snapshot.timestamp_ms < limit_ms and snapshot.snapshot_id not in referenced
        ]
        if expired_ids and not dry_run:
            try:
                before.maintenance.expire_snapshots().by_ids(expired_ids).commit()
            except CommitFailedException:
                raise PipelineError(
                    f"{table.label}: others changed it at the same time: try again"
                ) from None
        after = table.load_existing()
        live_files = _find_live_files(after, set(expired_ids))
        orphans = [
            path
            for path in _find_stale_files(after, limit)
            if _strip_scheme(path) not in live_files
        ]
        if not dry_run:
            for path in orphans:
                after.io.delete(path)
    return len(expired_ids), len(orphans)


def _find_live_files(table: Table, expired_ids: set[int]) -> set[str]:
    """Return all files of the unexpired snapshots: data, deletes, manifests, manifest lists."""
    live_files: set[str] = set()
    manifest_paths: set[str] = set()
    for snapshot in table.snapshots():
        if snapshot.snapshot_id in expired_ids:
            continue
        live_files.add(_strip_scheme(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in manifest_paths:
                continue
            manifest_paths.add(manifest.manifest_path)
            live_files.add(_strip_scheme(manifest.manifest_path))
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            live_files.update(_strip_scheme(entry.data_file.file_path) for entry in entries)
    return live_files


def _find_stale_files(table: Table, before: datetime) -> Iterator[str]:
    """Yield data files and manifests at the table's location that are older than `before`."""
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    root = table.location()
    url = urlsplit(root)
    files = PyArrowFileIO(table.io.properties).fs_by_scheme(url.scheme or "file", url.netloc)
    base = f"{url.netloc}{url.path}"
    for folder in ("data", "metadata"):
        selector = fs.FileSelector(f"{base}/{folder}", allow_not_found=True, recursive=True)
        for info in files.get_file_info(selector):
            name = info.base_name
            is_table_file = folder == "data" or name.endswith(".avro")
            if info.type == fs.FileType.File and is_table_file and info.mtime < before:
                yield f"{root}{info.path.removeprefix(base)}"


def _strip_scheme(path: str) -> str:
    """Return a path without its scheme, because programs write `file:/x`, `file:///x` or `/x`."""
    url = urlsplit(path)
    return f"{url.netloc}{url.path}"
