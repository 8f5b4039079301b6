# SPDX-License-Identifier: Apache-2.0
"""Definitions are records of the journal: they survive, in order, and nothing of them vanishes."""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import ResourceError
from headrace.model.message import new_message
from headrace.model.vhost.definitions import BindingRecord, ExchangeRecord, QueueRecord
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.store.catalog.database import FILE_NAME, DatabaseError, open_database
from headrace.store.catalog.definitions import IDS_AT_ONCE, JournalDefinitions
from headrace.store.errors import StoreError
from headrace.store.journal.journal import Journal
from headrace.testing.disk import FaultyDisk

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY = "/journal"
SEGMENT_SIZE = 16 << 10


def opened(disk: FaultyDisk) -> Journal:
    """Return a journal that was read, and not recovered yet."""
    journal = Journal(
        DIRECTORY, disk=disk, segment_size=SEGMENT_SIZE, free_min=0, threaded=False, name="test"
    )
    journal.read()
    return journal


def start(disk: FaultyDisk) -> tuple[VirtualHost, Journal]:
    """Bring up a virtual host with what its journal has."""
    journal = opened(disk)
    vhost = VirtualHost(
        "/", store=journal, counters=Counters(), definitions=JournalDefinitions(journal)
    )
    vhost.load()
    list(journal.recover())
    return vhost, journal


def write(journal: Journal) -> None:
    """Have all that was done written."""
    journal.start_write()
    journal.finish()
    assert journal.synced == journal.appended


def segments(disk: FaultyDisk) -> list[str]:
    return sorted(name for name in disk.names_now if name.endswith(".segment"))


@pytest.mark.rule("0-9-1/s055", "0-9-1/s045", "0-9-1/s056", "0-9-1/queue.bind#03")
@pytest.mark.rule("0-9-1/queue.bind#04")
def test_durable_things_come_back_and_others_do_not() -> None:
    disk = FaultyDisk()
    vhost, journal = start(disk)
    arguments = {"x-max-length": 5, "x-dead-letter-exchange": "dlx"}
    kept = vhost.declare_queue("kept", durable=True, arguments=arguments, user="ada")
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
    write(journal)
    disk.power_cut()

    again, journal = start(disk)
    assert list(again.queues) == ["kept"]
    queue = again.queues["kept"]
    assert (queue.id, queue.arguments, queue.max_length) == (kept.id, arguments, 5)
    assert again.declared_by[queue] == "ada"
    assert again.declare_queue("kept", durable=True, arguments=arguments) is queue
    empty, _ = start(FaultyDisk())
    assert set(again.exchanges) - set(empty.exchanges) == {"x", "y"}
    y = again.exchanges["y"]
    assert (y.type, y.internal, y.auto_delete) == ("headers", True, True)
    assert again.exchanges["x"].alternate == "y"
    assert again.route("amq.fanout", "a.b", dict).queues == (queue,)
    assert again.route("y", "", lambda: {"m": b"\xff"}).queues == (queue,)
    journal.close()


def test_what_was_deleted_stays_deleted() -> None:
    disk = FaultyDisk()
    vhost, journal = start(disk)
    vhost.declare_queue("q", durable=True)
    vhost.declare_exchange("x", durable=True)
    vhost.bind("x", ("queue", "q"), "k", {"b": 2, "a": 1})
    vhost.bind("amq.direct", ("queue", "q"), "k")
    vhost.unbind("amq.direct", ("queue", "q"), "k")
    vhost.unbind("x", ("queue", "q"), "k", {"a": 1, "b": 2})  # In another order.
    assert JournalDefinitions(journal).load().bindings == []
    vhost.delete_exchange("x")
    vhost.delete_queue("q")
    write(journal)
    disk.power_cut()
    assert JournalDefinitions(opened(disk)).load() == ([], [], [])


def test_ids_of_queues_are_never_given_again() -> None:
    disk = FaultyDisk()
    vhost, journal = start(disk)
    ids = set()
    for n in range(2 * IDS_AT_ONCE):
        ids.add(vhost.declare_queue(f"q{n}", durable=True).id)
        vhost.delete_queue(f"q{n}")
    write(journal)
    disk.kill()
    vhost, journal = start(disk)
    assert vhost.declare_queue("q", durable=True).id not in ids
    assert len(ids) == 2 * IDS_AT_ONCE


