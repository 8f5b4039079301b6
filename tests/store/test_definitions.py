# SPDX-License-Identifier: Apache-2.0
"""Definitions survive, ids are never reused, and a file that is not ours is refused."""

import sqlite3
from pathlib import Path

import pytest

from headrace.model.errors import ResourceError
from headrace.model.ports import Store
from headrace.model.tally import Tally
from headrace.model.vhost import VirtualHost
from headrace.store.database import FILE_NAME
from headrace.store.definitions import DefinitionsError, SqliteDefinitions
from headrace.store.users import UserDirectory


def start(definitions: SqliteDefinitions, name: str = "/") -> VirtualHost:
    vhost = VirtualHost(name, store=Store(), tally=Tally(), definitions=definitions)
    vhost.load()
    return vhost


@pytest.mark.rule("0-9-1/s055")
@pytest.mark.rule("0-9-1/s045")
@pytest.mark.rule("0-9-1/s056")
@pytest.mark.rule("0-9-1/queue.bind#03")
@pytest.mark.rule("0-9-1/queue.bind#04")
def test_durable_things_come_back_and_others_do_not(tmp_path: Path) -> None:
    definitions = SqliteDefinitions(tmp_path)
    vhost = start(definitions)
    arguments = {"x-max-length": 5, "x-dead-letter-exchange": "dlx"}
    kept = vhost.declare_queue("kept", durable=True, arguments=arguments)
    vhost.declare_queue("passing")
    vhost.declare_queue("mine", durable=True, exclusive=True, owner=object())
    vhost.declare_exchange("x", "topic", durable=True, arguments={"alternate-exchange": "y"})
    vhost.declare_exchange("y", "headers", durable=True, internal=True, auto_delete=True)
    vhost.declare_exchange("passing", "fanout")
    vhost.bind("x", ("queue", "kept"), "a.#")
    vhost.bind("x", ("queue", "passing"), "a.#")
    vhost.bind("passing", ("queue", "kept"))
    vhost.bind("amq.fanout", ("exchange", "x"))
    vhost.bind("y", ("queue", "kept"), "", {"x-match": "any", "n": 1, "m": b"\xff"})
    start(definitions, "other").declare_queue("elsewhere", durable=True)
    definitions.close()

    definitions = SqliteDefinitions(tmp_path)
    again = start(definitions)
    assert list(again.queues) == ["kept"]
    queue = again.queues["kept"]
    assert (queue.id, queue.arguments, queue.max_length) == (kept.id, arguments, 5)
    assert again.declare_queue("kept", durable=True, arguments=arguments) is queue
    assert set(again.exchanges) - set(start(definitions, "empty").exchanges) == {"x", "y"}
    y = again.exchanges["y"]
    assert (y.type, y.internal, y.auto_delete) == ("headers", True, True)
    assert again.exchanges["x"].alternate == "y"
    assert again.route("amq.fanout", "a.b", dict).queues == (queue,)
    assert again.route("y", "", lambda: {"m": b"\xff"}).queues == (queue,)
    assert list(start(definitions, "other").queues) == ["elsewhere"]
    definitions.close()


def test_what_was_deleted_stays_deleted(tmp_path: Path) -> None:
    definitions = SqliteDefinitions(tmp_path)
    vhost = start(definitions)
    vhost.declare_queue("q", durable=True)
    vhost.declare_exchange("x", durable=True)
    vhost.bind("x", ("queue", "q"), "k", {"b": 2, "a": 1})
    vhost.bind("amq.direct", ("queue", "q"), "k")
    vhost.unbind("amq.direct", ("queue", "q"), "k")
    definitions.commit()
    vhost.unbind("x", ("queue", "q"), "k", {"a": 1, "b": 2})  # In another order.
    definitions.commit()
    assert definitions.load("/").bindings == []
    vhost.delete_exchange("x")
    vhost.delete_queue("q")
    definitions.close()
    saved = SqliteDefinitions(tmp_path).load("/")
    assert saved == ([], [], [])


def test_ids_of_queues_are_never_given_again(tmp_path: Path) -> None:
    definitions = SqliteDefinitions(tmp_path)
    vhost = start(definitions)
    first = vhost.declare_queue("q", durable=True).id
    vhost.delete_queue("q")
    definitions.close()
    vhost = start(SqliteDefinitions(tmp_path))
    assert vhost.declare_queue("q", durable=True).id > first > 0


def test_what_was_not_committed_is_not_there(tmp_path: Path) -> None:
    definitions = SqliteDefinitions(tmp_path)
    start(definitions).declare_queue("q", durable=True)
    assert definitions.dirty
    assert SqliteDefinitions(tmp_path).load("/").queues == []
    definitions.commit()
    assert not definitions.dirty
    assert len(SqliteDefinitions(tmp_path).load("/").queues) == 1


def test_a_virtual_host_goes_as_a_whole(tmp_path: Path) -> None:
    definitions = SqliteDefinitions(tmp_path)
    for name in ("a", "b"):
        vhost = start(definitions, name)
        vhost.declare_queue("q", durable=True)
        vhost.bind("amq.direct", ("queue", "q"))
    definitions.delete_vhost("a")
    definitions.commit()
    assert definitions.load("a") == ([], [], [])
    assert len(definitions.load("b").bindings) == 1


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / FILE_NAME)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(DefinitionsError, match="has schema 99"):
        SqliteDefinitions(tmp_path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all, by any means" * 100)
    with pytest.raises(DefinitionsError, match=FILE_NAME):
        SqliteDefinitions(tmp_path)


def test_a_disk_that_takes_nothing_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 100.0
    definitions = SqliteDefinitions(tmp_path, clock=lambda: now_s)
    vhost = start(definitions)
    vhost.declare_queue("before", durable=True)
    blocker = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    definitions._db.execute("PRAGMA busy_timeout = 0")
    blocker.execute("BEGIN IMMEDIATE")  # Stands for a disk that is full.
    definitions.commit()
    assert (definitions.failing, definitions.dirty) == (True, True)
    with pytest.raises(ResourceError, match="cannot be written"):
        vhost.declare_queue("refused", durable=True)
    assert "refused" not in vhost.queues
    vhost.declare_queue("transient")
    blocker.execute("ROLLBACK")
    definitions.commit()
    assert definitions.failing  # Not yet: it is left alone for a while.
    now_s += 1.0
    vhost.declare_queue("after", durable=True)
    definitions.commit()
    assert (definitions.failing, definitions.dirty) == (False, False)
    assert [q.name for q in SqliteDefinitions(tmp_path).load("/").queues] == ["before", "after"]
    assert caplog.text.count("cannot be written") == 1
    blocker.close()


def test_a_file_of_version_1_is_brought_to_ours(tmp_path: Path) -> None:
    definitions = SqliteDefinitions(tmp_path)
    start(definitions).declare_queue("q", durable=True)
    definitions.close()
    db = sqlite3.connect(tmp_path / FILE_NAME)
    db.executescript("DROP TABLE parameters; PRAGMA user_version = 1;")
    db.close()
    users = UserDirectory(tmp_path)
    assert users.snapshot().parameters == {}
    users.close()
    definitions = SqliteDefinitions(tmp_path)
    assert [q.name for q in definitions.load("/").queues] == ["q"]
    definitions.close()
    db = sqlite3.connect(tmp_path / FILE_NAME)
    assert db.execute("PRAGMA user_version").fetchone() == (2,)
    db.close()
