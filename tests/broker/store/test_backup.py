# SPDX-License-Identifier: Apache-2.0
"""Backups of running brokers: what was confirmed before is there again, and damage is found."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from headrace.client import blocking
from headrace.server.data import backup as server_backup
from headrace.testing import LocalBroker
from support.brokers.broker_process import Served, until
from support.clients.client_fixtures import channel_of
from support.command_line import as_json, refused, run, works
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM = {"x-queue-type": "stream"}


class Load:
    """Publishers that note what was confirmed, and consumers that settle some of it."""

    MOST = 20_000  # Messages to be read again from each: of a backup that takes long, no more.

    def __init__(self, url: str) -> None:
        self.url = url
        self.confirmed = {"work": 0, "log": 0}
        self.failures: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._publish, args=(queue,)) for queue in self.confirmed
        ]
        self._threads.append(threading.Thread(target=self._churn))

    def __enter__(self) -> Self:
        with blocking.connect(self.url) as connection, connection.channel() as channel:
            channel.declare_queue("work", durable=True)
            channel.declare_queue("churn", durable=True)
            channel.declare_queue("log", durable=True, arguments=STREAM)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not self.failures

    def _publish(self, queue: str) -> None:
        try:
            with blocking.connect(self.url) as connection, connection.channel() as channel:
                number = 0
                while not self._over.is_set() and number < self.MOST:
                    channel.publish_many(
                        [b"%08d" % n + bytes(4000) for n in range(number, number + 20)], queue
                    )
                    number += 20
                    self.confirmed[queue] = number
        except BaseException as error:
            self.failures.append(error)
            raise

    def _churn(self) -> None:
        """Fill segments with what is settled at once, so that they are recycled."""
        try:
            with blocking.connect(self.url) as connection, connection.channel() as channel:
                while not self._over.is_set():
                    channel.publish_many([bytes(50_000)] * 10, "churn")
                    channel.purge_queue("churn")
        except BaseException as error:
            self.failures.append(error)
            raise


def bodies_of(url: str, queue: str, count: int) -> list[bytes]:
    """The numbers of the first messages of a queue or stream."""
    arguments = {"x-stream-offset": "first"} if queue == "log" else None
    with (
        channel_of(url) as channel,
        channel.consume(queue, arguments=arguments, prefetch=1000) as deliveries,
    ):
        found = []
        for _ in range(count):
            delivery = deliveries.receive(PATIENCE_S)
            found.append(delivery.body[:8])
            delivery.ack()
        return found


def test_what_was_confirmed_before_a_backup_under_load_is_restored(tmp_path: Path) -> None:
    """The broker goes on, is killed, and another one is started on what was restored."""
    served = Served(tmp_path, "--segment-size", "1MiB").start()
    data, copy, again = tmp_path / "data", tmp_path / "copy", tmp_path / "again"
    with Load(served.url) as load:
        until(lambda: min(load.confirmed.values()) > 500, "something is there")
        before = dict(load.confirmed)
        told = json.loads(works("backup", copy, "--data", data, "--format", "json"))
        assert told["files"] > 5
        after = dict(load.confirmed)
        second = tmp_path / "second"
        works("backup", second, "--base", copy, "--data", data)
    served.kill()
    assert not list(data.glob("backup-links/*"))
    manifest = json.loads((second / "backup.json").read_text())
    shared = [name for name in manifest["files"] if (second / name).stat().st_nlink > 1]
    assert any(name.startswith("vhosts/1/journal/") for name in shared)
    assert any(name.startswith("vhosts/1/streams/") for name in shared)
    for backup, least in ((copy, before), (second, after)):
        works("verify-data", backup)
        target = again / backup.name
        works("restore", backup, "--data", target)
        with LocalBroker(target) as broker:
            for queue, count in least.items():
                assert bodies_of(broker.url, queue, count) == [b"%08d" % n for n in range(count)]
            assert not list(target.glob("vhosts/*/journal/quarantine/*"))


def test_what_happens_after_the_links_were_made_is_not_in_the_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what is appended to the same files, nor what recycled files hold by then."""
    data, copy, again = tmp_path / "data", tmp_path / "copy", tmp_path / "again"
    real = server_backup.copy_all
    with LocalBroker(data, segment_size=1 << 20) as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("work", durable=True)
            channel.declare_queue("log", durable=True, arguments=STREAM)
            for queue in ("work", "log"):
                channel.publish_many([b"%08d" % n + bytes(4000) for n in range(600)], queue)

            def copy_later(*arguments: Any) -> None:
                channel.purge_queue("work")
                for _ in range(20):
                    channel.publish_many([b"later" * 1000] * 60, "work")
                    channel.purge_queue("work")
                for queue in ("work", "log"):
                    channel.publish_many([b"later"] * 10, queue)
                real(*arguments)

            monkeypatch.setattr(server_backup, "copy_all", copy_later)
            works("backup", copy, "--data", data)
    works("restore", copy, "--data", again)
    assert not list(again.glob("vhosts/*/journal/quarantine/*"))
    with LocalBroker(again) as broker:
        for queue in ("work", "log"):
            assert bodies_of(broker.url, queue, 600) == [b"%08d" % n for n in range(600)]
        (row,) = [
            one for one in as_json("list", "queues", "--data", again) if one["name"] == "work"
        ]
        assert row["ready"] == 0
        (row,) = as_json("list", "streams", "--data", again)
        assert row["next_offset"] == 600


