# SPDX-License-Identifier: Apache-2.0
"""Commits to Iceberg tables without Spark: zombie drivers, conflicts, lost answers, upkeep."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.iceberg import table as table_module
from headrace.pipeline.iceberg.files import OPEN_FILES_MAX, TaskWriter, make_layout
from headrace.pipeline.iceberg.table import IcebergTable, TableChange, TableChanged, last_batch
from headrace.pipeline.iceberg.upkeep import compact, expire_snapshots
from support.duckdb_reader import rows_by_duckdb
from support.iceberg_catalog import TOKEN, RestCatalog
from support.postgres import ROLE, Server, owned_directory, programs

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from headrace.pipeline.config.settings import Pipeline
    from pipeline.conftest import ParsePipeline

OpenTable = Callable[[], IcebergTable]
COLUMNS = pa.schema([("id", pa.int64()), ("text", pa.string())])
MIB = 1 << 20
HEAD = """
[pipeline]
name = "test"
[tables.unknown]
type = "parquet"
path = "never read"
[sinks.lake]
from = "unknown"
type = "iceberg"
catalog = "lake"
table = "sales.orders"
"""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between retries of commits."""
    monkeypatch.setattr(table_module, "PAUSE_S", 0.001)
    monkeypatch.setattr(table_module, "PAUSE_S_MAX", 0.02)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalog]:
    home = tmp_path / "rest"
    home.mkdir()
    with RestCatalog(home).running() as catalog:
        yield catalog


