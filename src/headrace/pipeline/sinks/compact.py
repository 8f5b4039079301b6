# SPDX-License-Identifier: Apache-2.0
"""Compaction of the small Parquet files of a partition, while others read and write.

The large files are written to a new directory, with hard links to files that are already large.
Then the kernel exchanges this directory with the partition in one step, so a reader that lists the
partition finds either the old files or the new ones. A reader keeps the old files that it has open.
A reader that opens an old file after the exchange gets an error, not wrong rows. The next
compaction deletes files left by a crash.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.runtime import atomic_files
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.sinks.ledger import Ledger

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.untyped import Arrow

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_ROW_GROUP_ROWS: Final = 128 * 1024


@dataclass(slots=True)
class FolderCompaction:
    """The result of a compaction: changed partitions, and the numbers of their files."""

    partitions: int = 0
    files_before: int = 0
    files_after: int = 0


def compact(
    root: Path, target_bytes: int, files_min: int, *, dry_run: bool = False
) -> FolderCompaction:
    """Compact each partition with at least `files_min` files below half of `target_bytes`."""
    if not root.is_dir():
        raise PipelineError(f"{root} is not a directory")
    ledger = Ledger(root)
    compaction = FolderCompaction()
    for folder in _find_partitions(root):
        with ledger.lock():
            shutil.rmtree(ledger.home / "compacting", ignore_errors=True)
            files = _data_files(folder)
            small_files = [path for path in files if path.stat().st_size < target_bytes // 2]
            for group in _group_by_schema(small_files):
                if len(group) < files_min:
                    continue
                compaction.partitions += 1
                compaction.files_before += len(files)
                if not dry_run:
                    _replace_partition(ledger, folder, group, target_bytes)
                    compaction.files_after += len(_data_files(folder))
                else:
                    compaction.files_after += len(files) - len(group) + 1
    return compaction


def _data_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if _is_data_file(path))


def _find_partitions(root: Path) -> Iterator[Path]:
    """Yield the directories below the root that have files. The root itself cannot be exchanged."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith(("_", ".")))
        if Path(folder) != root and any(_is_data_file(Path(folder) / name) for name in names):
            yield Path(folder)


def _is_data_file(path: Path) -> bool:
    return path.suffix == ".parquet" and not path.name.startswith(("_", "."))


def _group_by_schema(files: list[Path]) -> list[list[Path]]:
    """Group files by their columns, because only files with equal columns can be merged."""
    import pyarrow.parquet as pq

    groups: list[tuple[Arrow, list[Path]]] = []
    for path in files:
        schema = pq.read_schema(path)
        for group_schema, group in groups:
            if group_schema.equals(schema):
                group.append(path)
                break
        else:
            groups.append((schema, [path]))
    return [group for _, group in groups]


def _replace_partition(
    ledger: Ledger, folder: Path, small_files: list[Path], target_bytes: int
) -> None:
    """Merge small files of a partition, and put the result in its place in one step."""
    new_folder = ledger.home / "compacting" / uuid.uuid4().hex
    new_folder.mkdir(parents=True)
    for path in folder.iterdir():
        if path not in small_files and path.is_file():
            os.link(path, new_folder / path.name)
    _merge_files(small_files, new_folder, target_bytes)
    for path in new_folder.iterdir():
        atomic_files.sync_file(path)
    atomic_files.sync_folder(new_folder)
    exchange_folders(new_folder, folder)
    atomic_files.sync_folder(folder.parent)
    atomic_files.sync_folder(new_folder.parent)
    shutil.rmtree(new_folder)  # The old files.


def _merge_files(small_files: list[Path], new_folder: Path, target_bytes: int) -> None:
    """Write the rows of small files, ordered by file name, to files of about `target_bytes`."""
    import pyarrow.parquet as pq

    writer: pq.ParquetWriter | None = None
    path = new_folder
    for batch in _row_groups(small_files):
        if writer is None:
            path = (
                new_folder
                / f"{small_files[0].name.split('-')[0]}-compacted-{uuid.uuid4().hex[:12]}.parquet"
            )
            writer = pq.ParquetWriter(path, batch.schema, compression="zstd")
        writer.write_table(batch)
        if path.stat().st_size >= target_bytes:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()


def _row_groups(files: list[Path]) -> Iterator[pa.Table]:
    """Yield the rows of files in tables of the size of a row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffered: list[pa.Table] = []
    row_count = 0
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROW_GROUP_ROWS):
                buffered.append(pa.Table.from_batches([batch]))
                row_count += batch.num_rows
                if row_count >= _ROW_GROUP_ROWS:
                    yield pa.concat_tables(buffered).combine_chunks()
                    buffered, row_count = [], 0
    if buffered:
        yield pa.concat_tables(buffered).combine_chunks()


def exchange_folders(first: Path, second: Path) -> None:
    """Exchange two directories in one step.

    Raises:
        PipelineError: the system or the file system does not support this.
    """
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        raise PipelineError("this system cannot exchange directories: use Delta") from None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    first_path, second_path = os.fsencode(first), os.fsencode(second)
    if call(_AT_FDCWD, first_path, _AT_FDCWD, second_path, _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise PipelineError(
                f"the file system of {second} cannot exchange directories: use Delta"
            )
        raise OSError(number, os.strerror(number), str(second))
