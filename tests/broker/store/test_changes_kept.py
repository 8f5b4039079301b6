# SPDX-License-Identifier: Apache-2.0
"""A change of definitions is answered when it is durable, and refused when it cannot be."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, blocking, connect
from headrace.client.errors import Closed, NotFound
from headrace.server.data import unsynced
from headrace.store.journal.definition_records import queue_key
from headrace.testing.broker import BrokerFailed, ChildBroker, LocalBroker
from support.disks.gated_disk import Gate
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ROUNDS = 20  # Of another connection, while an answer is held.
VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")


@pytest.mark.parametrize("version", VERSIONS)
def test_each_answer_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    asyncio.run(answers_wait(tmp_path, Gate(monkeypatch), version))


def changes(channel: Any, version: str) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
    """All that changes what is durable, each after what it needs."""
    found = [
        ("declare exchange", lambda: channel.declare_exchange("x", "topic", durable=True)),
        ("declare queue", lambda: channel.declare_queue("q", durable=True)),
        ("declare it again", lambda: channel.declare_queue("q", durable=True)),
        ("bind", lambda: channel.bind_queue("q", "x", "k")),
    ]
    if version in ("0-9-1", "0-10"):
        found.append(("unbind", lambda: channel.unbind_queue("q", "x", "k")))
    return [
        *found,
        ("purge", lambda: channel.purge_queue("q")),
        ("delete queue", lambda: channel.delete_queue("q")),
        ("delete exchange", lambda: channel.delete_exchange("x")),
    ]


async def answers_wait(tmp_path: Path, gate: Gate, version: str) -> None:
    with LocalBroker(tmp_path) as broker:
        async with (
            connect(f"{broker.url}?version={version}") as connection,
            connection.channel() as channel,
            connect(broker.url) as other,
            other.channel() as probe,
        ):
            await probe.declare_queue("other", durable=False)
            for what, change in changes(channel, version):
                if what == "purge":
                    await probe.publish(Message(b"m", persistent=True), "q")
                async with gate.shut():
                    answer = asyncio.ensure_future(change())
                    if what != "declare it again":
                        await gate.reached()
                    for _ in range(ROUNDS):  # The broker has long since done what was asked.
                        await probe.declare_queue("other", passive=True)
                    assert answer.done() == (what == "declare it again"), what
                await answer


@pytest.mark.parametrize("version", VERSIONS)
def test_a_disk_that_fails_has_each_change_refused_and_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """The first is refused when the disk has failed for a while, all others at once."""
    monkeypatch.setattr(unsynced, "FAILING_TICKS", 1)
    gate = Gate(monkeypatch)
    with LocalBroker(tmp_path) as broker, blocking.connect(broker.url) as ours:
        probe = ours.channel()
        probe.declare_exchange("x", "topic", durable=True)
        probe.declare_queue("q", durable=True)
        probe.bind_queue("q", "x", "k")
        probe.publish(Message(b"kept", persistent=True), "q")
        gate.failing = True
        url = f"{broker.url}?version={version}"
        with pytest.raises(Closed, match="cannot be written to disk"):
            change(url, lambda channel: channel.declare_queue("first", durable=True))
        refused = [
            lambda channel: channel.declare_queue("second", durable=True),
            lambda channel: channel.declare_exchange("y", "topic", durable=True),
            lambda channel: channel.bind_queue("q", "x", "l"),
            lambda channel: channel.purge_queue("q"),
            lambda channel: channel.delete_queue("q"),
            lambda channel: channel.delete_exchange("x"),
        ]
        for one in refused:
            with pytest.raises(Closed, match="definitions cannot be written to disk"):
                change(url, one)
        change(url, lambda channel: channel.declare_queue("transient", durable=False))
        gate.failing = False
        assert probe.get("q").body == b"kept"
        assert change(url, lambda channel: channel.declare_queue("after", durable=True))


def change(url: str, what: Callable[[Any], Any]) -> Any:
    """Do one thing on a connection of its own."""
    with blocking.connect(url) as connection, connection.channel() as channel:
        return what(channel)


def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    with ChildBroker(tmp_path) as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            for n in range(20):
                channel.declare_queue(f"q{n}", durable=True)
                channel.bind_queue(f"q{n}", "amq.topic", f"k.{n}")
                channel.publish(Message(b"m", persistent=True), f"q{n}")
            for n in range(0, 20, 2):
                channel.delete_queue(f"q{n}")
            broker.kill()
        broker.start()
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            for n in range(20):
                if n % 2:
                    assert channel.declare_queue(f"q{n}", passive=True).message_count == 1
                    channel.publish(Message(b"m"), f"k.{n}", exchange="amq.topic")
        with blocking.connect(broker.url) as connection:
            for n in range(0, 20, 2):
                with pytest.raises(NotFound):
                    connection.channel().declare_queue(f"q{n}", passive=True)


async def look(broker: Any) -> None:
    """Look for changes of users, as the broker does once a second."""
    await broker.accounts.poll()


def test_a_lock_on_the_file_of_users_delays_no_client(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        file = tmp_path / "definitions.db"
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert broker._loop is not None
            looked = asyncio.run_coroutine_threadsafe(look(broker._broker), broker._loop)
            looked.result(PATIENCE_S)
            assert change(broker.url, lambda channel: channel.declare_queue("q", durable=True))
            other.execute("ROLLBACK")


def test_messages_of_a_queue_without_a_definition_are_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path) as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("q", durable=True)
            for n in range(3):
                channel.publish(Message(b"%d" % n, persistent=True), "q")
        vhost = broker._broker.vhosts["/"]
        queue_id = vhost.queues["q"].id
        # As damage would have it: the definition alone is gone.
        vhost.store.definitions.record(queue_key(queue_id), None, vhost.store.segment)
    for path in (tmp_path / "vhosts" / "1" / "journal").glob("*.segment"):
        octets = bytearray(path.read_bytes())
        at = octets.find(b"\0\1q", octets.find(queue_key(queue_id)))
        octets[at] ^= 1
        path.write_bytes(octets)
    name = f"amq.lost-{queue_id}"
    for _ in range(2):  # It stays.
        with LocalBroker(tmp_path) as broker, blocking.connect(broker.url) as connection:
            assert connection.channel().declare_queue(name, passive=True).message_count == 3
    assert caplog.text.count(f"3 messages are owed by a queue with the id {queue_id}") == 1
    assert "put aside" in caplog.text
    with LocalBroker(tmp_path) as broker:
        assert change(broker.url, lambda channel: channel.get(name)).body == b"0"
        change(broker.url, lambda channel: channel.delete_queue(name))


def test_a_broker_without_a_segment_does_not_start(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, segment_size=1 << 20) as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("q", durable=True)
            for _ in range(5):
                channel.publish(Message(bytes(1 << 20), persistent=True), "q")
    paths = sorted((tmp_path / "vhosts" / "1" / "journal").glob("*.segment"))
    paths[1].rename(tmp_path / "elsewhere")
    with pytest.raises(BrokerFailed, match=f"{paths[1].name} is missing"):
        LocalBroker(tmp_path).start()
    (tmp_path / "elsewhere").rename(paths[1])
    with LocalBroker(tmp_path) as broker, blocking.connect(broker.url) as connection:
        assert connection.channel().declare_queue("q", passive=True).message_count == 5
