# SPDX-License-Identifier: Apache-2.0
"""Where an archive has each offset: holes and repeated offsets are found, with their file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.columns.archive.index import Archive
from headrace.columns.archive.split import GAPS_MAX, find_runs, split_ranges
from headrace.columns.errors import ArchiveError
from headrace.columns.read import archived
from headrace.columns.schema.offsets import Range

NAMES = ("body", "offset", "routing_key")
ARRIVED = datetime(2026, 1, 31, 12, tzinfo=UTC)


def write(path: Path, *rows: tuple[str, int]) -> None:
    """Write a file of an archive with these streams and offsets, one record per second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "stream": pa.array([stream for stream, _ in rows], pa.string()),
            "offset": pa.array([offset for _, offset in rows], pa.int64()),
            "body": pa.array([f"{offset}".encode() for _, offset in rows], pa.binary()),
            "exchange": pa.array([""] * len(rows), pa.string()),
            "routing_key": pa.array([stream for stream, _ in rows], pa.string()),
            "content_header": pa.array([bytes(14)] * len(rows), pa.binary()),
            "timestamp": pa.array(
                [ARRIVED + timedelta(seconds=offset) for _, offset in rows],
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )
    pq.write_table(table, path, row_group_size=7)


def orders(*offsets: int) -> list[tuple[str, int]]:
    """Return rows of the stream `orders` with these offsets."""
    return [("orders", offset) for offset in offsets]


def open_archive(home: Path) -> Archive:
    """Return the refreshed index of an archive."""
    archive = Archive(str(home))
    archive.refresh()
    return archive


def offsets_of(home: Path, first: int, last: int) -> list[int]:
    """Read a range, check the bodies, and return the offsets."""
    actual: list[int] = []
    for batch in archived.read_archived_range(str(home), Range("orders", first, last), NAMES):
        actual += batch.column("offset").to_pylist()
        assert [int(body) for body in batch.column("body").to_pylist()] == actual[-batch.num_rows :]
    return actual


def test_files_of_any_order_give_each_offset_once(tmp_path: Path) -> None:
    write(tmp_path / "date=2026-01-31" / "b.parquet", *orders(*range(10, 30)))
    write(tmp_path / "date=2026-01-30" / "c.parquet", *orders(*range(10)))
    write(tmp_path / "_headrace" / "staging" / "x.parquet", *orders(*range(30, 40)))
    coverage = open_archive(tmp_path).coverage("orders", 3, 25)
    assert [(run.first, run.last) for run in coverage.runs] == [(3, 10), (10, 25)]
    assert not coverage.holes
    assert coverage.first_repeat is None
    assert offsets_of(tmp_path, 3, 25) == list(range(3, 25))


def test_a_file_of_several_streams_in_no_order(tmp_path: Path) -> None:
    rows = [("other", 3), *orders(5, 1, 4), ("other", 2), *orders(0, 3, 2)]
    write(tmp_path / "a.parquet", *rows)
    archive = open_archive(tmp_path)
    assert (archive.first("other"), archive.end("other")) == (2, 4)
    assert offsets_of(tmp_path, 0, 6) == [0, 1, 2, 3, 4, 5]
    assert offsets_of(tmp_path, 2, 5) == [2, 3, 4]


