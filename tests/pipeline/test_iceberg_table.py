# SPDX-License-Identifier: Apache-2.0
"""Commits to Iceberg tables without Spark: zombies, conflicts, lost answers, and upkeep."""

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
from headrace.pipeline.iceberg.files import WRITERS_MAX, Writing, layout_of
from headrace.pipeline.iceberg.table import Change, Changed, IcebergTable, last_batch
from headrace.pipeline.iceberg.upkeep import compact, expire
from support.duckdb_reader import rows_by_duckdb
from support.iceberg_catalog import TOKEN, RestCatalog
from support.postgres import ROLE, Server, owned_directory, programs

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from headrace.pipeline.config.settings import Pipeline
    from pipeline.conftest import Make

Open = Callable[[], IcebergTable]
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
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits that failed are tried again without much of a pause."""
    monkeypatch.setattr(table_module, "PAUSE_S", 0.001)
    monkeypatch.setattr(table_module, "PAUSE_S_MAX", 0.02)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalog]:
    home = tmp_path / "rest"
    home.mkdir()
    with RestCatalog(home).running() as catalog:
        yield catalog


def of_sql(make: Make, uri: str) -> Pipeline:
    return make(f"""{HEAD}
        [catalogs.lake]
        type = "sql"
        uri = "{uri}"
        warehouse = "warehouse"
    """)


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    """A server of PostgreSQL."""
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


def of_rest(make: Make, rest: RestCatalog, token: str = TOKEN) -> Pipeline:
    """A pipeline whose catalog has its secret in a file."""
    (rest.home / "secrets.toml").write_text(f'token = "{token}"\n')
    return make(f"""{HEAD}
        [catalogs.lake]
        type = "rest"
        uri = "{rest.uri}"
        file = "{rest.home / "secrets.toml"}"
    """)


@pytest.fixture(params=["sqlite", "postgresql", "rest"])
def driver(make: Make, request: pytest.FixtureRequest) -> Open:
    """The table as a driver that has just started has it, in a catalog of each kind."""
    if request.param == "sqlite":
        pipeline = of_sql(make, "sqlite:///catalog.db")
    elif request.param == "postgresql":
        server = request.getfixturevalue("database")
        name = f"lake_{uuid.uuid4().hex}"
        server.execute(f"create database {name} owner {ROLE}")
        place = server.url().replace("postgresql://", "postgresql+psycopg://")
        pipeline = of_sql(make, f"{place.rpartition('/')[0]}/{name}")
    else:
        pipeline = of_rest(make, request.getfixturevalue("rest"))
    return lambda: IcebergTable(pipeline, "lake", "sales.orders")


def made(one: IcebergTable, partition_by: list[str] | None = None) -> Table:
    return one.ensure(COLUMNS, partition_by or [], [], {})


def files(table: Table, *numbers: int, prefix: str = "x") -> list[DataFile]:
    """Data files of the table's layout that are not in it yet."""
    rows = pa.RecordBatch.from_pydict(
        {"id": list(numbers), "text": [str(one) for one in numbers]}, schema=COLUMNS
    )
    return list(Writing(layout_of(table, prefix)).write([rows]))


def put(one: IcebergTable, batch: int, *numbers: int) -> bool:
    table = made(one)
    return one.commit("w", batch, table, Change(files(table, *numbers)))


def numbers(one: IcebergTable) -> list[int]:
    """The numbers in the table by two readers, which agree."""
    table = one.load_existing()
    found = sorted(table.scan().to_arrow().column("id").to_pylist())
    assert sorted(row["id"] for row in rows_by_duckdb(table.metadata_location, "id")) == found
    return found


def test_a_batch_is_committed_once(driver: Open) -> None:
    assert put(driver(), 0, 1, 2)
    assert put(driver(), 1, 3)
    assert not put(driver(), 1, 3)
    assert not put(driver(), 0, 1, 2)
    assert last_batch(driver().load_existing(), "w") == 1
    assert numbers(driver()) == [1, 2, 3]


def test_a_zombie_driver_does_not_add_a_batch_again(driver: Open) -> None:
    put(driver(), 0, 1)
    zombie = driver()
    seen = zombie.load_existing()
    late = files(seen, 2, prefix="zombie")
    assert put(driver(), 1, 2)
    assert not zombie.commit("w", 1, seen, Change(late))
    assert numbers(driver()) == [1, 2]


