# SPDX-License-Identifier: Apache-2.0
"""Operators' commands while the disk fails: refused, nothing half done, and done later."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, blocking
from headrace.server.data import unsynced
from headrace.testing import ChildBroker, LocalBroker
from support.brokers.broker_process import until
from support.command_line import run, works
from support.disks.gated_disk import Gate
from support.disks.small_disk import fill, small_disk
from support.rabbitmq_hash import foreign_hash

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["small_disk"]  # A fixture.


def refused(*words: str | Path) -> str:
    """Run a command that must not succeed; return the sentence that it says."""
    done = run(*words)
    assert done.exit_code == 1, done.output
    assert done.stdout == ""
    return done.stderr.strip().splitlines()[-1]


def write(path: Path, **content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def exported(data: Path) -> dict[str, Any]:
    """All definitions that count now."""
    found: dict[str, Any] = json.loads(works("definitions", "export", "--data", data))
    return found


def queue(name: str, vhost: str = "/") -> dict[str, Any]:
    return {"name": name, "vhost": vhost, "durable": True, "auto_delete": False, "arguments": {}}


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    monkeypatch.setattr(unsynced, "FAILING_TICKS", 1)
    return Gate(monkeypatch)


def test_commands_are_refused_while_syncs_fail_and_done_afterwards(
    tmp_path: Path, gate: Gate
) -> None:
    data = tmp_path / "data"
    file = write(tmp_path / "file.json", queues=[queue("imported")])
    with LocalBroker(data) as broker, blocking.connect(broker.url) as connection:
        probe = connection.channel()
        probe.declare_queue("q", durable=True)
        probe.declare_queue("r", durable=True)
        probe.bind_queue("r", "amq.topic", "k")
        probe.publish(Message(b"kept", persistent=True), "q")
        before = exported(data)
        at = ("--url", broker.url)
        commands: list[tuple[str | Path, ...]] = [
            ("declare", "queue", *at, "first"),
            ("declare", "queue", *at, "second"),
            ("declare", "stream", *at, "third"),
            ("declare", "exchange", *at, "x"),
            ("declare", "binding", *at, "amq.topic", "q", "l"),
            ("delete", "binding", *at, "amq.topic", "r", "k"),
            ("purge", *at, "q"),
            ("delete", "queue", *at, "r"),
            ("definitions", "import", "--data", data, file),
        ]
        gate.failing = True
        for words in commands:
            assert "cannot be written to disk" in refused(*words), words
        works("declare", "queue", *at, "--transient", "passing")
        assert "journal of vhost '/'" in run("health", "--data", data).output
        gate.failing = False
        until(lambda: run("health", "--data", data).exit_code == 0, "it is well")
        found = exported(data)
        known = {one["name"] for one in found["queues"]}
        assert known - {"first", "passing"} == {one["name"] for one in before["queues"]}
        assert found["bindings"] == before["bindings"]
        assert probe.get("q").body == b"kept"
        for words in commands:
            works(*words)
        after = exported(data)
    with LocalBroker(data):
        again = exported(data)
    after["queues"] = [one for one in after["queues"] if one["name"] != "passing"]
    assert again == after
    assert {one["name"] for one in again["queues"]} == {"first", "second", "third", "q", "imported"}


def test_a_virtual_host_that_the_disk_does_not_take_is_there_when_it_does(
    tmp_path: Path, gate: Gate
) -> None:
    """Users are in a file that this disk takes; the journal of the new virtual host is not."""
    data = tmp_path / "data"
    words = ("definitions", "import", "--data", data)
    everything = {
        "vhosts": [{"name": "shop"}],
        "permissions": [
            {"user": "guest", "vhost": "shop", "configure": "", "write": "", "read": ".*"}
        ],
        "queues": [queue("orders", "shop")],
    }
    file = write(tmp_path / "file.json", **everything)
    with LocalBroker(data) as broker, blocking.connect(broker.url) as connection:
        probe = connection.channel()
        gate.failing = True
        down = "virtual host 'shop' cannot be brought up: Input/output error"
        assert down in refused(*words, file)
        assert down in refused(*words, file)  # It is known by now.
        probe.declare_queue("passing", durable=False)
        gate.failing = False
        works(*words, file)
        with blocking.connect(broker.url_of(vhost="shop")) as other:
            assert other.channel().declare_queue("orders", passive=True).message_count == 0
    with LocalBroker(data) as broker, blocking.connect(broker.url_of(vhost="shop")) as other:
        assert other.channel().declare_queue("orders", passive=True).message_count == 0


def test_commands_are_refused_on_a_full_disk_and_done_when_there_is_room(small_disk: Path) -> None:
    data = small_disk / "data"
    with ChildBroker(data, "--disk-free-min", "0", "--segment-size", "1MiB") as broker:
        at = ("--data", data)
        file = write(
            small_disk / "file.json",
            users=[
                {"name": f"user-{n}", "password_hash": foreign_hash("x"), "tags": []}
                for n in range(20)
            ],
            vhosts=[{"name": "shop"}],
            queues=[queue("orders", "shop")],
        )
        commands: list[tuple[str | Path, ...]] = [
            ("user", "add", *at, "--password", "lovelace", "ada"),
            ("vhost", "add", *at, "lab"),
            ("permission", "set", *at, "guest", "^a", "^b", "^c"),
            ("policy", "set", *at, "short", "^q", '{"max-length": 5}'),
            ("definitions", "import", *at, file),
        ]
        before = exported(data)
        fill(small_disk)
        for words in commands:
            said = refused(*words)
            assert "disk is full" in said or "No space left" in said, words
        assert exported(data) == before
        with blocking.connect(broker.url) as connection:
            connection.channel().declare_queue("passing", durable=False)
        (small_disk / "ballast").unlink()
        for words in commands:
            works(*words)
        broker.restart()
        found = exported(data)
        assert len(found["users"]) == 22
        assert {one["name"] for one in found["vhosts"]} == {"/", "lab", "shop"}
        assert [one["name"] for one in found["policies"]] == ["short"]
        assert [one["name"] for one in found["queues"]] == ["orders"]