@pytest.fixture
def backup(tmp_path: Path) -> Iterator[Path]:
    """A small backup of a broker that is no more."""
    with LocalBroker(tmp_path / "data") as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("q", durable=True)
            channel.publish_many([b"one", b"two"], "q")
        works("backup", tmp_path / "copy", "--data", tmp_path / "data")
    return tmp_path / "copy"  # type: ignore[return-value]


def test_a_backup_can_be_read_by_its_owner_alone(backup: Path) -> None:
    assert backup.stat().st_mode & 0o077 == 0
    for path in backup.rglob("*"):
        if path.is_file() and path.name != "backup.json":
            assert path.stat().st_mode & 0o077 == 0, path


def test_damage_is_found(backup: Path, tmp_path: Path) -> None:
    (segment,) = backup.glob("vhosts/1/journal/*.segment")
    octets = bytearray(segment.read_bytes())
    octets[200] ^= 1
    segment.write_bytes(octets)
    said = run("verify-data", backup).stderr
    assert f"{segment} differs from the checksum in the manifest" in said
    assert "a start would find" in said
    target = tmp_path / "target"
    assert f"{segment} differs from the checksum in the manifest" in refused(
        "restore", backup, "--data", target
    )
    assert list(target.iterdir()) == []
    segment.unlink()
    assert "No such file or directory" in refused("verify-data", backup)


def test_a_backup_that_is_none_is_refused(backup: Path, tmp_path: Path) -> None:
    manifest = json.loads((backup / "backup.json").read_text())

    def with_manifest(change: dict[str, Any]) -> str:
        (backup / "backup.json").write_text(json.dumps(manifest | change))
        return refused("restore", backup, "--data", tmp_path / "target")

    assert "has a format that this Headrace does not know" in with_manifest({"format": 99})
    escape = {"../../etc/passwd": {"size": 1, "octets": 1, "sha256": "x", "whole": False}}
    assert "it names '../../etc/passwd'" in with_manifest({"files": escape})
    assert "is damaged" in with_manifest({"files": {"schema": {"size": "many"}}})
    assert "is damaged" in with_manifest({"strange": 1})
    (backup / "backup.json").write_text("[" * 100_000)
    assert "is damaged" in refused("restore", backup, "--data", tmp_path / "target")
    (backup / "backup.json").unlink()
    assert "is not a complete backup" in refused("verify-data", backup)
    assert not (tmp_path / "target").exists()


