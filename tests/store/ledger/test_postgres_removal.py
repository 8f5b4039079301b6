# SPDX-License-Identifier: Apache-2.0
"""Ledgers of virtual hosts that the catalog of a cluster lacks are removed, and no others."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator

import pytest

from headrace.server.cluster.removals import read_ledger_names
from headrace.store.catalog.replica import Value, pack
from headrace.store.catalog_port import NONE, CatalogChangedError
from headrace.store.ledger.port import Fenced
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_catalog import PART_ROWS, LedgerRemoval, PostgresCatalog
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Address
from support.postgres import Servers, servers
from support.timeouts import PATIENCE_S

COUNTS = """select (select count(*) from headrace.log), (select count(*) from headrace.segment),
    (select count(*) from headrace.object), (select count(*) from headrace.object_part),
    (select count(*) from pg_class where relname like 'entries%' and relkind = 'r')"""


@pytest.fixture
def running() -> Iterator[Servers]:
    with servers(linked=False) as started:
        yield started


@pytest.fixture
def cluster(running: Servers) -> Cluster:
    made = Cluster(Address(running.primary.url()), answer_s=PATIENCE_S)
    made.prepare()
    return made


def catalog(vhosts: dict[str, int]) -> bytes:
    """Return a value of the catalog."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute("CREATE TABLE vhosts (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT)")
        db.executemany("INSERT INTO vhosts (name, id) VALUES (?, ?)", vhosts.items())
        return pack(Value("i" * 36, bytes(32), db.serialize()))


def filled(cluster: Cluster, name: str) -> PostgresLedger:
    """Return a ledger of several segments that has entries and objects."""
    ledger = PostgresLedger(cluster, name, "a")
    ledger.segment_bytes = 1
    ledger.open()
    for number in range(1, 5):
        ledger.append(number, [b"entry"])
    with contextlib.closing(ledger.objects()) as objects:
        for number in range(3):
            objects.put("file", number, b"piece")
        objects.complete("file", 15)
    return ledger


def test_a_ledger_that_the_catalog_lacks_is_removed(cluster: Cluster, running: Servers) -> None:
    with (
        contextlib.closing(PostgresCatalog(cluster)) as engine,
        contextlib.closing(LedgerRemoval(cluster, read_ledger_names)) as removal,
        contextlib.closing(filled(cluster, "1 /")) as kept,
        contextlib.closing(filled(cluster, "2 /x")) as gone,
        contextlib.closing(filled(cluster, "3 /x")),
    ):
        names = ["1 /", "2 /x", "3 /x", "4 /y"]
        assert removal.remove(names, threading.Event()) == []  # There is no catalog yet.
        engine.store(NONE, catalog({"/": 1, "/x": 3}))  # One of the same name was made again.
        steps: list[str] = []
        step = removal.step

        def counted(name: str, version: str) -> bool:
            steps.append(name)
            return step(name, version)

        removal.step = counted  # type: ignore[method-assign]
        assert removal.remove(names, threading.Event()) == ["2 /x", "4 /y"]
        assert steps.count("2 /x") > 4  # A segment in each, and the objects.
        assert running.primary.execute(COUNTS) == [(2, 8, 2, 6, 8)]
        kept.append(5, [b"entry"])
        with pytest.raises(Fenced):
            gone.trim(2)


def test_each_step_is_bounded_and_shuts_the_owner_out(cluster: Cluster, running: Servers) -> None:
    with (
        contextlib.closing(PostgresCatalog(cluster)) as engine,
        contextlib.closing(LedgerRemoval(cluster, read_ledger_names)) as removal,
        contextlib.closing(filled(cluster, "2 /x")) as gone,
    ):
        running.primary.execute(
            "insert into headrace.object_part select log, 'big', n, '' from headrace.segment, "
            f"generate_series(1, {PART_ROWS}) as n where segment = 1"
        )
        version = engine.store(NONE, catalog({"/": 1}))
        before = running.primary.execute(COUNTS)[0]
        assert not removal.step("2 /x", version)
        after = running.primary.execute(COUNTS)[0]
        assert (before[1], after[1]) == (4, 3)
        with pytest.raises(Fenced):
            gone.append(5, [b"entry"])
        for _ in range(3):
            assert not removal.step("2 /x", version)
        assert not removal.step("2 /x", version)
        assert running.primary.execute(COUNTS) == [(1, 0, 0, 3, 0)]
        changed = engine.store(version, catalog({"/": 1, "/y": 3}))
        with pytest.raises(CatalogChangedError):
            removal.step("2 /x", version)
        stopped = threading.Event()
        stopped.set()
        assert removal.remove(["2 /x"], stopped) == []
        assert removal.step("2 /x", changed)
        assert running.primary.execute(COUNTS) == [(0, 0, 0, 0, 0)]
