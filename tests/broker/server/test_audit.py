# SPDX-License-Identifier: Apache-2.0
"""The audit log: every change, every refusal, every command, with who, from where, and the end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import ClientError
from headrace.client.blocking import connect
from headrace.gateway.security.passwords import make_account
from headrace.model.policy.accounts import Permission
from headrace.protocol.codec_0_10 import QueueDeclare, QueuePurge
from headrace.server.observe.audit_file import AuditFile
from headrace.server.observe.audit_log import AuditLog
from headrace.store.catalog.change_notes import ACTS_MAX, ChangeNotes
from headrace.store.catalog.users import UserDirectory
from headrace.testing import LocalBroker
from support.brokers.broker_process import files_below, json_lines, until
from support.command_line import refused, run, works
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ME = f"system user {os.getuid()}"
HERE = f"process {os.getpid()}"
versions = pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
Line = dict[str, Any]


class Log:
    """The lines of an audit log."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, **wanted: Any) -> list[Line]:
        return [line for line in json_lines(self.path) if wanted.items() <= line.items()]

    def one(self, **wanted: Any) -> Line:
        """The only line with these facts; it is waited for."""
        found = until(lambda: self.find(**wanted), f"a line {wanted}")
        assert len(found) == 1, found
        return found[0]


@pytest.fixture(autouse=True)
def all_is_written_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the machine takes."""
    monkeypatch.setattr("headrace.server.observe.audit_file.CLOSE_S", PATIENCE_S)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "audit.log")


@pytest.fixture
def broker(data: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBroker]:
    monkeypatch.setattr("headrace.server.broker.USERS_S", 0.05)
    with LocalBroker(data, audit_log=log.path) as started:
        with contextlib.closing(UserDirectory(data)) as directory:
            directory.add_user(make_account("eve", "secret"))
            directory.add_vhost("lab")
            directory.set_permission("eve", "/", Permission("^eve", "^eve|^amq.default", "^eve"))
        log.one(what="permission.created", user="eve")
        yield started


def test_commands_on_the_directory_are_audited(broker: LocalBroker, data: Path, log: Log) -> None:
    """Who, from where, and what of it came: also those that are refused."""
    at = ("--data", data)
    works("user", "add", "ada", "--password", "very-secret", "--tag", "monitoring", *at)
    works("policy", "set", "short", "^q", '{"max-length": 10}', *at)
    works("limits", "set", "--vhost", "lab", "max-queues", "5", *at)
    assert "exists already" in refused("user", "add", "ada", "--password", "other-secret", *at)
    line = log.one(what="command", command="user add name='ada' tags=('monitoring',)", allowed=True)
    assert (line["who"], line["from"]) == (ME, HERE)
    again = log.one(what="command", allowed=False)
    assert again["reason"] == "user 'ada' exists already"
    assert log.one(what="user.created", name="ada")["allowed"]
    policy = log.one(what="policy.set", name="short")
    assert (policy["pattern"], policy["definition"]) == ("^q", {"max-length": 10})
    assert log.one(what="vhost.limits.set", vhost="lab")["max-queues"] == 5
    works("user", "list", *at)
    works("policy", "clear", "short", *at)
    log.one(what="policy.cleared", name="short")
    assert not log.find(what="command", command="user list")  # It changes nothing.
    assert "secret" not in log.path.read_text()


def test_what_was_done_while_no_broker_ran_is_audited_at_the_next_start(
    broker: LocalBroker, data: Path, log: Log
) -> None:
    broker.stop()
    works("user", "delete", "eve", "--data", data)
    file = data.parent / "definitions.json"
    file.write_text(json.dumps({"queues": [{"name": "q", "vhost": "/", "durable": True}]}))
    works("definitions", "import", file, "--data", data)
    broker.start()
    line = log.one(what="command", command="user delete name='eve'")
    done = until(lambda: log.find(what="command", who=ME)[1:], "the commands")
    assert done[-1]["command"].startswith("definitions import")
    until(lambda: len(log.find(what="broker.started")) == 2, "the start")
    assert log.one(what="broker.stopped")["pid"] == os.getpid()
    assert (line["who"], line["allowed"]) == (ME, True)
    assert line["at"] <= line["time"]


def test_notes_of_commands_are_few(tmp_path: Path) -> None:
    with contextlib.closing(UserDirectory(tmp_path, "user add")) as directory:
        directory.add_vhost("/")
        directory._db.execute("UPDATE acts SET id = id + ?", (ACTS_MAX,))
        ChangeNotes(directory._db, "another").begin()
        ChangeNotes(directory._db, "x" * 5000).begin()
        assert [act.what for act in directory.notes.pop_all()] == [
            "user add",
            "another",
            "x" * 1024,
        ]
        assert directory.notes.pop_all() == []


def test_commands_to_the_broker_are_audited(broker: LocalBroker, data: Path, log: Log) -> None:
    at = ("--data", data)
    with connect(broker.url, reconnect=None) as connection, connection.channel() as channel:
        channel.declare_queue("orders", durable=True)
        works("list", "queues", *at)
        assert "no queue 'x'" in refused("show", "queue", "x", *at)
        works("health", *at)
        works("alarm", "set", "--vhost", "lab", "--reason", "moving", *at)
        works("close", "connections", "--user", "guest", "--reason", "noon", *at)
    listed = log.one(what="command", command="list queues")
    assert (listed["who"], listed["from"], listed["allowed"]) == (ME, HERE, True)
    missing = log.one(what="command", command="show queue")
    assert (missing["allowed"], missing["request"]["name"]) == (False, "x")
    assert "no queue 'x'" in missing["reason"]
    assert log.one(what="command", command="set alarm")["request"]["reason"] == "moving"
    assert log.one(what="alarm.set")["who"] == ME
    assert log.one(what="command", command="close connections")["request"]["user"] == "guest"
    assert not log.find(command="health")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(data / "management.sock"))
        stranger.sendall(b'{"do": "eat", "what": "everything"}\n')
        assert b"no operation" in stranger.recv(1000)
    assert log.one(what="command", command="eat")["allowed"] is False


def test_imported_definitions_are_audited(
    broker: LocalBroker, data: Path, log: Log, tmp_path: Path
) -> None:
    document = {
        "users": [{"name": "bea", "password_hash": "", "tags": ""}],
        "permissions": [{"user": "bea", "vhost": "/", "configure": "", "write": "", "read": "^x$"}],
        "queues": [{"name": "new", "vhost": "/", "durable": True, "arguments": {}}],
    }
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(document))
    works("definitions", "import", file, "--data", data)
    log.one(what="command", command="import definitions", allowed=True)
    for what, name in (("user.created", "bea"), ("queue.created", "new")):
        assert log.one(what=what, name=name)["who"] == ME
    file.write_text(json.dumps({"queues": [{"name": "bad", "vhost": "nowhere"}]}))
    assert run("definitions", "import", file, "--data", data).exit_code
    assert log.one(what="command", command="import definitions", allowed=False)["reason"]
    assert not log.find(what="queue.created", name="bad")


@versions
def test_refusals_are_audited_once_each(broker: LocalBroker, log: Log, version: str) -> None:
    """Of names, virtual hosts, queues of others, and requests to the broker's own queues."""
    eve = f"{broker.url_of('eve', 'secret')}?version={version}"
    with connect(broker.url, reconnect=None) as guest, guest.channel() as channel:
        channel.declare_queue("theirs", durable=False, exclusive=True)
        channel.declare_queue("eve-theirs", durable=False, exclusive=True)
        for name in ("theirs", "eve-theirs"):
            with pytest.raises(ClientError), connect(eve, reconnect=None) as connection:
                declare(connection, name)
        for vhost in ("lab", "nowhere"):
            with pytest.raises(ClientError):
                connect(f"{broker.url_of('eve', 'secret', vhost)}?version={version}")
    refusals = until(lambda: _all(log, 4), "four refusals")
    wanted = ("access to queue 'theirs'", "'eve-theirs'", "vhost 'lab'", "vhost nowhere not found")
    for line, text in zip(refusals, wanted, strict=True):
        assert text in line["reason"]
        assert (line["who"], line["allowed"]) == ("eve", False)
        assert line["from"].startswith("127.0.0.1:")
    with pytest.raises(ClientError):
        connect(f"{broker.url_of('eve', 'wrong')}?version={version}", reconnect=None)
    log.one(what="login", allowed=False, reason="wrong password for user 'eve'")
    assert len(log.find(what="permission")) == 4