def sql_pipeline(parse_pipeline: ParsePipeline, uri: str) -> Pipeline:
    return parse_pipeline(f"""{HEAD}
        [catalogs.lake]
        type = "sql"
        uri = "{uri}"
        warehouse = "warehouse"
    """)


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    """A PostgreSQL server for catalogs."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    home = owned_directory()
    server = Server(home, "catalog")
    server.copy()
    server.start()
    try:
        yield server
    finally:
        server.end()
        shutil.rmtree(home)


def rest_pipeline(parse_pipeline: ParsePipeline, rest: RestCatalog, token: str = TOKEN) -> Pipeline:
    """Return a pipeline with a REST catalog and its secret in a file."""
    (rest.home / "secrets.toml").write_text(f'token = "{token}"\n')
    return parse_pipeline(f"""{HEAD}
        [catalogs.lake]
        type = "rest"
        uri = "{rest.uri}"
        file = "{rest.home / "secrets.toml"}"
    """)


@pytest.fixture(params=["sqlite", "postgresql", "rest"])
def open_table(parse_pipeline: ParsePipeline, request: pytest.FixtureRequest) -> OpenTable:
    """Return a function that opens the table like a restarted driver, for each kind of catalog."""
    if request.param == "sqlite":
        pipeline = sql_pipeline(parse_pipeline, "sqlite:///catalog.db")
    elif request.param == "postgresql":
        server = request.getfixturevalue("database")
        name = f"lake_{uuid.uuid4().hex}"
        server.execute(f"create database {name} owner {ROLE}")
        place = server.url().replace("postgresql://", "postgresql+psycopg://")
        pipeline = sql_pipeline(parse_pipeline, f"{place.rpartition('/')[0]}/{name}")
    else:
        pipeline = rest_pipeline(parse_pipeline, request.getfixturevalue("rest"))
    return lambda: IcebergTable(pipeline, "lake", "sales.orders")


def create_table(iceberg_table: IcebergTable, partition_by: list[str] | None = None) -> Table:
    return iceberg_table.ensure(COLUMNS, partition_by or [], [], {})


def write_data_files(table: Table, *numbers: int, prefix: str = "x") -> list[DataFile]:
    """Write data files for the table that no snapshot has."""
    rows = pa.RecordBatch.from_pydict(
        {"id": list(numbers), "text": [str(one) for one in numbers]}, schema=COLUMNS
    )
    return list(TaskWriter(make_layout(table, prefix)).write([rows]))


def commit_numbers(iceberg_table: IcebergTable, batch: int, *numbers: int) -> bool:
    table = create_table(iceberg_table)
    return iceberg_table.commit("w", batch, table, TableChange(write_data_files(table, *numbers)))


def read_numbers(iceberg_table: IcebergTable) -> list[int]:
    """Return the numbers in the table; two readers must agree."""
    table = iceberg_table.load_existing()
    ids = sorted(table.scan().to_arrow().column("id").to_pylist())
    assert sorted(row["id"] for row in rows_by_duckdb(table.metadata_location, "id")) == ids
    return ids


def test_a_batch_is_committed_once(open_table: OpenTable) -> None:
    assert commit_numbers(open_table(), 0, 1, 2)
    assert commit_numbers(open_table(), 1, 3)
    assert not commit_numbers(open_table(), 1, 3)
    assert not commit_numbers(open_table(), 0, 1, 2)
    assert last_batch(open_table().load_existing(), "w") == 1
    assert read_numbers(open_table()) == [1, 2, 3]


def test_a_zombie_driver_does_not_add_a_batch_again(open_table: OpenTable) -> None:
    commit_numbers(open_table(), 0, 1)
    zombie = open_table()
    loaded = zombie.load_existing()
    late = write_data_files(loaded, 2, prefix="zombie")
    assert commit_numbers(open_table(), 1, 2)
    assert not zombie.commit("w", 1, loaded, TableChange(late))
    assert read_numbers(open_table()) == [1, 2]


def test_a_commit_that_meets_another_writer_is_done_again(open_table: OpenTable) -> None:
    """A commit is retried after a conflict with another writer."""
    commit_numbers(open_table(), 0, 1)
    iceberg_table = open_table()
    loaded = iceberg_table.load_existing()
    new = write_data_files(loaded, 2)
    open_table().load_existing().append(pa.table({"id": [100]}))  # Another program.
    assert iceberg_table.commit("w", 1, loaded, TableChange(new))
    assert read_numbers(open_table()) == [1, 2, 100]
    stored = iceberg_table.catalog.load_table("sales.orders").properties
    assert "commit.retry.num-retries" not in stored  # Other writers keep their ways.


def test_drivers_of_one_checkpoint_at_once(open_table: OpenTable) -> None:
    """Concurrent drivers of one checkpoint commit each batch once."""
    commit_numbers(open_table(), 0, 0)
    start = threading.Barrier(3, timeout=60)
    done: list[tuple[int, bool]] = []

    def drive() -> None:
        iceberg_table = open_table()
        for batch in range(1, 5):
            loaded = iceberg_table.load_existing()
            new = write_data_files(loaded, batch)
            start.wait()
            done.append((batch, iceberg_table.commit("w", batch, loaded, TableChange(new))))
            start.wait()

    drivers = [threading.Thread(target=drive) for _ in range(3)]
    for thread in drivers:
        thread.start()
    for thread in drivers:
        thread.join()
    assert sorted(batch for batch, is_first in done if is_first) == [1, 2, 3, 4]
    assert len(done) == 12
    assert read_numbers(open_table()) == [0, 1, 2, 3, 4]


def test_a_database_that_is_locked_is_asked_again(parse_pipeline: ParsePipeline) -> None:
    """A commit is retried when SQLite's file stays locked, or when a server disconnects."""
    iceberg_table = IcebergTable(
        sql_pipeline(parse_pipeline, "sqlite:///catalog.db"), "lake", "sales.orders"
    )
    commit_numbers(iceberg_table, 0, 1)
    assert isinstance(iceberg_table.catalog, SqlCatalog)
    locked = iter([True])

    def refuse(*_: object) -> None:
        if next(locked, False):
            raise OperationalError("UPDATE", {}, sqlite3.OperationalError("database is locked"))

    event.listen(iceberg_table.catalog.engine, "commit", refuse)
    table = iceberg_table.load_existing()
    assert iceberg_table.commit("w", 1, table, TableChange(write_data_files(table, 2)))
    assert next(locked, None) is None
    assert read_numbers(iceberg_table) == [1, 2]


