# SPDX-License-Identifier: Apache-2.0
"""Compaction of the small Parquet files of a partition, while others read and write.

A new directory gets the large files, and hard links to files that are large enough already. Then
the kernel exchanges it with the partition in one step: a reader that lists the partition finds
either the old files or the new ones. A reader keeps the old files that it has open. A reader that
opens an old file after the exchange gets an error, not wrong rows. The next compaction deletes
files that a crash left.
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
class Compacted:
    """The outcome of a compaction: partitions changed, their files before and after."""

    partitions: int = 0
    files_before: int = 0
    files_after: int = 0


def compact(root: Path, target_bytes: int, files_min: int, *, dry_run: bool = False) -> Compacted:
    """Compact each partition with at least `files_min` files below half of `target_bytes`."""
    if not root.is_dir():
        raise PipelineError(f"{root} is not a directory")
    ledger = Ledger(root)
    done = Compacted()
    for folder in _partitions(root):
        with ledger.lock():
            shutil.rmtree(ledger.home / "compacting", ignore_errors=True)
            files = _data(folder)
            small = [path for path in files if path.stat().st_size < target_bytes // 2]
            for group in _alike(small):
                if len(group) < files_min:
                    continue
                done.partitions += 1
                done.files_before += len(files)
                if not dry_run:
                    _replace(ledger, folder, group, target_bytes)
                    done.files_after += len(_data(folder))
                else:
                    done.files_after += len(files) - len(group) + 1
    return done


def _data(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if _is_data(path))


def _partitions(root: Path) -> Iterator[Path]:
    """Yield the directories with files below the root, which cannot be exchanged itself."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith(("_", ".")))
        if Path(folder) != root and any(_is_data(Path(folder) / name) for name in names):
            yield Path(folder)


def _is_data(path: Path) -> bool:
    return path.suffix == ".parquet" and not path.name.startswith(("_", "."))


def _alike(files: list[Path]) -> list[list[Path]]:
    """Group files by their columns: only files with equal columns are joined."""
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


def _replace(ledger: Ledger, folder: Path, small: list[Path], target_bytes: int) -> None:
    made = ledger.home / "compacting" / uuid.uuid4().hex
    made.mkdir(parents=True)
    for path in folder.iterdir():
        if path not in small and path.is_file():
            os.link(path, made / path.name)
    _merge(small, made, target_bytes)
    for path in made.iterdir():
        atomic_files.sync_file(path)
    atomic_files.sync_folder(made)
    exchange(made, folder)
    atomic_files.sync_folder(folder.parent)
    atomic_files.sync_folder(made.parent)
    shutil.rmtree(made)  # The old files.


def _merge(small: list[Path], made: Path, target_bytes: int) -> None:
    """The rows of small files, in the order of the files' names, into as few files as needed."""
    import pyarrow.parquet as pq

    writer: pq.ParquetWriter | None = None
    path = made
    for batch in _row_groups(small):
        if writer is None:
            path = made / f"{small[0].name.split('-')[0]}-compacted-{uuid.uuid4().hex[:12]}.parquet"
            writer = pq.ParquetWriter(path, batch.schema, compression="zstd")
        writer.write_table(batch)
        if path.stat().st_size >= target_bytes:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()


def _row_groups(files: list[Path]) -> Iterator[pa.Table]:
    """The rows of files in pieces of one row group, which small files share."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting: list[pa.Table] = []
    count = 0
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROW_GROUP_ROWS):
                waiting.append(pa.Table.from_batches([batch]))
                count += batch.num_rows
                if count >= _ROW_GROUP_ROWS:
                    yield pa.concat_tables(waiting).combine_chunks()
                    waiting, count = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def exchange(one: Path, other: Path) -> None:
    """Exchange two directories in one step.

    PipelineError if the system or the file system does not support this.
    """
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        raise PipelineError("this system cannot exchange directories: use Delta") from None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    left, right = os.fsencode(one), os.fsencode(other)
    if call(_AT_FDCWD, left, _AT_FDCWD, right, _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise PipelineError(
                f"the file system of {other} cannot exchange directories: use Delta"
            )
        raise OSError(number, os.strerror(number), str(other))