def test_a_commit_that_meets_another_writer_is_done_again(driver: Open) -> None:
    put(driver(), 0, 1)
    ours = driver()
    seen = ours.load_existing()
    new = files(seen, 2)
    driver().load_existing().append(pa.table({"id": [100]}))  # Another program.
    assert ours.commit("w", 1, seen, Change(new))
    assert numbers(driver()) == [1, 2, 100]
    stored = ours.catalog.load_table("sales.orders").properties
    assert "commit.retry.num-retries" not in stored  # Other writers keep their ways.


def test_drivers_of_one_checkpoint_at_once(driver: Open) -> None:
    put(driver(), 0, 0)
    start = threading.Barrier(3, timeout=60)
    done: list[tuple[int, bool]] = []

    def drive() -> None:
        ours = driver()
        for batch in range(1, 5):
            seen = ours.load_existing()
            new = files(seen, batch)
            start.wait()
            done.append((batch, ours.commit("w", batch, seen, Change(new))))
            start.wait()

    drivers = [threading.Thread(target=drive) for _ in range(3)]
    for one in drivers:
        one.start()
    for one in drivers:
        one.join()
    assert sorted(batch for batch, is_first in done if is_first) == [1, 2, 3, 4]
    assert len(done) == 12
    assert numbers(driver()) == [0, 1, 2, 3, 4]


def test_a_database_that_is_locked_is_asked_again(make: Make) -> None:
    """SQLite gives up where others have the file locked for long; a server may go away."""
    ours = IcebergTable(of_sql(make, "sqlite:///catalog.db"), "lake", "sales.orders")
    put(ours, 0, 1)
    assert isinstance(ours.catalog, SqlCatalog)
    locked = iter([True])

    def refuse(*_: object) -> None:
        if next(locked, False):
            raise OperationalError("UPDATE", {}, sqlite3.OperationalError("database is locked"))

    event.listen(ours.catalog.engine, "commit", refuse)
    table = ours.load_existing()
    assert ours.commit("w", 1, table, Change(files(table, 2)))
    assert next(locked, None) is None
    assert numbers(ours) == [1, 2]


def test_a_catalog_in_a_database_keeps_no_connection(make: Make) -> None:
    ours = IcebergTable(of_sql(make, "sqlite:///catalog.db"), "lake", "sales.orders")
    assert isinstance(ours.catalog, SqlCatalog)
    ended: list[object] = []
    event.listen(ours.catalog.engine, "close", lambda *given: ended.append(given))
    put(ours, 0, 1)
    assert ended
    assert isinstance(ours.catalog.engine.pool, NullPool)


def test_the_answer_to_a_commit_is_lost(make: Make, rest: RestCatalog) -> None:
    ours = IcebergTable(of_rest(make, rest), "lake", "sales.orders")
    put(ours, 0, 1)
    table = ours.load_existing()
    rest.lost_answers = 1
    ours.commit("w", 1, table, Change(files(table, 2)))
    assert rest.lost_answers == 0
    assert numbers(ours) == [1, 2]
    table = ours.load_existing()
    rest.refuse = True  # A catalog that is out of order.
    with pytest.raises(PipelineError, match=r"sales.orders of catalog 'lake': .* in a row failed"):
        ours.commit("w", 2, table, Change(files(table, 3)))
    rest.refuse = False
    assert ours.commit("w", 2, ours.load_existing(), Change(files(table, 3)))
    assert numbers(ours) == [1, 2, 3]


def test_a_table_that_others_changed_meanwhile_has_its_files_written_anew(driver: Open) -> None:
    put(driver(), 0, 1)
    ours = driver()
    seen = ours.load_existing()
    new = files(seen, 2)
    with driver().load_existing().update_spec() as update:
        update.add_identity("id")
    driver().load_existing().append(pa.table({"id": [100]}))
    with pytest.raises(Changed):
        ours.commit("w", 1, seen, Change(new))
    with pytest.raises(PipelineError, match=r"is partitioned by \['id'\], not by \[\]: change"):
        made(ours)
    seen = made(ours, ["id"])
    driver().catalog.drop_table("sales.orders")
    with pytest.raises(PipelineError, match=r"sales.orders of catalog 'lake' was removed while"):
        ours.commit("w", 1, seen, Change(files(seen, 2)))