def test_a_catalog_in_a_database_keeps_no_connection(parse_pipeline: ParsePipeline) -> None:
    iceberg_table = IcebergTable(
        sql_pipeline(parse_pipeline, "sqlite:///catalog.db"), "lake", "sales.orders"
    )
    assert isinstance(iceberg_table.catalog, SqlCatalog)
    closed: list[object] = []
    event.listen(iceberg_table.catalog.engine, "close", lambda *arguments: closed.append(arguments))
    commit_numbers(iceberg_table, 0, 1)
    assert closed
    assert isinstance(iceberg_table.catalog.engine.pool, NullPool)


def test_the_answer_to_a_commit_is_lost(parse_pipeline: ParsePipeline, rest: RestCatalog) -> None:
    """A commit with a lost answer is recognized and not repeated."""
    iceberg_table = IcebergTable(rest_pipeline(parse_pipeline, rest), "lake", "sales.orders")
    commit_numbers(iceberg_table, 0, 1)
    table = iceberg_table.load_existing()
    rest.lost_answers = 1
    iceberg_table.commit("w", 1, table, TableChange(write_data_files(table, 2)))
    assert rest.lost_answers == 0
    assert read_numbers(iceberg_table) == [1, 2]
    table = iceberg_table.load_existing()
    rest.refuse = True  # A catalog that is out of order.
    with pytest.raises(PipelineError, match=r"sales.orders of catalog 'lake': .* in a row failed"):
        iceberg_table.commit("w", 2, table, TableChange(write_data_files(table, 3)))
    rest.refuse = False
    assert iceberg_table.commit(
        "w", 2, iceberg_table.load_existing(), TableChange(write_data_files(table, 3))
    )
    assert read_numbers(iceberg_table) == [1, 2, 3]


def test_a_table_that_others_changed_meanwhile_has_its_files_written_anew(
    open_table: OpenTable,
) -> None:
    commit_numbers(open_table(), 0, 1)
    iceberg_table = open_table()
    loaded = iceberg_table.load_existing()
    new = write_data_files(loaded, 2)
    with open_table().load_existing().update_spec() as update:
        update.add_identity("id")
    open_table().load_existing().append(pa.table({"id": [100]}))
    with pytest.raises(TableChanged):
        iceberg_table.commit("w", 1, loaded, TableChange(new))
    with pytest.raises(PipelineError, match=r"is partitioned by \['id'\], not by \[\]: change"):
        create_table(iceberg_table)
    loaded = create_table(iceberg_table, ["id"])
    open_table().catalog.drop_table("sales.orders")
    with pytest.raises(PipelineError, match=r"sales.orders of catalog 'lake' was removed while"):
        iceberg_table.commit("w", 1, loaded, TableChange(write_data_files(loaded, 2)))


def test_a_merge_is_not_committed_over_rows_that_it_has_not_seen(open_table: OpenTable) -> None:
    commit_numbers(open_table(), 0, 1)
    iceberg_table = open_table()
    loaded = iceberg_table.load_existing()
    old = [task.file for task in loaded.scan().plan_files()]
    change = TableChange(write_data_files(loaded, 1, 2), old)
    commit_numbers(open_table(), 1, 50)
    with pytest.raises(TableChanged):
        iceberg_table.commit("other", 0, loaded, change, is_merge=True)
    assert read_numbers(open_table()) == [1, 50]
    assert iceberg_table.commit("other", 0, iceberg_table.load_existing(), change, is_merge=True)
    assert read_numbers(open_table()) == [1, 2, 50]


def test_files_that_a_task_has_open_are_bounded(open_table: OpenTable) -> None:
    table = create_table(open_table(), ["id"])
    opened = []

    class Counting(TaskWriter):
        def _open_file(self, values):  # type: ignore[no-untyped-def]
            opened.append(len(self._open_files))
            return super()._open_file(values)

    batches = [
        pa.RecordBatch.from_pydict({"id": list(range(OPEN_FILES_MAX * 2)), "text": ["x"] * 64})
    ] * 2
    new = list(Counting(make_layout(table, "x")).write(batches))
    assert max(opened) == OPEN_FILES_MAX - 1
    open_table().commit("w", 0, table, TableChange(new))
    assert read_numbers(open_table()) == sorted([*range(OPEN_FILES_MAX * 2)] * 2)