def _all(log: Log, count: int) -> list[Line]:
    found = log.find(what="permission", allowed=False)
    return found if len(found) >= count else []


def declare(connection: Any, name: str) -> None:
    if connection.version.label == "0-10":
        connection.session().call(QueueDeclare(queue=name))
    else:
        connection.channel().declare_queue(name, durable=False)


@pytest.mark.parametrize("version", ["0-9-1", "0-10"])
def test_purges_and_jobs_are_audited(
    broker: LocalBroker, data: Path, log: Log, version: str
) -> None:
    with connect(f"{broker.url}?version={version}", reconnect=None) as connection:
        declare(connection, "q")
        with connect(broker.url) as guest, guest.channel() as channel:
            channel.declare_queue("q2", durable=True)
            channel.publish_many([b"x"] * 3, "q")
        works("messages", "copy", "q", "q2", "--url", broker.url)
        eve = broker.url_of("eve", "secret")
        assert "refused" in refused("messages", "delete", "q", "--yes", "--url", eve)
        if version == "0-10":
            connection.session().call(QueuePurge(queue="q"))
        else:
            connection.channel().purge_queue("q")
    copied = log.one(what="request", allowed=True)
    assert (copied["who"], copied["request"]["do"]) == ("guest", "messages.copy")
    denied = log.one(what="request", allowed=False)
    assert (denied["who"], denied["request"]["do"]) == ("eve", "messages.delete")
    assert "refused for user 'eve'" in log.one(what="permission", allowed=False)["reason"]
    assert log.one(what="queue.purged", name="q")["messages"] == 3