def test_many_changes_share_one_sync_and_none_is_on_the_loop() -> None:
    disk = FaultyDisk()
    vhost, journal = start(disk)
    before = disk.syncs
    for n in range(5000):
        vhost.declare_queue(f"q{n}", durable=True)
    journal.start_write()
    assert disk.syncs == before  # The writer's thread has not run.
    journal.writer.step()
    assert disk.syncs == before + len(segments(disk)) + 1  # How far the segments go, too.
    journal.handle_finished()
    assert journal.synced >= journal.defined_position > 0


def test_a_disk_that_takes_nothing_has_changes_refused_and_nothing_changed() -> None:
    disk = FaultyDisk()
    vhost, journal = start(disk)
    queue = vhost.declare_queue("kept", durable=True)
    vhost.declare_exchange("x", "topic", durable=True)
    vhost.bind("x", ("queue", "kept"), "k")
    write(journal)
    vhost.declare_queue("first", durable=True)
    disk.error_rate = 1.0
    journal.start_write()
    assert not journal.writer.step()
    journal.handle_finished()
    assert journal.is_failing()
    assert journal.synced < journal.defined_position  # So no client learns of "first" yet.
    for change in (
        lambda: vhost.declare_queue("q", durable=True),
        lambda: vhost.declare_exchange("y", "topic", durable=True),
        lambda: vhost.bind("x", ("queue", "kept"), "l"),
        lambda: vhost.unbind("x", ("queue", "kept"), "k"),
        lambda: vhost.purge_queue(queue),
        lambda: vhost.delete_queue("kept"),
        lambda: vhost.delete_exchange("x"),
    ):
        with pytest.raises(ResourceError, match="definitions cannot be written to disk"):
            change()
    assert set(vhost.queues) == {"kept", "first"}
    assert len(vhost.exchanges["x"].bindings) == 1
    vhost.declare_queue("transient")
    vhost.delete_queue("transient")
    disk.error_rate = 0.0
    write(journal)
    vhost.declare_queue("after", durable=True)
    write(journal)
    disk.power_cut()
    again, _ = start(disk)
    assert list(again.queues) == ["kept", "first", "after"]
    assert len(again.exchanges["x"].bindings) == 1


def test_definitions_move_on_as_segments_leave_and_cost_a_bounded_share() -> None:
    disk = FaultyDisk()
    vhost, journal = start(disk)
    for n in range(300):
        vhost.declare_queue(f"q{n}", durable=True)
        vhost.bind("amq.topic", ("queue", f"q{n}"), f"k.{n}")
    write(journal)
    first = segments(disk)[0]
    size = sum(len(disk.names_now[name].cache) for name in segments(disk))
    written = 0
    for seq in range(1, 3000):
        message = new_message(b"\x01e\x01k\x00\x00" + bytes(400), 4, 400)
        message.seq = seq
        queue = vhost.queues[f"q{seq % 300}"]
        position = journal.publish_message(message, 0, queue.id.to_bytes(4, "big"))
        written += 480
        journal.settle(queue.id, seq, position)
        if seq % 10 == 0:
            write(journal)
    assert first not in segments(disk)
    assert len(segments(disk)) * SEGMENT_SIZE < 4 * size
    assert journal.appended - size < 2 * written  # What was said again is less than the messages.
    disk.power_cut()
    again, _ = start(disk)
    assert len(again.queues) == 300
    assert len(again.exchanges["amq.topic"].bindings) == 300


def test_a_deleted_queue_owes_nothing_even_if_its_drop_is_torn_off() -> None:
    disk = FaultyDisk()
    vhost, journal = start(disk)
    queue = vhost.declare_queue("q", durable=True)
    message = new_message(b"\x01e\x01k\x00\x00body", 4, 4)
    message.seq = 1
    journal.publish_message(message, 0, queue.id.to_bytes(4, "big"))
    vhost.definitions.delete_queue(queue.id)  # As the first of what a deletion appends.
    write(journal)
    disk.kill()
    assert list(opened(disk).recover()) == []


