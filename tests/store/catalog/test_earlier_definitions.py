# SPDX-License-Identifier: Apache-2.0
"""Definitions that version 2 kept in SQLite are taken over by the journals, once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from headrace.client import Message, blocking
from headrace.server.config.settings import Settings
from headrace.server.data.storage import Storage
from headrace.store.backup.dry_run import examine
from headrace.store.catalog.earlier_definitions import EarlierDefinitions
from headrace.testing.broker import BrokerFailed, LocalBroker
from headrace.wire.table import encode_table

if TYPE_CHECKING:
    from pathlib import Path

TABLES = """
CREATE TABLE exchanges (vhost TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL,
    auto_delete INTEGER NOT NULL, internal INTEGER NOT NULL, arguments BLOB NOT NULL,
    PRIMARY KEY (vhost, name)) WITHOUT ROWID;
CREATE TABLE queues (id INTEGER PRIMARY KEY AUTOINCREMENT, vhost TEXT NOT NULL, name TEXT NOT NULL,
    auto_delete INTEGER NOT NULL, arguments BLOB NOT NULL, user TEXT NOT NULL DEFAULT '',
    UNIQUE (vhost, name));
CREATE TABLE bindings (vhost TEXT NOT NULL, source TEXT NOT NULL, kind TEXT NOT NULL,
    destination TEXT NOT NULL, routing_key TEXT NOT NULL, arguments BLOB NOT NULL,
    PRIMARY KEY (vhost, source, kind, destination, routing_key, arguments)) WITHOUT ROWID;
"""
NONE = encode_table({})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory of version 2, with a write-ahead log, and messages in a queue."""
    with LocalBroker(tmp_path) as broker, blocking.connect(broker.url) as connection:
        with connection.channel() as channel:
            channel.declare_queue("q")
            channel.publish(Message(b"kept", persistent=True), "q")
        queue_id = broker._broker.vhosts["/"].queues["q"].id
    with closing(sqlite3.connect(tmp_path / "definitions.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(TABLES)
        db.execute("INSERT INTO exchanges VALUES ('/', 'x', 'topic', 0, 0, ?)", (NONE,))
        arguments = encode_table({"x-max-length": 7})
        db.execute("INSERT INTO queues VALUES (?, '/', 'q', 0, ?, 'ada')", (queue_id, arguments))
        db.execute("INSERT INTO queues VALUES (40, '/', 'other', 0, ?, '')", (NONE,))
        db.execute("INSERT INTO queues VALUES (50, '/', 'gone', 0, ?, '')", (NONE,))
        db.execute("DELETE FROM queues WHERE id = 50")
        db.execute("INSERT INTO bindings VALUES ('/', 'x', 'queue', 'q', 'a.*', ?)", (NONE,))
        db.execute("PRAGMA user_version = 2")
    return tmp_path


def check(data: Path) -> None:
    """All is there, and works."""
    with LocalBroker(data) as broker, blocking.connect(broker.url) as connection:
        vhost = broker._broker.vhosts["/"]
        assert vhost.queues["q"].arguments == {"x-max-length": 7}
        assert vhost.declared_by[vhost.queues["q"]] == "ada"
        assert vhost.queues["other"].id == 40
        with connection.channel() as channel:
            channel.publish(Message(b"routed", persistent=True), "a.b", exchange="x")
            for wanted in (b"kept", b"routed"):
                delivery = channel.get("q")
                assert delivery is not None
                assert delivery.body == wanted
            channel.declare_queue("fresh")
            assert vhost.queues["fresh"].id > 50
            channel.delete_queue("fresh")


def test_they_are_taken_over_once(data: Path) -> None:
    assert examine(data).ownerless == 0
    check(data)
    with closing(sqlite3.connect(data / "definitions.db")) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        assert not tables & {"exchanges", "queues", "bindings"}
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert (data / "schema").read_text().strip() == "2"
    check(data)


def test_a_start_that_dies_in_between_takes_them_over_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise OSError("as if killed")

    for step in (EarlierDefinitions.delete, EarlierDefinitions.finish):
        with monkeypatch.context() as patch:
            patch.setattr(EarlierDefinitions, step.__name__, dies)
            with pytest.raises(BrokerFailed):
                LocalBroker(data).start()
    check(data)


def test_a_file_of_version_1_does_not_say_who_declared(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "definitions.db", isolation_level=None)) as db:
        db.executescript(TABLES.replace(", user TEXT NOT NULL DEFAULT ''", ""))
        db.execute("INSERT INTO queues VALUES (1, '/', 'q', 0, ?)", (NONE,))
        db.execute("PRAGMA user_version = 1")
    earlier = EarlierDefinitions(tmp_path)
    saved = earlier.load("/")
    assert saved is not None
    assert [(queue.id, queue.user) for queue in saved.queues] == [(1, "")]
    earlier.close()


def test_a_directory_where_no_broker_runs_keeps_them_until_one_does(data: Path) -> None:
    storage = Storage(Settings(data=data), None)  # type: ignore[arg-type]
    storage.close()
    check(data)
