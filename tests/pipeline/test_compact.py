# SPDX-License-Identifier: Apache-2.0
"""Compaction keeps every row, with concurrent readers and writers and after any crash."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headrace.columns.runtime import atomic_files
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.sinks import compact as module
from headrace.pipeline.sinks.compact import compact, exchange_folders
from headrace.pipeline.sinks.ledger import Ledger, Move
from support.brokers.broker_process import until

MIB = 1 << 20


def write_file(root: Path, name: str, first: int, count: int = 3, column: str = "offset") -> None:
    """Write a file with `count` numbers from `first` on."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({column: list(range(first, first + count))}), path)


def read_numbers(root: Path) -> list[int]:
    """Return the numbers in the lake, as a reader finds them."""
    table = ds.dataset(root, partitioning="hive", exclude_invalid_files=False).to_table()
    return sorted(table.column("offset").to_pylist())


def data_files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.glob("date=*/*.parquet"))


def make_lake(root: Path, count: int = 4) -> Path:
    for number in range(count):
        write_file(root, f"date=1/{number:08d}-w-0.parquet", number * 3)
    write_file(root, "date=2/00000000-w-0.parquet", 1000)
    return root


def test_small_files_become_one_in_their_order(tmp_path: Path) -> None:
    make_lake(tmp_path)
    done = compact(tmp_path, MIB, 4)
    assert (done.partitions, done.files_before, done.files_after) == (1, 4, 1)
    (merged, other) = data_files(tmp_path)
    assert other == "date=2/00000000-w-0.parquet"
    assert pq.read_table(tmp_path / merged).column("offset").to_pylist() == list(range(12))
    assert compact(tmp_path, MIB, 4).partitions == 0


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    before = data_files(make_lake(tmp_path))
    done = compact(tmp_path, MIB, 4, dry_run=True)
    assert (done.partitions, done.files_before, done.files_after) == (1, 4, 1)
    assert data_files(tmp_path) == before


def test_large_files_and_other_columns_stay_as_they_are(tmp_path: Path) -> None:
    make_lake(tmp_path)
    write_file(tmp_path, "date=1/large.parquet", 100, 100_000)
    write_file(tmp_path, "date=1/other.parquet", 0, 3, "number")
    compact(tmp_path, 100_000, 4)
    assert len(data_files(tmp_path)) == 4
    assert {"date=1/large.parquet", "date=1/other.parquet"} < set(data_files(tmp_path))


def test_files_grow_to_about_the_target(tmp_path: Path) -> None:
    values = random.Random(7).sample(range(1 << 60), 900_000)
    (tmp_path / "date=1").mkdir()
    for number in range(6):
        part = values[number * 150_000 : (number + 1) * 150_000]
        pq.write_table(pa.table({"offset": part}), tmp_path / "date=1" / f"{number}.parquet")
    size = (tmp_path / "date=1" / "0.parquet").stat().st_size
    compact(tmp_path, size * 3, 4)
    assert 1 < len(data_files(tmp_path)) < 6
    assert read_numbers(tmp_path) == sorted(values)


class Crash(BaseException):
    """Stands for the death of the process."""


@pytest.mark.parametrize(
    "place",
    ["_merge_files", "exchange_folders", "after", "rmtree"],
    ids=["_merge", "exchange", "after", "rmtree"],
)
def test_a_crash_leaves_the_old_files_or_the_new(tmp_path: Path, place: str) -> None:
    make_lake(tmp_path)

    def crash(*_: object, **__: object) -> None:
        raise Crash

    def after(first: Path, second: Path) -> None:
        exchange_folders(first, second)
        raise Crash

    with pytest.MonkeyPatch.context() as patched:
        if place == "rmtree":
            patched.setattr(atomic_files, "sync_folder", crash)
        else:
            patched.setattr(
                module,
                "exchange_folders" if place == "after" else place,
                after if place == "after" else crash,
            )
        with pytest.raises(Crash):
            compact(tmp_path, MIB, 4)
    assert read_numbers(tmp_path) == [*range(12), *range(1000, 1003)]
    compact(tmp_path, MIB, 4)
    assert read_numbers(tmp_path) == [*range(12), *range(1000, 1003)]
    assert len(data_files(tmp_path)) == 2
    assert list((tmp_path / "_headrace" / "compacting").glob("*")) == []


def test_readers_and_a_writer_are_not_disturbed(tmp_path: Path) -> None:
    make_lake(tmp_path, 40)
    ledger = Ledger(tmp_path)
    incomplete_counts: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                incomplete_counts.append(len(read_numbers(tmp_path)) % 3)
            except FileNotFoundError:
                continue  # Listed before, opened after: an error, never wrong rows.

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for batch in range(40, 60):
            staged = ledger.staging_folder("w") / "x.parquet"
            write_file(staged.parent, "x.parquet", batch * 3)
            source = staged.relative_to(tmp_path).as_posix()
            ledger.add_batch("w", batch, [Move(source, f"date=1/{batch:08d}-w-0.parquet")])
            compact(tmp_path, MIB, 2)
        until(lambda: incomplete_counts, "somebody has read")
    finally:
        stop.set()
        reader.join()
    assert set(incomplete_counts) == {0}
    assert read_numbers(tmp_path) == [*range(180), *range(1000, 1003)]


def test_a_file_system_that_cannot_exchange_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without atomic exchange of directories the error names the file system."""

    def cannot(first: Path, second: Path) -> None:
        raise PipelineError(f"the file system of {second} cannot exchange directories: use Delta")

    make_lake(tmp_path)
    monkeypatch.setattr(module, "exchange_folders", cannot)
    with pytest.raises(PipelineError, match="use Delta"):
        compact(tmp_path, MIB, 4)
    assert read_numbers(tmp_path) == [*range(12), *range(1000, 1003)]