def test_tasks_that_wrote_interleaved_ranges(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", *orders(*range(10), *range(20, 30)))
    write(tmp_path / "b.parquet", *orders(*range(10, 20), *range(30, 40)))
    assert offsets_of(tmp_path, 0, 40) == list(range(40))


def test_a_hole_is_an_error_with_archive_and_offsets(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", *orders(*range(5), *range(8, 10)))
    with pytest.raises(ArchiveError) as caught:
        split_ranges(open_archive(tmp_path), {"orders": 20}, [Range("orders", 0, 10)], fail=True)
    assert f"archive {tmp_path} has no records of stream 'orders' from offset 5 to 7" in str(
        caught.value
    )
    split = split_ranges(
        open_archive(tmp_path), {"orders": 20}, [Range("orders", 0, 12)], fail=False
    )
    assert split.gaps == {"orders": [[5, 8], [10, 12]]}
    assert split.lost_counts() == {"orders": 5}
    assert split.cut([Range("orders", 0, 12)]) == [Range("orders", 0, 5), Range("orders", 8, 10)]


def test_a_repeated_offset_is_an_error_with_both_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", *orders(*range(10)))
    write(tmp_path / "b.parquet", *orders(*range(7, 20)))
    with pytest.raises(ArchiveError, match=r"offset 7 of stream 'orders' twice, in .*a.parq.*b.pa"):
        split_ranges(open_archive(tmp_path), {"orders": 20}, [Range("orders", 0, 20)], fail=True)
    coverage = open_archive(tmp_path).coverage("orders", 0, 20)
    assert coverage.repeated_count == 3
    assert offsets_of(tmp_path, 0, 20) == list(range(20))


def test_an_offset_twice_in_one_file(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", *orders(0, 1, 1, 2, 3))
    assert open_archive(tmp_path).coverage("orders", 0, 4).first_repeat is not None
    assert offsets_of(tmp_path, 0, 4) == [0, 1, 2, 3]


def test_a_footer_that_hides_a_hole_is_found_by_the_task(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", *orders(0, 1, 1, 3))
    with pytest.raises(ArchiveError, match=r"a\.parquet has no offset 2 of stream 'orders'"):
        offsets_of(tmp_path, 0, 4)


def test_more_gaps_than_a_batch_may_have_end_it(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", *orders(*range(1, 1000, 2)))
    split = split_ranges(
        open_archive(tmp_path), {"orders": 2000}, [Range("orders", 0, 999)], fail=False
    )
    assert len(split.gaps["orders"]) == GAPS_MAX
    assert split.archived["orders"] == 2 * GAPS_MAX
    assert split.cut_short == {"orders"}


def test_what_the_broker_still_has_is_not_asked_of_the_archive(tmp_path: Path) -> None:
    split = split_ranges(open_archive(tmp_path), {"orders": 5}, [Range("orders", 5, 9)], fail=True)
    assert split.cut([Range("orders", 5, 9)]) == [Range("orders", 5, 9)]
    assert not split.archived


def test_compaction_between_plan_and_read(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", *orders(*range(10)))
    write(tmp_path / "b.parquet", *orders(*range(10, 20)))
    runs = find_runs(open_archive(tmp_path), Range("orders", 0, 20))
    reading = archived.read_archived_range(str(tmp_path), Range("orders", 0, 20), NAMES, runs)
    actual = next(reading).column("offset").to_pylist()
    write(tmp_path / "c.parquet", *orders(*range(20)))
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "b.parquet").unlink()
    for batch in reading:
        actual += batch.column("offset").to_pylist()
    assert actual == list(range(20))


def test_a_file_that_is_gone_for_good(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", *orders(*range(10)))
    write(tmp_path / "b.parquet", *orders(*range(10, 20)))
    runs = find_runs(open_archive(tmp_path), Range("orders", 0, 20))
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(ArchiveError, match="no records of stream 'orders' from offset 10 to 19"):
        list(archived.read_archived_range(str(tmp_path), Range("orders", 0, 20), NAMES, runs))


def test_the_first_offset_since_a_moment(tmp_path: Path) -> None:
    for index in range(10):
        write(tmp_path / f"{index}.parquet", *orders(*range(10 * index, 10 * index + 10)))
    archive = open_archive(tmp_path)
    for offset in (0, 9, 10, 55, 99):
        assert archive.offset_at("orders", ARRIVED + timedelta(seconds=offset)) == offset
    assert archive.offset_at("orders", ARRIVED + timedelta(seconds=98.5)) == 99
    assert archive.offset_at("orders", ARRIVED + timedelta(seconds=100)) is None
    assert archive.offset_at("other", ARRIVED) is None


def test_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"there is no archive at .*/none"):
        Archive(str(tmp_path / "none")).refresh()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ArchiveError, match=r"a\.parquet has no column stream, offset"):
        Archive(str(tmp_path)).refresh()
    (tmp_path / "a.parquet").write_bytes(b"PAR1 is not enough")
    with pytest.raises(ArchiveError, match=r"a\.parquet cannot be read"):
        Archive(str(tmp_path)).refresh()
