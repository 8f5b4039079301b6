# SPDX-License-Identifier: Apache-2.0
"""Compaction of a table's small files, and the removal of old snapshots and of lost files.

Readers of the current snapshot are not disturbed: a compaction is one commit that replaces the
small files by large ones. After a conflict with another writer the compaction starts again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.iceberg.catalogs import about
from headrace.pipeline.iceberg.files import Writing, layout_of
from headrace.pipeline.iceberg.table import Change, Changed, IcebergTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask, Table

ROUNDS_MAX: Final = 5
COMPACTED: Final = "headrace-compacted"


@dataclass(slots=True)
class Compacted:
    """The outcome of a compaction."""

    files_before: int = 0
    files_after: int = 0


def compact(table: IcebergTable, target_bytes: int, files_min: int) -> Compacted:
    """Rewrite the small files of each partition as large ones, with one commit per partition.

    A partition with fewer than `files_min` files below half of `target_bytes` stays as it is. The
    rows pass through this process, a row group at a time.
    """
    for _ in range(ROUNDS_MAX):
        try:
            return _compact(table, target_bytes, files_min)
        except Changed:
            continue
    raise PipelineError(f"{table.what}: others changed it {ROUNDS_MAX} times during compaction")


def _compact(table: IcebergTable, target_bytes: int, files_min: int) -> Compacted:
    done = Compacted()
    seen = table.load_existing()
    with about(table.what, table.properties):
        groups = list(_groups(seen, target_bytes))
    for group in groups:
        if len(group) < files_min:
            continue
        with about(table.what, table.properties):
            layout = layout_of(seen, f"compacted-{uuid.uuid4().hex[:8]}", target_bytes)
            made = list(Writing(layout).write(_batches(seen, group)))
        mark = uuid.uuid4().hex
        old = [task.file for task in group]
        change = Change(made, old, summary={COMPACTED: mark, "headrace-operation": "compaction"})

        def has_it(now: Table, mark: str = mark) -> bool:
            return any(
                snapshot.summary is not None
                and snapshot.summary.additional_properties.get(COMPACTED) == mark
                for snapshot in now.snapshots()
            )

        table.apply(seen, change, {}, has_it, is_merge=False)
        done.files_before += len(old)
        done.files_after += len(made)
    return done


def _groups(table: Table, target_bytes: int) -> Iterator[list[FileScanTask]]:
    """Yield the small files of each partition; skip files with deletes or an older partitioning."""
    spec = table.spec().spec_id
    groups: dict[str, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        is_small = task.file.file_size_in_bytes < target_bytes // 2
        if is_small and task.file.spec_id == spec and not task.delete_files:
            groups.setdefault(repr(task.file.partition), []).append(task)
    yield from groups.values()


def _batches(table: Table, tasks: list[FileScanTask]) -> Iterator[pa.RecordBatch]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    for task in sorted(tasks, key=lambda task: task.file.file_path):
        yield from scan.to_record_batches([task])


def expire(table: IcebergTable, keep_hours: int, *, dry_run: bool = False) -> tuple[int, int]:
    """Remove snapshots older than `keep_hours`, and the files that no other snapshot has.

    Older files that no commit names, left by a driver that died, are removed as well. The current
    snapshot, branches and tags stay. Returns the number of removed snapshots and files.
    """
    from pyiceberg.exceptions import CommitFailedException

    before = table.load_existing()
    moment = datetime.now(UTC) - timedelta(hours=keep_hours)
    limit_ms = int(moment.timestamp() * 1000)
    with about(table.what, table.properties):
        kept = {ref.snapshot_id for ref in before.refs().values()}
        old = [
            snapshot.snapshot_id
            for snapshot in before.snapshots()
            if snapshot.timestamp_ms < limit_ms and snapshot.snapshot_id not in kept
        ]
        if old and not dry_run:
            try:
                before.maintenance.expire_snapshots().by_ids(old).commit()
            except CommitFailedException:
                raise PipelineError(
                    f"{table.what}: others changed it at the same time: try again"
                ) from None
        after = table.load_existing()
        live = _reachable(after, set(old))
        lost = [path for path in _stale_files(after, moment) if _plain(path) not in live]
        if not dry_run:
            for path in lost:
                after.io.delete(path)
    return len(old), len(lost)


def _reachable(table: Table, without: set[int]) -> set[str]:
    """Return the live files of the other snapshots: data, deletes, manifests and their lists."""
    live: set[str] = set()
    seen: set[str] = set()
    for snapshot in table.snapshots():
        if snapshot.snapshot_id in without:
            continue
        live.add(_plain(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            live.add(_plain(manifest.manifest_path))
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            live.update(_plain(entry.data_file.file_path) for entry in entries)
    return live


def _stale_files(table: Table, before: datetime) -> Iterator[str]:
    """Yield data files and manifests below the table's location that are older than a moment."""
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    root = table.location()
    where = urlsplit(root)
    files = PyArrowFileIO(table.io.properties).fs_by_scheme(where.scheme or "file", where.netloc)
    base = f"{where.netloc}{where.path}"
    for folder in ("data", "metadata"):
        selector = fs.FileSelector(f"{base}/{folder}", allow_not_found=True, recursive=True)
        for info in files.get_file_info(selector):
            name = info.base_name
            is_ours = folder == "data" or name.endswith(".avro")
            if info.type == fs.FileType.File and is_ours and info.mtime < before:
                yield f"{root}{info.path.removeprefix(base)}"


def _plain(path: str) -> str:
    """Return a path without its scheme: programs write `file:/x`, `file:///x` or `/x`."""
    where = urlsplit(path)
    return f"{where.netloc}{where.path}"