def test_a_flipped_bit_loses_one_definition_at_most_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FaultyDisk(3)
    vhost, journal = start(disk)
    for n in range(3):
        vhost.declare_queue(f"q{n}", durable=True, arguments={"x-max-length": n + 1})
        vhost.bind("amq.topic", ("queue", f"q{n}"), f"k.{n}")
    vhost.declare_exchange("x", "fanout", durable=True)
    for n, queue in enumerate(vhost.queues.values(), 1):
        message = new_message(b"\x01e\x01k\x00\x00body", 4, 4)
        message.seq = n
        journal.publish_message(message, 0, queue.id.to_bytes(4, "big"))
    write(journal)
    disk.kill()  # As by kill -9: nothing was closed in peace.
    (path,) = segments(disk)
    whole = bytes(disk.names_now[path].cache)
    wanted = JournalDefinitions(opened(disk)).load()
    end = len(whole.rstrip(b"\0"))
    for at in range(end):
        damaged = FaultyDisk(at)
        for name, file in disk.names_now.items():
            handle = damaged.open(name, create=True)
            damaged.write(handle, [bytes(file.cache)], 0)
            damaged.sync(handle)
        damaged.flip_bit(path, at)
        caplog.clear()
        journal = opened(damaged)
        found = JournalDefinitions(journal).load()
        messages = list(journal.recover())
        missing = sum(map(len, wanted)) - sum(map(len, found)) + 3 - len(messages)  # type: ignore[arg-type]
        said = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert missing <= 1, f"octet {at}"
        assert said or not missing, f"octet {at}: {missing} are gone without a word"


def test_a_missing_segment_is_refused_and_named() -> None:
    disk = FaultyDisk()
    vhost, journal = start(disk)
    vhost.declare_queue("q", durable=True)
    for seq in range(1, 200):
        message = new_message(b"\x01e\x01k\x00\x00" + bytes(1000), 4, 1000)
        message.seq = seq
        journal.publish_message(message, 0, vhost.queues["q"].id.to_bytes(4, "big"))
        write(journal)
    journal.close()
    assert len(segments(disk)) > 5
    for missing in segments(disk)[:-1]:
        file = disk.names_now.pop(missing)
        with pytest.raises(StoreError, match=f"{missing} is missing"):
            opened(disk)
        disk.open(missing, create=True)
        opened(disk)  # An empty file is the operator's word to go on without.
        disk.names_now[missing] = file
    assert len(list(opened(disk).recover())) == 199


def test_segments_that_left_are_not_missed() -> None:
    disk = FaultyDisk()
    vhost, journal = start(disk)
    queue = vhost.declare_queue("q", durable=True)
    for life in range(6):
        for _ in range(60):
            message = new_message(b"\x01e\x01k\x00\x00" + bytes(1000), 4, 1000)
            message.seq = vhost.counters.next_seq
            vhost.counters.next_seq += 1
            position = journal.publish_message(message, 0, queue.id.to_bytes(4, "big"))
            journal.settle(queue.id, message.seq, position)
            journal.start_write()
            journal.finish()
        (disk.power_cut if life % 2 else disk.kill)()
        seq = vhost.counters.next_seq
        vhost, journal = start(disk)
        vhost.counters.next_seq = seq
    assert segments(disk)[0] > f"{DIRECTORY}/0000000003.segment"


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / FILE_NAME)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(DatabaseError, match="has schema 99"):
        open_database(str(tmp_path / FILE_NAME))


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all, by any means" * 100)
    with pytest.raises(DatabaseError, match=FILE_NAME):
        open_database(str(tmp_path / FILE_NAME))


def test_a_definition_of_a_later_kind_is_left_alone_and_a_broken_one_is_named() -> None:
    disk = FaultyDisk()
    journal = opened(disk)
    list(journal.recover())
    definitions = JournalDefinitions(journal)
    definitions.save_exchange(ExchangeRecord("x", "fanout", False, False, {}))
    definitions.save_queue(QueueRecord(0, "q", False, {}))
    definitions.save_binding(BindingRecord("x", "queue", "q", "", {}))
    journal.define(b"z later", b"?")
    assert [len(kind) for kind in definitions.load()] == [1, 1, 1]
    journal.define(b"q\0\0\0\7", b"\0\xff\xff")
    with pytest.raises(StoreError, match="journal test: a definition is not understood"):
        definitions.load()
