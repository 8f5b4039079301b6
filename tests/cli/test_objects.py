# SPDX-License-Identifier: Apache-2.0
"""headrace declare, delete, purge; what TAB completes; what is said while nothing can be done."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from click.shell_completion import BashComplete
from click.testing import CliRunner

import headrace
from headrace.cli import main
from headrace.client.blocking import connect
from headrace.testing import LocalBroker
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from click.testing import Result

    from headrace.client.blocking import Channel

Names = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("objects") / "data") as running:
        yield running


@pytest.fixture
def channel(broker: LocalBroker) -> Iterator[Channel]:
    with connect(broker.url) as connection, connection.channel() as opened:
        yield opened


@pytest.fixture
def run(broker: LocalBroker) -> Callable[..., Result]:
    def run(*words: str, code: int = 0) -> Result:
        environment = {"HEADRACE_URL": broker.url, "HEADRACE_DATA": str(broker._data)}
        result = CliRunner().invoke(main, words, env=environment)
        assert result.exit_code == code, result.output
        return result

    return run


def test_a_queue_is_declared_as_options_say(
    run: Callable[..., Result], channel: Channel, name: Names
) -> None:
    queue = name()
    options = ["--type", "quorum", "--dead-letter-exchange", "amq.fanout", "--delivery-limit", "7"]
    options += ["--max-length-bytes", "1MiB", "--arg", "x-max-length=10", "--message-ttl-ms=60000"]
    assert run("declare", "queue", *options, queue).stdout.startswith(f"queue\t{queue}\n")
    [shown] = [
        row
        for row in map(json.loads, run("list", "queues", "--json").stdout.splitlines())
        if row["name"] == queue
    ]
    assert (shown["type"], shown["durable"]) == ("quorum", True)
    assert shown["arguments"] == {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "amq.fanout",
        "x-delivery-limit": 7,
        "x-max-length-bytes": 1 << 20,
        "x-max-length": 10,
        "x-message-ttl": 60000,
    }
    run("declare", "queue", *options, queue)  # As it is: no error.
    refused = run("declare", "queue", queue, code=1).stderr
    assert "406 PRECONDITION_FAILED - inequivalent arg 'x-queue-type'" in refused
    channel.publish("x", queue)
    told = run("declare", "queue", "--passive", "--json", queue).stdout
    assert json.loads(told) == {"queue": queue, "ready": 1, "consumers": 0}
    missing = run("declare", "queue", "--passive", "nosuch", code=1).stderr
    assert missing == "Error: 404 NOT_FOUND - no queue 'nosuch' in vhost '/'\n"


def test_types_of_arguments(run: Callable[..., Result], name: Names) -> None:
    exchange = name()
    given = {"n": "5", "x": "0.5", "b": "true", "t": "five", "q": '"5"', "l": '["a", 1]'}
    words = [word for key, text in given.items() for word in ("--arg", f"{key}={text}")]
    run("declare", "exchange", "--type", "topic", "--transient", *words, exchange)
    facts = json.loads(run("show", "exchange", "--json", exchange).stdout)
    expected = {"n": 5, "x": 0.5, "b": True, "t": "five", "q": "5", "l": ["a", 1]}
    assert (facts["type"], facts["durable"], facts["arguments"]) == ("topic", False, expected)
    for wrong in ("n", "=5"):
        said = run("declare", "exchange", "--arg", wrong, exchange, code=2).stderr
        assert f"'{wrong}' is not NAME=VALUE" in said
    twice = ["--max-length", "5", "--arg", "x-max-length=6"]
    said = run("declare", "queue", *twice, exchange, code=2).stderr
    assert "the argument x-max-length is given twice" in said
    said = run("declare", "queue", "--max-length-bytes", "many", exchange, code=2).stderr
    assert "'many' is not a number of bytes, such as 1048576 or 1MiB" in said


def test_streams_exchanges_and_bindings(
    run: Callable[..., Result], channel: Channel, name: Names
) -> None:
    log, source, target = name("log"), name("source"), name("target")
    run("declare", "stream", "--max-age", "7D", "--max-length-bytes", "1GiB", log)
    run("declare", "exchange", "--type", "topic", "--alternate-exchange", target, source)
    run("declare", "exchange", "--type", "fanout", target)
    run("declare", "binding", source, log, "a.#")
    run("declare", "binding", "--to-exchange", source, target, "b.*")
    run("declare", "binding", target, log)
    for key in ("a.1", "b.1", "other"):
        channel.publish("x", key, source)
    facts = json.loads(run("show", "stream", "--json", log).stdout)
    assert facts["next_offset"] == 3
    run("delete", "binding", source, log, "a.#")
    run("delete", "binding", "--to-exchange", source, target, "b.*")
    assert "in use" in run("delete", "exchange", "--if-unused", target, code=1).stderr
    run("delete", "exchange", target)
    run("delete", "exchange", source)
    assert "406" in run("delete", "stream", "--if-empty", log, code=1).stderr
    assert run("delete", "stream", log).stderr == "3 messages deleted\n"
    run("delete", "stream", log)  # It is gone: no error.
    said = run("declare", "binding", source, log, code=1).stderr
    assert said == f"Error: 404 NOT_FOUND - no exchange '{source}' in vhost '/'\n"


TYPED = {
    "at:timestamp=2026-01-02T00:00:00Z": {"at": datetime(2026, 1, 2, tzinfo=UTC)},
    "at:timestamp=1767312000": {"at": datetime(2026, 1, 2, tzinfo=UTC)},
    "n:decimal=1.50": {"n": Decimal("1.50")},
    "raw:bytes=/wA=": {"raw": b"\xff\x00"},
    "a:b=5": {"a:b": 5},
}


@pytest.mark.parametrize(("text", "arguments"), TYPED.items(), ids=TYPED)
def test_a_binding_with_any_type_of_argument_is_made_and_removed(
    run: Callable[..., Result], channel: Channel, name: Names, text: str, arguments: dict[str, Any]
) -> None:
    queue = name("typed")
    channel.declare_queue(queue, durable=True)

    def bindings() -> int:
        return len(json.loads(run("show", "queue", "--json", queue).stdout)["bindings"])

    channel.bind_queue(queue, "amq.headers", "k", arguments=arguments)
    run("delete", "binding", "--arg", text, "amq.headers", queue, "k")
    assert bindings() == 0
    run("declare", "binding", "--arg", text, "amq.headers", queue, "k")
    assert bindings() == 1
    channel.unbind_queue(queue, "amq.headers", "k", arguments=arguments)
    assert bindings() == 0


@pytest.mark.parametrize(
    "text", ["a:timestamp=soon", "a:timestamp=-1", "a:decimal=NaN", "a:decimal=x", "a:bytes='"]
)
def test_an_argument_that_is_not_of_its_type(run: Callable[..., Result], text: str) -> None:
    said = run("delete", "binding", "--arg", text, "amq.headers", "none", code=2).stderr
    assert f"is not a {text[2:].partition('=')[0]}" in said


def test_a_queue_is_purged_and_deleted(
    run: Callable[..., Result], channel: Channel, name: Names
) -> None:
    queue = name()
    run("declare", "queue", queue)
    channel.publish_many(["x"] * 3, queue)
    held = channel.get(queue)
    assert held is not None
    assert run("purge", queue).stderr == "2 messages deleted\n"
    held.nack()
    assert "406" in run("delete", "queue", "--if-empty", queue, code=1).stderr
    with channel.consume(queue):
        assert "406" in run("delete", "queue", "--if-unused", queue, code=1).stderr
    run("purge", queue)
    run("delete", "queue", "--if-empty", "--if-unused", queue)
    assert run("purge", queue, code=1).stderr.startswith("Error: 404 NOT_FOUND - no queue")


def test_lists_have_a_header_and_json_is_the_same_everywhere(
    run: Callable[..., Result], channel: Channel, name: Names
) -> None:
    queue = name()
    channel.declare_queue(queue)
    lines = run("list", "queues", "--columns", "name,ready").stdout.splitlines()
    assert lines[0] == "name\tready"
    assert f"{queue}\t0" in lines
    bare = run("list", "queues", "--columns", "name,ready", "--no-header").stdout.splitlines()
    assert bare == lines[1:]
    by_flag = run("list", "queues", "--columns", "name", "--json").stdout
    assert by_flag == run("list", "queues", "--columns", "name", "--format", "json").stdout
    assert {"name": queue} in map(json.loads, by_flag.splitlines())
    assert "exclude each other" in run("list", "queues", "--json", "--format=tsv", code=2).stderr
    for words in (("status",), ("health",), ("user", "list"), ("alarm", "list"), ("peek", queue)):
        for line in run(*words, "--json").stdout.splitlines():
            assert isinstance(json.loads(line), dict)


def test_tab_completes_names_of_a_running_broker(
    run: Callable[..., Result], channel: Channel, name: Names, monkeypatch: pytest.MonkeyPatch,
    broker: LocalBroker, tmp_path: Path,
) -> None:  # fmt: skip
    queue, exchange = name("tabbed"), name("tabbed.exchange")
    channel.declare_queue(queue)
    channel.declare_exchange(exchange)
    monkeypatch.setenv("HEADRACE_DATA", str(broker._data))
    shell = BashComplete(main, {}, "headrace", "_HEADRACE_COMPLETE")

    def completed(*words: str) -> list[str]:
        return [item.value for item in shell.get_completions(list(words), "test.tabbed")]

    for words in (("get",), ("consume",), ("purge",), ("delete", "queue"), ("messages", "move")):
        assert completed(*words) == [queue], words
    assert completed("delete", "exchange") == [exchange]
    assert completed("declare", "binding") == [exchange]
    assert completed("declare", "binding", exchange) == [queue]
    assert completed("publish", "--exchange") == [exchange]
    monkeypatch.setenv("HEADRACE_DATA", str(tmp_path))
    assert completed("get") == []  # No broker, and no complaint.


def test_a_publisher_that_is_held_is_told_why(
    run: Callable[..., Result], broker: LocalBroker, name: Names
) -> None:
    queue = name()
    run("declare", "queue", queue)
    run("alarm", "set", "--reason", "the disk is being moved")
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "publish", queue, "body"],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(headrace.__file__).parent.parent),
            "HEADRACE_URL": broker.url,
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr as told:
        first = told.readline()
        run("alarm", "clear")
        rest = told.read()
    assert process.wait(PATIENCE_S) == 0
    assert first == "the broker blocks publishers: the disk is being moved; waiting\n"
    assert rest == "the broker accepts messages again\n1 published and confirmed\n"


# --- What is said when there is no connection -----------------------------------------------------


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    home = tmp_path_factory.mktemp("tls")
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(home / "both.pem")
    both = home / "both.pem"
    with LocalBroker(tls_port=0, tls_cert=both, tls_key=both) as running:
        yield running


@pytest.mark.parametrize("version", ["0-9-1", "0-10", "0-8"])
@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "amqp://localhost:{nobody}/",
            "nothing listens on localhost:{nobody}; is `headrace serve` running there?",
        ),
        ("amqp://nosuch.invalid/", "the host name 'nosuch.invalid' is not known"),
        ("amqp://guest:secret@localhost:{port}/", "password"),
        ("amqp://localhost:{port}/nosuch", "`headrace vhost add` makes one"),
        ("amqps://localhost:{port}/", "localhost:{port} does not speak TLS"),
        ("amqp://localhost:{tls}/", "does the port need TLS, as with amqps://?"),
        ("amqps://localhost:{tls}/", "certificate is refused: CERTIFICATE_VERIFY_FAILED"),
    ],
)
def test_what_was_probably_wrong_is_said(
    tls: LocalBroker, url: str, said: str, version: str
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # And it does not listen.
        numbers = {
            "nobody": bound.getsockname()[1],
            "port": tls.port,
            "tls": tls.addresses["amqps"].rpartition(":")[2],
        }
        words = ["get", "--url", f"{url.format(**numbers)}?version={version}", "q"]
        result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert said.format(**numbers) in result.stderr
    assert result.stderr.count("\n") == 1
    assert "secret" not in result.stderr


def test_an_alert_of_tls_is_understood(tls: LocalBroker) -> None:
    """Servers of other makers answer AMQP on their TLS port with an alert."""
    alert = ssl.MemoryBIO()
    alert.write(b"\x15\x03\x01\x00\x02\x02\x46")
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", "get", "q", "--url",
             f"amqp://127.0.0.1:{server.getsockname()[1]}/"],
            env={**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parent.parent)},
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        connection, _ = server.accept()
        with connection:
            connection.sendall(alert.read())
            _, said = process.communicate(timeout=PATIENCE_S)
    assert "does the port need TLS, as with amqps://?" in said, said


def test_a_route_is_shown_and_nothing_is_published(
    run: Callable[..., Result], channel: Channel, name: Names
) -> None:
    orders, audit, exchange = name(), name(), name()
    for queue, pattern in ((orders, "order.*"), (audit, "#")):
        run("declare", "queue", queue)
        channel.bind_queue(queue, "amq.topic", pattern)
    assert set(run("route", "amq.topic", "order.new").stdout.split()) == {orders, audit}
    assert run("route", "amq.topic", "else").stdout.split() == [audit]
    run("declare", "exchange", exchange, "--type", "headers")
    channel.bind_queue(orders, exchange, arguments={"x-match": "all", "size": 3})
    assert run("route", exchange, "--header", "size=3").stdout.split() == [orders]
    nothing = run("route", exchange, "--header", "size=4")
    assert (nothing.stdout, nothing.stderr) == ("", "no queue\n")
    told = json.loads(run("route", "", orders, "--json").stdout)
    assert told == {"routed": True, "count": 1, "queues": [orders]}
    assert "is not NAME=VALUE" in run("route", exchange, "--header", "size", code=2).output
    twice = run("route", exchange, "--header", 'a={"b": 1, "b": 2}', code=2).output
    assert "occurs twice" in twice
    assert "no exchange" in run("route", "missing", "key", code=1).output
    assert channel.declare_queue(orders, passive=True).message_count == 0