def test_nothing_is_overwritten(backup: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert "is not empty" in refused("restore", backup, "--data", data)
    with LocalBroker(data):
        assert "is not empty" in refused("backup", backup, "--data", data)
        assert "is in the data directory" in refused("backup", data / "copy", "--data", data)
        assert "is not a complete backup" in refused(
            "backup", tmp_path / "new", "--base", tmp_path, "--data", data
        )


def test_a_restored_directory_may_have_another_identity(backup: Path, tmp_path: Path) -> None:
    works("restore", backup, "--data", tmp_path / "same")
    works("restore", backup, "--data", tmp_path / "other", "--new-identity")
    first = (tmp_path / "data" / "identity").read_text()
    assert (tmp_path / "same" / "identity").read_text() == first
    with LocalBroker(tmp_path / "other") as broker:
        assert (tmp_path / "other" / "identity").read_text() != first
        assert bodies_of(broker.url, "q", 2) == [b"one", b"two"]


def test_what_a_killed_backup_left_is_removed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalBroker(data):
        pass
    (data / "backup-links" / "vhosts").mkdir(parents=True)
    with LocalBroker(data):
        assert not (data / "backup-links").exists()


def test_a_broker_in_memory_has_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "here.sock"
    with LocalBroker(management_socket=str(path)):
        said = run("backup", tmp_path / "copy", "--socket", path)
        assert "keeps everything in memory" in said.stderr


# --- What a start would make of it --------------------------------------------------------------


def every_file(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all files, with the attributes that a write would change."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_mtime_ns,
            path.stat().st_size,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in directory.rglob("*")
    }


def ready(data: Path, queue: str) -> int:
    """How many messages are ready in a queue of a broker that runs."""
    rows = as_json("list", "queues", "--data", data)
    return sum(row["ready"] for row in rows if row["name"] == queue)


def verified(directory: Path) -> dict[str, Any]:
    """Return the report of `verify-data`, which changes nothing."""
    before = every_file(directory)
    told: dict[str, Any] = json.loads(works("verify-data", directory, "--format", "json"))
    assert every_file(directory) == before
    return told


def test_a_backup_is_read_as_a_start_would_read_it(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with LocalBroker(data, segment_size=1 << 20) as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            for name, count in (("work", 300), ("more", 7), ("gone", 5)):
                channel.declare_queue(name, durable=True)
                channel.publish_many([b"%08d" % n + bytes(4992) for n in range(count)], name)
            channel.declare_queue("log", durable=True, arguments=STREAM)
            channel.publish_many([bytes(3000)] * 700, "log")
            for _ in range(3):
                delivery = channel.get("more")
                assert delivery is not None
            delivery.ack()
            channel.delete_queue("gone")
        works("backup", copy, "--data", data)
        assert "a broker runs on" in refused("verify-data", data)
    told = verified(copy)
    assert (told["vhosts"], told["queues"], told["messages"]) == (1, 2, 306)
    assert (told["streams"], told["stream_messages"]) == (1, 700)
    assert (told["ownerless"], told["prepared"], told["damaged"]) == (0, 0, 0)
    assert told["message_octets"] == 306 * 5000
    assert verified(data)["messages"] == 306  # Of a broker that stopped.
    with LocalBroker(data) as broker:
        assert ready(data, "work") == 300


def test_a_damaged_journal_is_told_with_what_a_start_would_save(tmp_path: Path) -> None:
    """A record in the middle, and one of a stream: nothing is changed, and a start does that."""
    data = tmp_path / "data"
    with LocalBroker(data, segment_size=1 << 20) as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("work", durable=True)
            channel.declare_queue("log", durable=True, arguments=STREAM)
            for _ in range(3):
                channel.publish_many([b"x" * 3000] * 200, "work")
                channel.publish_many([b"y" * 3000] * 300, "log")
    first = min(data.glob("vhosts/1/journal/*.segment"))
    stream = min(data.glob("vhosts/1/streams/*/*.segment"))
    for path in (first, stream):
        octets = bytearray(path.read_bytes())
        octets[300_000] ^= 1
        path.write_bytes(octets)
    before = every_file(data)
    done = run("verify-data", data, "--format", "json")
    assert every_file(data) == before
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["messages"], told["damaged"]) == (599, 2)
    assert f"of {first.name}" in told["findings"][0]
    assert str(stream.relative_to(data)) in told["findings"][1]
    assert f"{data} is damaged" in done.stderr
    assert "a start would find 599 messages in 1 queues" in done.stderr
    with LocalBroker(data):
        assert ready(data, "work") == 599
        assert len(list(data.glob("vhosts/1/journal/quarantine/*"))) == 1


def test_the_torn_end_of_a_killed_broker_is_told(tmp_path: Path) -> None:
    served = Served(tmp_path).start()
    with blocking.connect(served.url) as connection, connection.channel() as channel:
        channel.declare_queue("work", durable=True)
        channel.publish_many([b"x" * 3000] * 50, "work")
    served.kill()
    data = tmp_path / "data"
    last = max(data.glob("vhosts/1/journal/*.segment"))
    octets = last.read_bytes().rstrip(b"\0")
    with last.open("r+b") as file:  # A record that was not written to its end.
        file.seek((len(octets) + 15) & ~7)
        file.write(b"\x07" * 100)
    told = verified(data)
    assert (told["messages"], told["damaged"]) == (50, 0)
    (change,) = told["changes"]
    assert change.startswith(f"cut {last.relative_to(data)} back to ")
    (data / "schema").write_text("99\n")
    assert "has schema 99" in refused("verify-data", data)
    (data / "schema").unlink()
    assert "neither a data directory nor" in refused("verify-data", data)