class FullDisk:
    """A disk that takes so many octets, and a few more now and then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._room = 1 << 30
        self.refused = 0
        self._one = threading.Lock()  # Room is given before a write or after it.
        self._write = os.write
        monkeypatch.setattr("headrace.server.observe.audit_file.os.write", self.write)
        monkeypatch.setattr("headrace.server.observe.audit_file.RETRY_S", 0.01)

    @property
    def room(self) -> int:
        return self._room

    @room.setter
    def room(self, room: int) -> None:
        with self._one:
            self._room = room

    def write(self, file: int, octets: bytes) -> int:
        with self._one:
            if not self._room:
                self.refused += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done = self._write(file, octets[: self._room])
            self._room -= done
            return done


@pytest.mark.parametrize("room", [0, 1, 30, 61, 62, 100])
def test_a_full_disk_loses_lines_and_the_file_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, room: int
) -> None:
    """Where a line was cut off, the next begins on its own line, without a restart."""
    path = tmp_path / "audit.log"
    disk = FullDisk(monkeypatch)
    file = AuditFile(path)
    written = AuditLog(file=file)
    written.record("first")
    until(path.read_text, "the first")
    disk.room = room
    written.record("second")
    written.record("third")
    until(lambda: disk.refused, "the disk is full")
    refused = disk.refused
    written.record("fourth")
    until(lambda: disk.refused > refused + 2, "it is tried again")
    assert file.failing == os.strerror(errno.ENOSPC)
    disk.room = room  # A little is not enough, perhaps.
    until(lambda: not disk.room or not file.failing, "it was tried")
    disk.room = 1 << 30
    until(lambda: not file.failing and "lines.lost" in path.read_text(), "there is room")
    written.record("last")
    written.close()
    found = []
    for text in path.read_text().splitlines():
        with contextlib.suppress(ValueError):  # A line that was cut off.
            found.append(json.loads(text))
    kinds = [line["what"] for line in found]
    assert kinds[0] == "first"
    assert kinds[-1] == "last"
    lost = sum(line.get("lines", 0) for line in found)
    assert lost + len([kind for kind in kinds if kind != "lines.lost"]) == 5
    assert caplog.text.count("the audit log cannot be written: No space") >= 1


def test_a_broker_serves_on_when_the_audit_log_cannot_be_written(
    broker: LocalBroker, data: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    disk.room = 0
    with connect(broker.url, reconnect=None) as connection, connection.channel() as channel:
        channel.declare_queue("", durable=False, exclusive=True)
        until(lambda: run("health", "--data", data).exit_code == 1, "a line is lost")
        assert disk.refused
        done = run("health", "--data", data)
        assert "audit log: No space left on device" in done.stdout
        disk.room = 1 << 30
        log.one(what="lines.lost")
        until(lambda: run("health", "--data", data).exit_code == 0, "it is well again")


def test_a_strict_log_keeps_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    disk = FullDisk(monkeypatch)
    monkeypatch.setattr("headrace.server.observe.audit_file.LINES_MAX", 3)
    file = AuditFile(path, strict=True, sync=True)
    written = AuditLog(file=file)
    written.record("first")
    until(path.read_text, "the first")
    disk.room = 30
    for number in range(3):
        written.record("kept", number=number)
        until(lambda: disk.refused, "the disk is full")
        disk.refused = 0
    until(lambda: disk.refused > 1, "it is tried again")
    assert file.refuses
    assert written.refusal() == "refused: the audit log cannot be written"
    written.record("too many")
    until(lambda: file.lost == 1, "there is no room for it")
    file.strict = False
    assert not written.refusal()
    file.strict = True
    disk.room = 1 << 30
    until(lambda: not written.refusal(), "there is room")
    written.record("last")
    written.close()
    found = []
    for text in path.read_text().splitlines():
        with contextlib.suppress(ValueError):  # A line that was cut off.
            found.append(json.loads(text))
    assert [line.get("number", line["what"]) for line in found] == [
        *("first", "lines.lost", 0, 1, 2, "last")
    ]


def test_a_disk_that_does_not_sync_is_one_that_does_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    synced: list[int] = []

    def sync(file: int) -> None:
        synced.append(file)
        if len(synced) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("headrace.server.observe.audit_file.os.fdatasync", sync)
    monkeypatch.setattr("headrace.server.observe.audit_file.RETRY_S", 0.01)
    file = AuditFile(tmp_path / "audit.log", sync=True)
    file.put("first", True, {})
    until(lambda: synced, "it is synced")
    file.put("second", True, {})
    until(lambda: "the audit log can be written again" in caplog.text, "it is tried again")
    assert "the audit log cannot be written: Input/output error" in caplog.text
    file.close()
    assert not file.failing


def test_nothing_happens_that_a_strict_log_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    data = tmp_path / "data"
    with LocalBroker(data, audit_log=tmp_path / "audit.log", audit_log_strict=True) as broker:
        with contextlib.ExitStack() as stack:
            there = {}
            for version in ("0-8", "0-9", "0-9-1", "0-10"):
                url = f"{broker.url}?version={version}"
                there[version] = stack.enter_context(connect(url, reconnect=None))
                there[version].channel().declare_queue(f"q{version}")
                there[version].channel().bind_queue(f"q{version}", "amq.direct", "k")
            vhost = broker._broker.vhosts["/"]
            disk.room = 0
            broker._broker.audit.record("test")
            until(lambda: broker._broker.audit.refusal(), "the disk is full")
            why = "refused: the audit log cannot be written"
            before = list(vhost.queues), list(vhost.exchanges), vhost.definition_memory
            for version, connection in there.items():
                with pytest.raises(ClientError, match=f"login {why}"):
                    connect(f"{broker.url}?version={version}", reconnect=None)
                queue = f"q{version}"
                changes = [
                    lambda channel: channel.declare_queue("new"),
                    lambda channel: channel.declare_exchange("new", "fanout"),
                    lambda channel, queue=queue: channel.delete_queue(queue),
                ]
                if version not in ("0-8", "0-9"):  # There a binding that fails ends a connection.
                    changes += [
                        lambda channel, queue=queue: channel.bind_queue(queue, "amq.fanout"),
                        lambda channel, queue=queue: channel.purge_queue(queue),
                    ]
                for change in changes:
                    with pytest.raises(ClientError, match=why):
                        change(connection.channel())
                channel = connection.channel()
                channel.declare_queue(queue)  # It is there, and stays.
                channel.publish(b"flows", queue)
                with channel.consume(queue) as consumer:
                    delivery = consumer.receive(PATIENCE_S)
                    assert delivery.body == b"flows"
                    delivery.ack()
            assert before == (list(vhost.queues), list(vhost.exchanges), vhost.definition_memory)
            told = run("health", "--data", data)
            assert "No space left on device; logins and changes are refused" in told.stdout
            assert why in refused("list", "queues", "--data", data)
            assert why not in refused("logs", "rotate", "--data", data)  # It might mend it.
            disk.room = 1 << 30
            until(lambda: not broker._broker.audit.refusal(), "there is room")
            with connect(broker.url, reconnect=None) as connection:
                connection.channel().declare_queue("new")
    log = Log(tmp_path / "audit.log")
    assert log.one(what="test")
    assert log.one(what="queue.created", name="new")
    assert not log.find(what="lines.lost")


def test_what_is_no_file_is_written_and_never_renamed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A device is refused: a user who may rename it could remove it for all."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device or address"):
        AuditFile(pipe)  # Without a reader it would wait for ever.
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with contextlib.closing(os.fdopen(reader)) as lines:
        written = AuditLog(file=(file := AuditFile(pipe, size_max=10)))
        for number in range(3):
            written.record("test", number=number)
            assert json.loads(until(lines.readline, "the line"))["number"] == number
        file.rotate(3)
        written.close()
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]
    assert caplog.text.count("cannot be renamed: not a regular file") == 1


def test_no_secret_is_ever_in_the_audit_log(tmp_path: Path) -> None:
    """By the name of a fact, and within a text; whatever else is told stays."""
    path = tmp_path / "audit.log"
    written = AuditLog(file=AuditFile(path))
    token = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2VjcmV0"
    written.record(
        "command",
        command="import definitions",
        reason=f"not for {token} of amqp://ada:s3cret@host/ or http://host:80/",
        request={
            "users": [{"name": "ada", "password_hash": "s3cret", "Password": "s3cret"}],
            "default_pass": "s3cret",
            "client_secret": {"deep": "s3cret"},
            "src-uri": "amqps://ada:s3cret@host:5671/%2F",
            "src-uris": ["amqp://x:s3cret@h"],
            "passive": True,
            "odd": {token},
            "private_key": b"s3cret",
            "access_token": token,
            "tokens": 3,
        },
    )
    written.close()
    text = path.read_text()
    assert "s3cret" not in text
    assert "eyJ" not in text
    (line,) = map(json.loads, text.splitlines())
    assert line["request"]["passive"] is True
    assert line["request"]["src-uri"] == "amqps://…@host:5671/%2F"
    assert line["request"]["users"][0]["name"] == "ada"
    assert line["request"]["tokens"] == 3
    assert line["reason"].endswith("or http://host:80/")


def written_last(home: Path, text: str) -> bool:
    """Return True if the newest file has a text; a rename leaves none for a moment."""
    return any(text.encode() in octets for _, octets in files_below(home, "audit.log"))


def test_the_file_is_renamed_when_it_is_large_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(path, size_max=1000, keep=3)
    written = AuditLog(file=file)
    for number in range(60):
        written.record("test", number=number)
        until(lambda n=number: written_last(tmp_path, f'"number": {n}}}'), "the line")
    file.rotate(5)
    written.record("last")
    written.close()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["audit.log", *(f"audit.log.{n}" for n in range(1, 6))][: len(names)]
    assert len(names) in (5, 6)
    kept = [tmp_path / name for name in reversed(names)]
    lines = [json.loads(line) for each in kept for line in each.read_text().splitlines()]
    assert [line["number"] for line in lines[:-1]] == list(range(60))[-len(lines) + 1 :]
    assert lines[-1]["what"] == "last"
    assert all(each.stat().st_size <= 1000 for each in kept)
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in kept)