def test_small_files_become_one_while_others_write(open_table: OpenTable) -> None:
    for batch in range(6):
        commit_numbers(open_table(), batch, batch)
    iceberg_table = open_table()
    result = compact(iceberg_table, MIB, 4)
    assert (result.files_before, result.files_after) == (6, 1)
    assert read_numbers(open_table()) == list(range(6))
    assert compact(open_table(), MIB, 2).files_before == 0
    assert not commit_numbers(open_table(), 5, 5)
    commit_numbers(open_table(), 6, 6)
    assert read_numbers(open_table()) == list(range(7))


def test_old_snapshots_and_lost_files_go(open_table: OpenTable) -> None:
    """Expiry removes old snapshots and orphaned files."""
    for batch in range(4):
        commit_numbers(open_table(), batch, batch)
    compact(open_table(), MIB, 2)
    iceberg_table = open_table()
    lost = write_data_files(
        iceberg_table.load_existing(), 99
    )  # Of a driver that died before its commit.
    location = Path(iceberg_table.load_existing().location().removeprefix("file://"))
    assert expire_snapshots(iceberg_table, 1) == (0, 0)
    assert len(list(location.glob("data/*.parquet"))) == 6
    hour = (datetime.now(UTC) - timedelta(hours=5)).timestamp()
    for file in location.rglob("*"):
        os.utime(file, (hour, hour))
    assert expire_snapshots(iceberg_table, 1)[1] == 1  # Young snapshots have the files of before.
    assert not Path(lost[0].file_path.removeprefix("file://")).exists()
    snapshots, deleted_files = expire_snapshots(iceberg_table, 0, dry_run=True)
    assert (snapshots, deleted_files > 4) == (4, True)
    assert len(list(location.glob("data/*.parquet"))) == 5
    assert expire_snapshots(iceberg_table, 0)[0] == 4
    assert len(list(location.glob("data/*.parquet"))) == 1
    assert read_numbers(open_table()) == [0, 1, 2, 3]
    # The table has the number of the batch, although its snapshot has expired.
    assert not commit_numbers(open_table(), 3, 3)
    assert commit_numbers(open_table(), 4, 4)
    assert read_numbers(open_table()) == [0, 1, 2, 3, 4]


def test_secrets_of_a_catalog_are_in_no_error(
    parse_pipeline: ParsePipeline, rest: RestCatalog
) -> None:
    with pytest.raises(PipelineError, match="catalog 'lake': ") as caught:
        commit_numbers(
            IcebergTable(
                rest_pipeline(parse_pipeline, rest, "wrong-but-secret"), "lake", "sales.orders"
            ),
            0,
            1,
        )
    assert "wrong-but-secret" not in str(caught.value)
    pipeline = sql_pipeline(parse_pipeline, "postgresql+psycopg://me:p4ssw0rd@127.0.0.1:1/lake")
    with pytest.raises(PipelineError, match="catalog 'lake': ") as caught:
        commit_numbers(IcebergTable(pipeline, "lake", "sales.orders"), 0, 1)
    assert "p4ssw0rd" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_file_of_secrets_that_cannot_be_read(
    parse_pipeline: ParsePipeline, rest: RestCatalog
) -> None:
    pipeline = rest_pipeline(parse_pipeline, rest)
    (rest.home / "secrets.toml").write_text("token = no quotes")
    with pytest.raises(PipelineError, match=r"catalog 'lake': .*secrets.toml is not valid TOML"):
        IcebergTable(pipeline, "lake", "sales.orders")
    (rest.home / "secrets.toml").unlink()
    with pytest.raises(PipelineError, match="No such file"):
        IcebergTable(pipeline, "lake", "sales.orders")
