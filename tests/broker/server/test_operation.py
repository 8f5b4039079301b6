# SPDX-License-Identifier: Apache-2.0
"""The broker as a service: health, drain, reload, logs, and what systemd is told."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme

import headrace
from headrace.cli.management import ask
from headrace.client import ClientError, NotFound
from headrace.client.blocking import connect
from headrace.server.config.logs import JsonFormatter
from headrace.server.config.settings import NEEDS_RESTART, SETTINGS
from headrace.server.reload import APPLY, CAN_FAIL
from headrace.server.systemd import Supervisor
from headrace.testing import LocalBroker
from headrace.testing.raw_client import RawClient
from support.brokers.broker_process import Served, json_lines, until
from support.clients.client_fixtures import channel_of
from support.command_line import run, works
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = str(Path(headrace.__file__).parent.parent)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "headrace.toml"
    path.write_text('log_format = "json"\n')
    return path


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "headrace.log"


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, config: Path, log_file: Path
) -> Iterator[Served]:
    """One broker in a process of its own; what its settings are, tests change."""
    home = tmp_path_factory.mktemp("served")
    broker = Served(home, "--config", str(config), "--log-file", str(log_file)).start()
    yield broker
    broker.end()


def data_of(served: Served) -> Path:
    return served.home / "data"


def lines_of(log_file: Path) -> list[dict[str, Any]]:
    return json_lines(log_file)


# --- Health and status ---------------------------------------------------------------------------


def test_health_says_what_is_wrong_with_its_exit_status(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalBroker(data):
        assert works("health", "--data", data) == (
            "ready\tok\nlisteners\tok\nalarms\tok\nstore\tok\ncluster\tok\n"
        )
        works("alarm", "set", "--reason", "moving", "--data", data)
        done = run("health", "--data", data, "--format", "json")
        assert done.exit_code == 1
        assert json.loads(done.stdout)["checks"]["alarms"] == "moving"
        assert run("health", "--data", data, "--check", "alarms").exit_code == 1
        assert run("health", "--data", data, "--check", "ready").exit_code == 0
    assert run("health", "--data", data).exit_code == 1
    assert "no broker runs there" in run("health", "--data", data).stderr


def test_status_tells_where_it_listens(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        told = json.loads(works("status", "--data", tmp_path / "data", "--format", "json"))
        assert told["listens"] == broker.addresses
        assert told["version"] == headrace.__version__
        assert told["draining"] is False


# --- Drain -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
def test_draining_confirms_closes_and_keeps_out_until_resumed(tmp_path: Path, version: str) -> None:
    """A publisher during a drain learns the outcome of each message."""
    data = tmp_path / "data"
    with LocalBroker(data) as broker:
        url = f"{broker.url}?version={version}"
        confirmed = 0
        began = threading.Event()
        said: list[str] = []

        def publish() -> None:
            nonlocal confirmed
            try:
                with connect(url, reconnect=None) as connection, connection.channel() as channel:
                    channel.declare_queue("work", durable=True)
                    while True:
                        channel.publish(b"%d" % confirmed, "work")
                        confirmed += 1
                        began.set()
            except ClientError as error:
                said.append(str(error))

        thread = threading.Thread(target=publish)
        thread.start()
        assert began.wait(PATIENCE_S)
        out = works("drain", "--reason", "new disk", "--data", data)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert "ports are closed; 1 connections" in out
        assert "0 left by themselves, 1 were closed" in out
        assert "320" in said[0]
        assert "new disk" in said[0]
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((broker.host, broker.port))
        assert "draining" in run("health", "--data", data).stdout
        works("resume", "--data", data)
        assert run("health", "--data", data).exit_code == 0
        with connect(url) as connection, connection.channel() as channel:
            assert channel.declare_queue("work", passive=True).message_count >= confirmed
        assert "the broker is not drained" in run("resume", "--data", data).stderr


def test_clients_may_go_by_themselves_while_the_broker_drains(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalBroker(data) as broker:
        connection = connect(broker.url)

        def leave() -> None:
            """As soon as the broker drains."""
            until(lambda: ask(data / "management.sock", "status")["draining"], "it drains")
            connection.close()

        thread = threading.Thread(target=leave)
        thread.start()
        out = works("drain", "--json", "--grace-s", f"{PATIENCE_S:g}", "--data", data)
        began, done = map(json.loads, out.splitlines())
        assert began["connections"] == 1
        assert done == {"left": 1, "closed": 0, "open": 0, "all_kept": True}
        thread.join()
        assert list(json.loads(works("resume", "--json", "--data", data))) == ["listens"]


# --- Settings and logs ---------------------------------------------------------------------------


def test_settings_are_read_again_without_dropping_a_connection(
    served: Served, config: Path, log_file: Path
) -> None:
    where = ("--data", data_of(served))
    works("reload", *where)
    with connect(served.url) as connection:
        config.write_text(
            'log_format = "json"\nheartbeat_s = 7\nmemory_max = "64MiB"\nframe_max = 8192\n'
        )
        assert works("reload", *where).splitlines() == [
            "changed\theartbeat_s\t60\t7",
            "changed\tmemory_max\t2147483648\t67108864",
            f"needs a restart\tframe_max\t{NEEDS_RESTART['frame_max']}",
        ]
        assert connection.is_ready
        assert json.loads(works("status", *where, "--format", "json"))["memory_max"] == 64 << 20
        with connect(served.url):
            pass
        config.write_text("heartbeat_s = -1\n")
        done = run("reload", *where)
        assert done.exit_code == 1
        assert f"setting heartbeat_s (from {config}): -1 is less than 0" in done.stderr
        log_file.rename(f"{log_file}.renamed")  # As logrotate does; the settings are wrong by now.
        served.process.send_signal(signal.SIGHUP)
        until(lambda: log_file.exists() and "nothing is reloaded" in log_file.read_text(), "SIGHUP")
        config.write_text('log_format = "json"\nmemory_max = "64MiB"\nheartbeat_s = 9\n')
        answer = json.loads(works("reload", "--json", *where))
        assert answer["changed"] == [{"name": "heartbeat_s", "before": 7, "after": 9}]
        assert answer["restart"] == {}
        config.write_text('log_format = "json"\nlog_level = "debug"\n')
        served.process.send_signal(signal.SIGHUP)
        until(lambda: "reloaded; changed:" in log_file.read_text(), "SIGHUP is heard")
        assert connection.is_ready


def test_when_one_setting_cannot_be_used_none_changes(served: Served, config: Path) -> None:
    where = ("--data", data_of(served))
    before = json.loads(works("status", *where, "--format", "json"))["memory_max"]
    config.write_text('log_format = "json"\nmemory_max = "48MiB"\nredirect = "nonsense"\n')
    assert "setting redirect: 'nonsense' is not of the form" in run("reload", *where).stderr
    assert json.loads(works("status", *where, "--format", "json"))["memory_max"] == before
    config.write_text('log_format = "json"\n')
    assert "memory_max" not in works("reload", *where)  # It counts from what is in effect.


def test_reload_reads_certificates_again_and_keeps_them_when_it_cannot(tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"

    def issue() -> bytes:
        made = trustme.CA().issue_cert("localhost")
        chain.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        key.write_bytes(made.private_key_pem.bytes())
        return ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())

    def shown(port: int) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
            context.wrap_socket(plain) as encrypted,
        ):
            return encrypted.getpeercert(binary_form=True) or b""

    first = issue()
    config = tmp_path / "headrace.toml"
    tls = f'tls_port = 0\ntls_cert = "{chain}"\ntls_key = "{key}"\n'
    config.write_text(tls)
    served = Served(tmp_path, "--config", str(config)).start()
    try:
        port = int(served.ready["amqps"].rpartition(":")[2])
        assert shown(port) == first
        second = issue()
        assert "certificates were read again" in works("reload", "--data", data_of(served))
        assert shown(port) == second
        good = key.read_text()
        key.write_text("no key")
        config.write_text(tls + "heartbeat_s = 7\n")
        done = run("reload", "--data", data_of(served))
        assert done.exit_code == 1
        assert str(key) in done.stderr
        assert shown(port) == second
        key.write_text(good)
        assert "heartbeat_s\t60\t7" in works("reload", "--data", data_of(served))
        config.write_text("heartbeat_s = 7\n")
        assert f"changed\ttls_cert\t{chain}\tNone" in works("reload", "--data", data_of(served))
        with pytest.raises(OSError, match="refused"):
            shown(port)
    finally:
        served.stop()


def test_a_broker_of_a_program_has_nothing_to_read_again(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data"):
        for words in (("reload",), ("logs", "rotate")):
            assert "was not started by" in run(*words, "--data", tmp_path / "data").stderr


def test_a_reload_by_signal_is_audited_without_secrets(served: Served, config: Path) -> None:
    path = config.parent / "audit.log"
    config.write_text(f'log_format = "json"\naudit_log = "{path}"\ndefault_pass = "very-secret"\n')
    served.process.send_signal(signal.SIGHUP)
    (line,) = until(
        lambda: path.exists() and json_lines(path),
        "SIGHUP",
    )
    assert line["what"] == "settings.reloaded"
    assert line["changed"]["audit_log"] == [None, str(path)]
    assert line["restart"] == ["default_pass"]
    assert "very-secret" not in path.read_text() + served.log()
    config.write_text('log_format = "json"\n')
    served.process.send_signal(signal.SIGHUP)
    until(lambda: path.read_text().count("\n") == 2, "its end")


def test_each_setting_is_taken_over_or_has_a_reason() -> None:
    taken = {*CAN_FAIL, *(name for names in APPLY.values() for name in names)}
    assert {row.name for row in SETTINGS} == taken | {*NEEDS_RESTART}
    assert not taken & {*NEEDS_RESTART}


def test_the_log_is_json_with_what_is_known_of_a_connection(served: Served, log_file: Path) -> None:
    with connect(served.url) as connection, pytest.raises(ClientError):
        connection.channel().declare_queue("nowhere", passive=True)

    def found() -> list[dict[str, Any]]:
        return [line for line in lines_of(log_file) if "nowhere" in line["message"]]

    line = until(found, "the fault is logged")[0]
    assert (line["level"], line["user"], line["vhost"]) == ("info", "guest", "/")
    assert line["peer"].startswith("127.0.0.1:")
    assert line["connection"] >= 1


def test_the_log_file_is_rotated_and_reopened(served: Served, log_file: Path) -> None:
    where = ("--data", data_of(served))
    assert works("logs", "rotate", *where) == f"{log_file}.1\n"
    assert log_file.exists()
    works("alarm", "set", "--reason", "second file", *where)
    assert "second file" in log_file.read_text()
    assert works("logs", "rotate", "--keep", "2", *where)
    assert "second file" in Path(f"{log_file}.1").read_text()
    for keep in ("7", "7", "2"):
        works("logs", "rotate", "--keep", keep, *where)
    assert not any(Path(f"{log_file}.{number}").exists() for number in (3, 4, 5))
    log_file.rename(f"{log_file}.moved")  # As logrotate does.
    works("logs", "reopen", *where)
    works("alarm", "clear", *where)
    assert "clears the alarm" in log_file.read_text()


def test_a_log_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    done = run("serve", "--memory", "--log-file", tmp_path / "no" / "where.log")
    assert done.exit_code == 1
    assert "log_file" in done.stderr
    assert "No such file or directory" in done.stderr


def test_json_lines_are_json_whatever_is_logged() -> None:
    import logging

    try:
        raise ValueError("bad \n thing")
    except ValueError:
        record = logging.LogRecord(
            "x", logging.ERROR, "", 0, "connection 12, channel 3: %s", ("\x1b\n",), sys.exc_info()
        )
    told = json.loads(JsonFormatter().format(record))
    assert (told["connection"], told["channel"]) == (12, 3)
    assert "ValueError" in told["exception"]


# --- systemd -----------------------------------------------------------------------------------


def test_systemd_hears_of_ready_watchdog_reload_and_stop(tmp_path: Path) -> None:
    """A process of its own, told so as systemd tells a service of Type=notify."""
    address = str(tmp_path / "notify")
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(address)
        end.settimeout(PATIENCE_S)
        child = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", "serve", "--memory", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": PACKAGE,
                "NOTIFY_SOCKET": address,
                "WATCHDOG_USEC": "400000",
            },
        )

        def hear(word: str) -> None:
            while not heard or word not in heard[-1]:
                heard.append(end.recv(4096).decode())

        try:
            hear("READY=1")
            assert "STATUS=listening on 127.0.0.1:" in heard[-1]
            hear("WATCHDOG=1")
            hear("WATCHDOG=1")
            child.send_signal(signal.SIGHUP)
            hear("RELOADING=1")
            assert "MONOTONIC_USEC=" in heard[-1]
            hear("READY=1")
            child.send_signal(signal.SIGTERM)
            hear("STOPPING=1")
            assert child.wait(PATIENCE_S) == 0
        finally:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


def test_a_missing_supervisor_is_no_error(tmp_path: Path) -> None:
    Supervisor({}).ready("fine")
    Supervisor({"NOTIFY_SOCKET": "nonsense"}).stopping()
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "gone")}).reloading()
    assert Supervisor({"WATCHDOG_USEC": "x"}).watchdog_s == 0
    assert Supervisor({"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}).watchdog_s == 0


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
def test_what_clients_do_every_day_is_no_warning(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with LocalBroker() as broker:
        with (
            channel_of(f"{broker.url}?version={version}") as channel,
            pytest.raises(NotFound),
        ):
            channel.declare_queue("none", passive=True)
        with socket.create_connection((broker.host, broker.port)) as health_check:
            health_check.shutdown(socket.SHUT_WR)
        with RawClient(broker.host, broker.port) as gone:
            gone.open_connection()
        until(lambda: "lost without a close" in caplog.text, "the loss is logged")
    assert "none" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