def test_a_merge_is_not_committed_over_rows_that_it_has_not_seen(driver: Open) -> None:
    put(driver(), 0, 1)
    ours = driver()
    seen = ours.load_existing()
    old = [task.file for task in seen.scan().plan_files()]
    change = Change(files(seen, 1, 2), old)
    put(driver(), 1, 50)
    with pytest.raises(Changed):
        ours.commit("other", 0, seen, change, is_merge=True)
    assert numbers(driver()) == [1, 50]
    assert ours.commit("other", 0, ours.load_existing(), change, is_merge=True)
    assert numbers(driver()) == [1, 2, 50]


def test_files_that_a_task_has_open_are_bounded(driver: Open) -> None:
    table = made(driver(), ["id"])
    opened = []

    class Counting(Writing):
        def _begin(self, values):  # type: ignore[no-untyped-def]
            opened.append(len(self._open))
            return super()._begin(values)

    batches = [
        pa.RecordBatch.from_pydict({"id": list(range(WRITERS_MAX * 2)), "text": ["x"] * 64})
    ] * 2
    new = list(Counting(layout_of(table, "x")).write(batches))
    assert max(opened) == WRITERS_MAX - 1
    driver().commit("w", 0, table, Change(new))
    assert numbers(driver()) == sorted([*range(WRITERS_MAX * 2)] * 2)


def test_small_files_become_one_while_others_write(driver: Open) -> None:
    for batch in range(6):
        put(driver(), batch, batch)
    ours = driver()
    done = compact(ours, MIB, 4)
    assert (done.files_before, done.files_after) == (6, 1)
    assert numbers(driver()) == list(range(6))
    assert compact(driver(), MIB, 2).files_before == 0
    assert not put(driver(), 5, 5)
    put(driver(), 6, 6)
    assert numbers(driver()) == list(range(7))


def test_old_snapshots_and_lost_files_go(driver: Open) -> None:
    for batch in range(4):
        put(driver(), batch, batch)
    compact(driver(), MIB, 2)
    ours = driver()
    lost = files(ours.load_existing(), 99)  # Of a driver that died before its commit.
    place = Path(ours.load_existing().location().removeprefix("file://"))
    assert expire(ours, 1) == (0, 0)
    assert len(list(place.glob("data/*.parquet"))) == 6
    hour = (datetime.now(UTC) - timedelta(hours=5)).timestamp()
    for file in place.rglob("*"):
        os.utime(file, (hour, hour))
    assert expire(ours, 1)[1] == 1  # Young snapshots have the files of before.
    assert not Path(lost[0].file_path.removeprefix("file://")).exists()
    snapshots, gone = expire(ours, 0, dry_run=True)
    assert (snapshots, gone > 4) == (4, True)
    assert len(list(place.glob("data/*.parquet"))) == 5
    assert expire(ours, 0)[0] == 4
    assert len(list(place.glob("data/*.parquet"))) == 1
    assert numbers(driver()) == [0, 1, 2, 3]
    assert not put(driver(), 3, 3)  # The batch is known although its snapshot is gone.
    assert put(driver(), 4, 4)
    assert numbers(driver()) == [0, 1, 2, 3, 4]


def test_secrets_of_a_catalog_are_in_no_error(make: Make, rest: RestCatalog) -> None:
    with pytest.raises(PipelineError, match="catalog 'lake': ") as caught:
        put(IcebergTable(of_rest(make, rest, "wrong-but-secret"), "lake", "sales.orders"), 0, 1)
    assert "wrong-but-secret" not in str(caught.value)
    pipeline = of_sql(make, "postgresql+psycopg://me:p4ssw0rd@127.0.0.1:1/lake")
    with pytest.raises(PipelineError, match="catalog 'lake': ") as caught:
        put(IcebergTable(pipeline, "lake", "sales.orders"), 0, 1)
    assert "p4ssw0rd" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_file_of_secrets_that_cannot_be_read(make: Make, rest: RestCatalog) -> None:
    pipeline = of_rest(make, rest)
    (rest.home / "secrets.toml").write_text("token = no quotes")
    with pytest.raises(PipelineError, match=r"catalog 'lake': .*secrets.toml is not valid TOML"):
        IcebergTable(pipeline, "lake", "sales.orders")
    (rest.home / "secrets.toml").unlink()
    with pytest.raises(PipelineError, match="No such file"):
        IcebergTable(pipeline, "lake", "sales.orders")
