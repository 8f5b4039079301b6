# SPDX-License-Identifier: Apache-2.0
"""`headrace serve` as operators meet it: the ready line, signals, errors, logins, TLS."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import trustme

import headrace
from headrace.client import (
    AccessRefused,
    AuthenticationFailed,
    ClientError,
    ConnectFailed,
    NotFound,
)
from headrace.client.blocking import connect
from support.brokers.broker_process import Served, until
from support.clients.client_fixtures import channel_of
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = str(Path(headrace.__file__).parent.parent)


def run(
    *arguments: str | Path, stdin: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command `headrace` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": PACKAGE, **(environment or {})},
    )


def refused(*arguments: str | Path, environment: dict[str, str] | None = None) -> str:
    """Run a command that must fail; return the sentence that it says."""
    done = run(*arguments, environment=environment)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert lines, done
    return lines[-1]


def works(*arguments: str | Path, stdin: str = "") -> str:
    """Run a command that must succeed; return its output."""
    done = run(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, memory=True).start()
    yield served
    served.stop()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path).start()
    yield served
    served.stop()


def test_version_is_that_of_the_package() -> None:
    for asked in ("version", "--version"):
        assert works(asked) == f"{headrace.__version__}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_when_ready_and_a_clean_end(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_RELAYS", raising=False)  # The line would name them.
    served = Served(tmp_path, memory=True).start()
    assert served.ready == {"amqp": f"127.0.0.1:{served.port}", "pid": served.process.pid}
    with connect(served.url) as connection:
        assert connection.is_ready
        assert served.stop(number) == 0
    assert "Traceback" not in served.log()


def test_publish_consume_and_get(broker: Served) -> None:
    where = ("--url", broker.url)
    works("publish", *where, "--declare", "-H", "kind=greeting", "orders", "hello", "world")
    works("publish", *where, "--lines", "orders", stdin="one\ntwo\n")
    works("publish", *where, "orders", stdin="a whole\nfile\n")
    assert works("get", *where, "orders") == "hello\n"
    line = works("get", *where, "--json", "orders")
    assert json.loads(line)["headers"] == {"kind": "greeting"}
    assert works("consume", *where, "-n", "2", "orders") == "one\ntwo\n"
    assert works("consume", *where, "-n", "1", "orders") == "a whole\nfile\n\n"
    assert works("consume", *where, "--timeout-s", "0.1", "orders") == ""
    assert "queue 'orders' is empty" in refused("get", *where, "orders")


def test_messages_to_nowhere_are_errors(broker: Served) -> None:
    where = ("--url", broker.url)
    assert "NO_ROUTE" in refused("publish", *where, "nowhere", "x")
    assert "no exchange 'x'" in refused("publish", *where, "-e", "x", "k", "x")
    assert "no queue 'nowhere' in vhost '/'" in refused("get", *where, "nowhere")
    assert "no queue 'nowhere' in vhost '/'" in refused("consume", *where, "nowhere")


def test_an_occupied_port_is_named(broker: Served) -> None:
    said = refused("serve", "--memory", "--port", str(broker.port))
    assert said == f"Error: cannot listen on 127.0.0.1 port {broker.port}: Address already in use"


def test_a_foreign_address_is_named() -> None:
    said = refused("serve", "--memory", "--host", "192.0.2.1", "--port", "0")
    assert said.startswith("Error: cannot listen on 192.0.2.1 port 0: ")


def test_directories_of_streams_that_no_definition_names_are_told_and_left(
    tmp_path: Path,
) -> None:
    served = Served(tmp_path).start()
    try:
        with connect(served.url) as connection, connection.channel() as channel:
            channel.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
        served.restart()
        assert "no definition names" not in served.log()
        served.stop()
        (home,) = (tmp_path / "data" / "vhosts").glob("*/streams")
        for nameless in ("700", "1000"):
            (home / nameless).mkdir()
        served.start()
        (told,) = [line for line in served.log().splitlines() if "no definition names" in line]
        assert told.endswith(f"which stay as they are: 700, 1000 in {home}")
        assert {place.name for place in home.iterdir()} >= {"700", "1000"}
    finally:
        served.stop()


def test_hosts_may_be_given_one_by_one(tmp_path: Path) -> None:
    served = Served(tmp_path, "--host", "127.0.0.2", memory=True).start()
    try:
        for host in (served.host, "127.0.0.2"):
            with connect(f"amqp://guest:guest@{host}:{served.port}/", reconnect=None):
                pass
    finally:
        served.stop()


def test_a_bad_setting_is_named_with_its_source(tmp_path: Path) -> None:
    said = refused("serve", "--memory", "--frame-max", "12")
    assert said == "Error: setting frame_max (from --frame-max): 12 is less than 4096"
    said = refused("serve", "--memory", environment={"HEADRACE_PORT": "http"})
    assert said == "Error: setting port (from HEADRACE_PORT): 'http' is not a whole number"
    config = tmp_path / "headrace.toml"
    config.write_text("heartbeat_s = -1\n")
    said = refused("serve", "--memory", "--config", config)
    assert said == f"Error: setting heartbeat_s (from {config}): -1 is less than 0"


def test_what_is_in_a_directory_open_to_all_is_ours_alone(tmp_path: Path) -> None:
    """As systemd makes a StateDirectory."""
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    served = Served(tmp_path).start()
    try:
        with connect(served.url) as connection, connection.channel() as channel:
            channel.declare_queue("log", durable=True, arguments={"x-queue-type": "stream"})
            channel.publish(b"secret", "log")
        works("vhost", "add", "lab", "--data", data)
        found = {path: path.stat().st_mode & 0o077 for path in data.rglob("*")}
    finally:
        served.stop()
    assert {path.name for path in found} > {"definitions.db", "streams"}
    assert not any(found.values())


def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    said = refused("serve", "--port", "0", "--data", file)
    assert str(file) in said
    said = refused("serve", "--port", "0", "--data", file / "below")
    assert str(file / "below") in said


def test_a_data_directory_of_a_newer_version_is_named(tmp_path: Path) -> None:
    served = Served(tmp_path).start()
    served.stop()
    (tmp_path / "data" / "schema").write_text("99\n")
    said = refused("serve", "--port", "0", "--data", tmp_path / "data")
    wanted = f"data directory {tmp_path / 'data'} has schema 99, written by a newer Headrace"
    assert wanted in said
    assert wanted in refused("user", "list", "--data", tmp_path / "data")


def test_a_damaged_file_of_definitions_is_named(tmp_path: Path) -> None:
    served = Served(tmp_path).start()
    served.stop()
    for path in (tmp_path / "data").glob("definitions.db*"):
        path.write_bytes(b"rubbish" * 1000)
    said = refused("serve", "--port", "0", "--data", tmp_path / "data")
    assert str(tmp_path / "data" / "definitions.db") in said
    assert "definitions.db" in refused("user", "list", "--data", tmp_path / "data")


def test_a_data_directory_in_use_is_named(durable: Served, tmp_path: Path) -> None:
    said = refused("serve", "--port", "0", "--data", tmp_path / "data")
    assert str(tmp_path / "data") in said
    assert "in use" in said or "locked" in said


# --- Logins -------------------------------------------------------------------------------------


def test_wrong_password_and_unknown_user_get_the_same_answer(broker: Served) -> None:
    answers = set()
    for login in ("guest:wrong", "nobody:guest", "nobody:", "guest:"):
        with pytest.raises(AuthenticationFailed) as caught:
            connect(f"amqp://{login}@127.0.0.1:{broker.port}/", reconnect=None)
        answers.add(f"{caught.value.code} {caught.value.text}")
    (answer,) = answers
    assert answer == (
        "403 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile."
    )
    assert "there is no user 'nobody'" in broker.log()


def test_an_unknown_virtual_host_is_refused(broker: Served) -> None:
    with pytest.raises(ConnectFailed, match="530 NOT_ALLOWED - vhost elsewhere not found"):
        connect(f"amqp://guest:guest@127.0.0.1:{broker.port}/elsewhere", reconnect=None)


def test_many_logins_at_once_do_not_stall_the_broker(tmp_path: Path) -> None:
    served = Served(tmp_path, "--handshake-s", "100", memory=True).start()
    try:
        with connect(served.url) as connection, connection.channel() as channel:
            queue = channel.declare_queue("busy", durable=False).name
            with ThreadPoolExecutor(8) as pool:
                wrong = f"amqp://guest:wrong@127.0.0.1:{served.port}/?connection_timeout=100"
                attempts = [pool.submit(connect, wrong, reconnect=None) for _ in range(16)]
                while not all(attempt.done() for attempt in attempts):
                    channel.publish("x", queue)
                    assert channel.get(queue, no_ack=True) is not None
            for attempt in attempts:
                assert isinstance(attempt.exception(), AuthenticationFailed), attempt.exception()
    finally:
        served.stop()


def test_a_connection_beyond_the_limit_is_closed(tmp_path: Path) -> None:
    served = Served(tmp_path, "--connections-max", "2", memory=True).start()
    try:
        with connect(served.url), connect(served.url), pytest.raises(ClientError):
            connect(served.url, reconnect=None)
        connect(served.url).close()
    finally:
        served.stop()


def test_a_silent_client_is_dropped_in_time(tmp_path: Path) -> None:
    served = Served(tmp_path, "--handshake-s", "0.5", memory=True).start()
    try:
        with socket.create_connection((served.host, served.port), timeout=PATIENCE_S) as silent:
            assert silent.recv(1) == b""
        until(lambda: "handshake took too long" in served.log(), "the log says so")
    finally:
        served.stop()


# --- Users, virtual hosts, permissions ----------------------------------------------------------


def test_users_of_a_stopped_broker(tmp_path: Path) -> None:
    data = ("--data", tmp_path / "data")
    assert "has no data of a broker" in refused("user", "list", *data)
    assert not data[1].exists()
    works("user", "add", *data, "--tag", "ops", "ada", stdin="secret\n")
    works("vhost", "add", *data, "/")
    works("vhost", "add", *data, "lab")
    works("permission", "set", *data, "--vhost", "lab", "ada", "", "^orders", ".*")
    assert works("user", "list", "--no-header", *data) == "ada\tops\n"
    assert works("vhost", "list", "--no-header", *data) == "/\nlab\n"
    assert works("permission", "list", "--no-header", *data) == "ada\tlab\t-\t^orders\t.*\n"
    said = refused("permission", "set", *data, "ada", "(", "", "")
    assert "configure '(' is not a valid regular expression: missing ): (" in said
    assert "there is no user 'bob'" in refused("user", "delete", *data, "bob")
    assert "exists already" in refused("vhost", "add", *data, "lab")
    served = Served(tmp_path).start()
    try:
        with (
            channel_of(f"amqp://ada:secret@127.0.0.1:{served.port}/lab") as channel,
            pytest.raises(AccessRefused, match="configure access to queue 'q' in vhost 'lab'"),
        ):
            channel.declare_queue("q")
        with pytest.raises(AuthenticationFailed):  # No default user where other users exist.
            connect(served.url, reconnect=None)
    finally:
        served.stop()


def test_tags_and_metadata_are_replaced(tmp_path: Path) -> None:
    data = ("--data", tmp_path / "data")
    works("user", "add", *data, "--tag", "ops", "ada", stdin="secret\n")
    works("user", "tags", *data, "ada", "viewer", "other")
    assert works("user", "list", "--no-header", *data) == "ada\tviewer other\n"
    assert "a tag must be one word" in refused("user", "tags", *data, "ada", "two words")
    assert "there is no user 'bob'" in refused("user", "tags", *data, "bob", "viewer")
    works("vhost", "add", *data, "lab")
    works("vhost", "set", *data, "lab", "--tag", "a", "--tag", "b", "--protected")
    works("vhost", "set", *data, "lab", "--description", "of tests")
    works("permission", "set", *data, "--vhost", "lab", "ada", "", "", "")
    served = Served(tmp_path).start()
    try:
        connect(f"amqp://ada:secret@127.0.0.1:{served.port}/lab").close()  # Its password stayed.
        exported = json.loads(works("definitions", "export", *data))
    finally:
        served.stop()
    (lab,) = (one for one in exported["vhosts"] if one["name"] == "lab")
    assert (lab["description"], lab["tags"]) == ("of tests", ["a", "b"])
    assert lab["metadata"]["protected_from_deletion"] is True
    works("vhost", "set", *data, "lab", "--description", "", "--no-tags", "--unprotected")
    exported = json.loads(works("definitions", "export", *data))
    (lab,) = (one for one in exported["vhosts"] if one["name"] == "lab")
    assert (lab["description"], lab["tags"]) == ("", [])
    assert lab["metadata"]["protected_from_deletion"] is False
    assert "--no-tags" in refused("vhost", "set", *data, "lab", "--tag", "a", "--no-tags")


def test_a_running_broker_takes_changes_over(durable: Served, tmp_path: Path) -> None:
    data = ("--data", tmp_path / "data")
    ada = f"amqp://ada:secret@127.0.0.1:{durable.port}/lab"

    def connects() -> bool:
        try:
            connect(ada, reconnect=None).close()
        except ConnectFailed:
            return False
        return True

    works("user", "add", *data, "ada", stdin="secret\n")
    works("vhost", "add", *data, "lab")
    works("permission", "set", *data, "--vhost", "lab", "ada", ".*", ".*", ".*")
    until(connects, "the new user connects")
    with connect(ada, reconnect=None) as connection, connection.channel() as channel:
        channel.declare_queue("q")
        channel.publish("x", "q")
        works("permission", "set", *data, "--vhost", "lab", "ada", ".*", "^p", ".*")

        def is_refused() -> bool:
            try:
                with connection.channel() as other:
                    other.publish("x", "q")
            except AccessRefused:
                return True
            return False

        until(is_refused, "the new permission counts")
        works("vhost", "delete", *data, "lab")
        until(lambda: connection.is_closed, "the connection ends with its virtual host")
    assert not connects()


def test_a_virtual_host_goes_with_its_files_and_returns_empty(
    durable: Served, tmp_path: Path
) -> None:
    data = ("--data", tmp_path / "data")
    lab = f"amqp://guest:guest@127.0.0.1:{durable.port}/lab"

    def added() -> None:
        works("vhost", "add", *data, "lab")
        works("permission", "set", *data, "--vhost", "lab", "guest", ".*", ".*", ".*")

    def opened() -> bool:
        with contextlib.suppress(ConnectFailed):
            connect(lab, reconnect=None).close()
            return True
        return False

    added()
    until(opened, "the virtual host is there")
    files = tmp_path / "data" / "vhosts"
    before = {path.name for path in files.iterdir()}
    with connect(lab, reconnect=None) as connection, connection.channel() as channel:
        channel.declare_queue("q")
        channel.declare_queue("s", arguments={"x-queue-type": "stream"})
        for queue in ("q", "s"):
            channel.publish("x", queue)
        works("vhost", "delete", *data, "lab")
        until(lambda: connection.is_closed, "the connection ends with its virtual host")
    until(lambda: len(list(files.iterdir())) < len(before), "its files are gone")
    added()
    until(opened, "another of that name is there")
    with (
        channel_of(lab, reconnect=None) as channel,
        pytest.raises(NotFound, match="no queue 'q' in vhost 'lab'"),
    ):
        channel.get("q")
    durable.restart()
    assert opened()


def test_a_deleted_user_is_disconnected(durable: Served, tmp_path: Path) -> None:
    with connect(durable.url, reconnect=None) as connection:
        works("user", "delete", "--data", tmp_path / "data", "guest")
        until(lambda: connection.is_closed, "the connection of the deleted user ends")
    with pytest.raises(AuthenticationFailed):
        connect(durable.url, reconnect=None)


# --- TLS ----------------------------------------------------------------------------------------


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_options(authority: trustme.CA, tmp_path: Path) -> list[str]:
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(tmp_path / "cert.pem", append=True)
    files = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    return ["--tls-port", "0", *files]


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_tls_carries_messages(
    tmp_path: Path, authority: trustme.CA, tls_options: list[str]
) -> None:
    served = Served(tmp_path, *tls_options, memory=True).start()
    try:
        url = f"amqps://guest:guest@{served.ready['amqps']}/"
        body = os.urandom(3_000_000)
        with channel_of(url, ssl_context=trusting(authority)) as channel:
            channel.declare_queue("q")
            channel.publish(body, "q")
            got = channel.get("q", no_ack=True)
            assert got is not None
            assert got.body == body
        with pytest.raises(ClientError):  # No authority signed this certificate.
            connect(url, reconnect=None)
        with connect(served.url) as plain:
            assert plain.is_ready
    finally:
        assert served.stop() == 0


def test_each_port_introduces_itself(
    tmp_path: Path, authority: trustme.CA, tls_options: list[str]
) -> None:
    identity = ["--product", "RabbitMQ", "--product-version", "3.13.7", "--tls-product", "Headrace"]
    served = Served(tmp_path, *tls_options, *identity, memory=True).start()
    try:
        with connect(served.url) as plain:
            assert plain.server_properties["product"] == "RabbitMQ"
            assert plain.server_properties["version"] == "3.13.7"
        url = f"amqps://guest:guest@{served.ready['amqps']}/"
        with connect(url, ssl_context=trusting(authority)) as encrypted:
            assert encrypted.server_properties["product"] == "Headrace"
    finally:
        served.stop()


def test_tls_with_client_certificates(
    tmp_path: Path, authority: trustme.CA, tls_options: list[str]
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    served = Served(
        tmp_path, *tls_options, "--tls-ca", str(tmp_path / "ca.pem"), memory=True
    ).start()
    try:
        url = f"amqps://guest:guest@{served.ready['amqps']}/"
        with pytest.raises(ClientError):
            connect(url, reconnect=None, ssl_context=trusting(authority))
        context = trusting(authority)
        authority.issue_cert("ada@example.org").configure_cert(context)
        with connect(url, ssl_context=context) as connection:
            assert connection.is_ready
    finally:
        served.stop()


def test_an_unusable_certificate_is_named(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("rubbish")
    files = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    said = refused("serve", "--memory", "--port", "0", "--tls-port", "0", *files)
    assert said.startswith(f"Error: cannot use tls_cert {tmp_path / 'cert.pem'}")


def test_plain_bytes_on_the_tls_port_do_no_harm(tmp_path: Path, tls_options: list[str]) -> None:
    served = Served(tmp_path, *tls_options, memory=True).start()
    try:
        host, _, port = served.ready["amqps"].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as plain:
            plain.sendall(b"AMQP\0\0\x09\x01")
            while plain.recv(4096):
                pass
        connections = psutil.Process(served.process.pid).net_connections
        until(
            lambda: all(c.status != psutil.CONN_ESTABLISHED for c in connections("tcp")),
            "the broker lets go of the socket",
        )
        with connect(served.url) as connection:
            assert connection.is_ready
    finally:
        served.stop()
