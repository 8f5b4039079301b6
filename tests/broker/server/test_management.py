# SPDX-License-Identifier: Apache-2.0
"""The management socket, and the commands that list, show and close through it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from headrace.cli import output
from headrace.cli.inspect import lists
from headrace.cli.management import ask, list_items
from headrace.client import AuthenticationFailed, ConnectionClosed
from headrace.client.blocking import connect
from headrace.management_socket import short_address
from headrace.server.login import account_changes
from headrace.server.management import client
from headrace.server.management import socket as management
from headrace.server.management.call import SLICE_S
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.operations import OPERATIONS
from headrace.testing import LocalBroker
from headrace.user_tags import ADMINISTER
from support.brokers.broker_process import Served, until
from support.command_line import as_json, refused, run, works
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.management_operations import OperationName
    from headrace.server.management.call import Call, Operation

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")


def talk(path: Path, *lines: bytes) -> list[dict[str, Any]]:
    """Send lines as they are; return the answers up to the end."""
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(PATIENCE_S)
        with short_address(path) as address:
            end.connect(address)
        with contextlib.suppress(BrokenPipeError):  # It may have had enough before the end.
            end.sendall(b"".join(lines))
            end.shutdown(socket.SHUT_WR)
        with end.makefile("rb") as answers:
            return [json.loads(line) for line in answers]


# --- The socket ------------------------------------------------------------------------------


def test_only_the_brokers_own_user_may_open_the_socket(broker: LocalBroker, data: Path) -> None:
    mode = (data / "management.sock").stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_the_socket_goes_with_the_broker(data: Path) -> None:
    with LocalBroker(data):
        pass
    assert not (data / "management.sock").exists()
    assert "no broker runs there" in refused("list", "queues", "--data", data)


def test_a_command_names_the_whole_path_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    socket_file = Path("headrace-data", "management.sock")
    assert f"{gone / socket_file} does not exist" in refused("list", "queues")
    gone.rmdir()
    assert f" {socket_file} does not exist" in refused("list", "queues")


def test_a_killed_brokers_socket_is_replaced(tmp_path: Path) -> None:
    served = Served(tmp_path).start()
    data = tmp_path / "data"
    served.kill()
    said = refused("list", "queues", "--data", data)
    assert "nothing listens" in said
    assert said.endswith("; name another with --data or --socket")
    served.start()
    try:
        assert works("list", "users", "--no-header", "--data", data) == "guest\tadministrator\t0\n"
    finally:
        served.stop(signal.SIGTERM)


def test_the_socket_may_be_elsewhere_and_a_broker_in_memory_has_one_when_asked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "here.sock"
    with LocalBroker(management_socket=str(path)):
        assert works("list", "vhosts", "--socket", path, "--columns", "name") == "name\n/\n"
        with pytest.raises(Exception, match="another broker listens there"):
            LocalBroker(management_socket=str(path)).start()
    path.write_text("mine")
    with pytest.raises(Exception, match="exists and is not a socket"):
        LocalBroker(management_socket=str(path)).start()
    assert path.read_text() == "mine"


def test_a_socket_with_a_long_path_is_reached(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 40)
    with LocalBroker(data):
        assert works("list", "vhosts", "--data", data, "--columns", "name") == "name\n/\n"


def test_a_stranger_is_refused(
    broker: LocalBroker, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says who is there; were it another user, nothing would be done."""
    other = management.CREDENTIALS.pack(1, 12345, 12345)

    class Stranger(management.SocketClient):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            _, self.uid, _ = management.CREDENTIALS.unpack(other)

    monkeypatch.setattr(management, "SocketClient", Stranger)
    answers = talk(data / "management.sock", b'{"do":"list users"}\n')
    assert answers == [
        {"error": "only the broker's own user and root are served", "code": "refused"}
    ]


def test_a_client_that_is_refused_while_it_sends_reads_its_answer(
    broker: LocalBroker, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(management.SocketClient, "is_trusted", lambda self: False)
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(PATIENCE_S)
        with short_address(data / "management.sock") as address:
            end.connect(address)
        end.sendall(b'{"do":')
        with end.makefile("rb") as answers:
            assert json.loads(answers.readline())["code"] == "refused"
            end.sendall(b'"list users"}\n')  # The broker still reads.
            end.shutdown(socket.SHUT_WR)
            assert answers.read() == b""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"\n", "bad-request"),
        (b"{\n", "bad-request"),
        (b"[]\n", "bad-request"),
        (b"[" * 100_000 + b"\n", "bad-request"),
        (b"\xff\n", "bad-request"),
        (b"{}\n", "bad-request"),
        (b'{"do":[]}\n', "bad-request"),
        (b'{"do":"fly"}\n', "bad-request"),
        (b'{"do":"show queue"}\n', "bad-request"),
        (b'{"do":"show queue","name":7}\n', "bad-request"),
        (b'{"do":"show queue","name":"x","vhost":"nowhere"}\n', "not-found"),
        (b'{"do":"show queue","name":"x"}\n', "not-found"),
        (b'{"do":"show connection","id":true}\n', "bad-request"),
        (b'{"do":"show connection","id":-1}\n', "bad-request"),
        (b'{"do":"close connection","id":1,"reason":"' + b"x" * 500 + b'"}\n', "not-found"),
        (b'{"do":"close connections"}\n', "bad-request"),
        (b"x" * (management.LINE_SIZE_MAX + 10) + b"\n", "limit"),
    ],
)
def test_bad_requests_are_refused_and_harm_nothing(
    broker: LocalBroker, data: Path, line: bytes, code: str
) -> None:
    answers = talk(data / "management.sock", line)
    assert [answer.get("code") for answer in answers] == [code]
    assert ask(data / "management.sock", "list users") == {"items": 1}


def test_too_many_operators_are_told(
    broker: LocalBroker, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(management, "CLIENTS_MAX", 1)

    async def wait(call: Call) -> Any:
        await call.send({"begun": True})
        await call.receive()
        return {}

    add_operation(monkeypatch, "wait", wait)
    with socket.socket(socket.AF_UNIX) as first, first.makefile("rb") as answers:
        first.settimeout(PATIENCE_S)
        first.connect(str(data / "management.sock"))
        first.sendall(b'{"do":"wait"}\n')
        assert b"begun" in answers.readline()
        assert "1 operators are served at a time" in refused("list", "users", "--data", data)
        first.sendall(b'{"end":true}\n')
        assert b"done" in answers.readline()
        command = ("list", "users", "--data", data)
        until(lambda: run(*command).exit_code == 0, "who says nothing goes")
        assert answers.read() == b""


def test_long_lists_are_made_in_slices(
    broker: LocalBroker, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two slices everybody else has a turn; a slice has a bounded number of steps."""
    taken: list[int] = []
    real = management.asyncio.sleep  # type: ignore[attr-defined]

    async def sleep(delay: float, *rest: Any) -> None:
        if delay == 0:
            taken.append(1)
        await real(delay, *rest)

    def many(call: Call) -> Any:
        for number in range(100_000):
            yield {"n": number} if number % 2 else None
        return {}

    monkeypatch.setattr(management.asyncio, "sleep", sleep)  # type: ignore[attr-defined]
    add_operation(monkeypatch, "list many", many)
    rows = sum(1 for _ in list_items(data / "management.sock", "list many"))
    assert rows == 50_000
    assert len(taken) >= 100_000 // client.STEPS_PER_SLICE


def test_who_was_deleted_is_closed_however_many_they_are(
    broker: LocalBroker, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are looked at a little at a time when rights change; each comes to its turn."""
    monkeypatch.setattr(account_changes, "RECHECK_NS", 0)  # One, and then the others' turns.
    works("user", "add", "ada", "--password", "x", "--data", data)
    works("permission", "set", "ada", ".*", ".*", ".*", "--data", data)
    with contextlib.ExitStack() as stack:
        url = broker.url.replace("guest:guest", "ada:x")
        until(lambda: can_connect(url), "the broker knows the user")
        theirs = [stack.enter_context(connect(url, reconnect=None)) for _ in range(5)]
        ours = [stack.enter_context(connect(broker.url)) for _ in range(4)]
        works("user", "delete", "ada", "--data", data)
        until(lambda: all(one.is_closed for one in theirs), "all of theirs are closed")
        assert not any(one.is_closed for one in ours)


def can_connect(url: str) -> bool:
    with contextlib.suppress(AuthenticationFailed), connect(url, reconnect=None):
        return True
    return False


def test_a_long_search_says_that_it_goes_on_and_ends_with_who_asked(
    broker: LocalBroker, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def search(call: Call) -> Any:
        try:
            while True:
                yield None
        finally:
            ended.set()

    def slow(call: Call) -> Any:
        for _ in range(10):
            time.sleep(2 * SLICE_S)  # Such a step is a slice of its own.
            yield None
        yield {"n": 1}
        return {}

    monkeypatch.setattr(client, "BUSY_S", 0.01)
    add_operation(monkeypatch, "search", search)
    add_operation(monkeypatch, "slow", slow)
    with socket.socket(socket.AF_UNIX) as first, first.makefile("rb") as answers:
        first.settimeout(PATIENCE_S)
        first.connect(str(data / "management.sock"))
        first.sendall(b'{"do": "search"}\n')
        assert answers.readline() == b'{"busy": true}\n'
    assert ended.wait(PATIENCE_S)
    assert list(list_items(data / "management.sock", "slow")) == [{"n": 1}]


def add_operation(monkeypatch: pytest.MonkeyPatch, name: str, run: Operation) -> None:
    """Let the broker have one more operation."""
    table = OperationTable()
    table(cast("OperationName", name), ADMINISTER)(run)
    monkeypatch.setitem(OPERATIONS, name, table.rows[0])


# --- Lists -----------------------------------------------------------------------------------


def counted(*where: str | Path) -> tuple[int, ...]:
    """Return the broker's counts of all messages so far."""
    told = json.loads(works("status", *where, "--format", "json"))
    return told["published"], told["delivered"], told["acknowledged"]


@pytest.mark.parametrize("version", VERSIONS)
def test_who_is_connected_is_listed(broker: LocalBroker, data: Path, version: str) -> None:
    where = ("--data", data)
    with connect(f"{broker.url}?version={version}", name="the one") as connection:
        channel = connection.channel()
        channel.declare_queue("work")
        for body in (b"1", b"2"):
            channel.publish(body, "work")
        with channel.consume("work") as deliveries:
            next(iter(deliveries))
            until(lambda: as_json("list", "queues", *where)[0]["unacked"] == 2, "both came")
            (told,) = as_json("list", "connections", *where)
            assert told["protocol"] == version
            assert (told["user"], told["vhost"], told["state"]) == ("guest", "/", "open")
            assert told["host"] == "127.0.0.1"
            assert told["bytes_received"] > 0
            assert told["bytes_sent"] > 0
            (consumer,) = as_json("list", "consumers", *where)
            assert (consumer["queue"], consumer["connection"]) == ("work", told["id"])
            assert consumer["ack"] is True
            assert consumer["channel"] == 1
            assert consumer["unacked"] == 2
            channels = as_json("list", "channels", *where)
            assert sum(one["consumers"] for one in channels) == 1
            assert {one["connection"] for one in channels} == {told["id"]}
            (queue,) = as_json("list", "queues", *where)
            assert (queue["name"], queue["consumers"]) == ("work", 1)
            for kind, rows in (("consumers", 1), ("channels", len(channels)), ("permissions", 1)):
                assert len(as_json("list", kind, *where, "--user", "guest")) == rows
                assert as_json("list", kind, *where, "--user", "nobody") == []
            assert "--user is for" in refused("list", "queues", *where, "--user", "guest")
            assert as_json("list", "connections", *where, "--user", "nobody") == []
            said = works("show", "connection", str(told["id"]), *where)
            assert "client_properties\t" in said
            assert f"tag\t{consumer['tag']}\n" in works("show", "consumer", consumer["tag"], *where)
            assert "consumers\t1\n" in works("show", "channel", f"{told['id']}:1", *where)
            assert "there is no channel '9:9'" in refused("show", "channel", "9:9", *where)
            deliveries.receive().ack()
            until(lambda: counted(*where) == (2, 2, 1), "each is counted")
        channel.delete_queue("work")
        assert counted(*where) == (2, 2, 1)  # Also of queues that are gone.


def test_what_is_defined_is_listed(broker: LocalBroker, data: Path) -> None:
    where = ("--data", data)
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_exchange("events", "topic")
        channel.declare_queue("orders", durable=True)
        channel.declare_queue("log", durable=True, arguments={"x-queue-type": "stream"})
        channel.bind_queue("orders", "events", "order.#")
        channel.publish(b"hello", "orders")
        queues = {row["name"]: row for row in as_json("list", "queues", *where)}
        assert set(queues) == {"orders", "log"}
        assert queues["orders"]["ready"] == 1
        assert queues["log"]["type"] == "stream"
        assert [row["name"] for row in as_json("list", "streams", *where)] == ["log"]
        assert "next_offset\t0\n" in works("show", "stream", "log", *where)
        assert "queue 'orders' is not a stream" in refused("show", "stream", "orders", *where)
        (binding,) = as_json("list", "bindings", *where)
        assert (binding["source"], binding["destination"]) == ("events", "orders")
        assert binding["routing_key"] == "order.#"
        names = works("list", "exchanges", *where, "--columns", "name", "--format", "tsv")
        assert "events" in names.split()
        assert json.loads(works("show", "queue", "orders", *where, "--format", "json"))["bindings"]
        shown = works("show", "exchange", "events", *where)
        assert "type\ttopic" in shown
        (vhost,) = as_json("list", "vhosts", *where)
        assert (vhost["queues"], vhost["ready"], vhost["connections"]) == (2, 1, 1)
    assert as_json("list", "permissions", *where) == [
        {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    ]
    for kind in ("transactions", "leases", "groups"):
        assert as_json("list", kind, *where) == []


def documented() -> dict[str, list[str]]:
    """The columns of each kind, as the documentation has them."""
    text = (Path(__file__).parents[3] / "docs" / "reference" / "lists.md").read_text()
    rows = re.findall(r"^\| (\w+) \| ((?:`[\w-]+`(?:, )?)+) \|$", text, re.MULTILINE)
    return {kind: re.findall(r"`([\w-]+)`", columns) for kind, columns in rows}


NOT_OF_THIS_BROKER = {"transactions", "jobs", "leases", "groups", "brokers"}


def test_lists_tell_what_their_documentation_says(broker: LocalBroker, data: Path) -> None:
    where = ("--data", data)
    columns = documented()
    assert columns.keys() == lists.COLUMNS.keys()
    for kind, shown in lists.COLUMNS.items():
        assert set(shown) <= set(columns[kind])
    works("policy", "set", "short", "^orders", '{"max-length": 10}', *where)
    until(lambda: as_json("list", "policies", *where), "it counts")
    stream = {"x-queue-type": "stream"}
    for version in ("0-9-1", "0-10"):
        with connect(f"{broker.url}?version={version}") as connection:
            channel = connection.channel()
            channel.declare_queue("log", durable=True, arguments=stream)
            channel.declare_queue("orders")
            channel.bind_queue("orders", "amq.fanout", "")
            with channel.consume("orders"):
                for kind in set(columns) - NOT_OF_THIS_BROKER:
                    for row in as_json("list", kind, *where):
                        assert list(row) == columns[kind]


def test_policies_are_listed_as_they_count(broker: LocalBroker, data: Path) -> None:
    where = ("--data", data)
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("orders", durable=True, arguments={"x-max-length": 50})
    works("policy", "set", "short", "^orders", '{"max-length": 10}', "--apply-to", "queues", *where)
    works("operator-policy", "set", "old", ".*", '{"message-ttl": 5000}', *where)
    until(lambda: len(as_json("list", "policies", *where)) == 2, "both count")
    by_kind = {row["kind"]: row for row in as_json("list", "policies", *where)}
    assert by_kind["policy"]["pattern"] == "^orders"
    assert by_kind["operator"]["definition"] == {"message-ttl": 5000}
    for row, kind in ((by_kind["policy"], "policy"), (by_kind["operator"], "operator-policy")):
        (given,) = as_json(kind, "list", *where)
        assert given == {name: value for name, value in row.items() if name != "kind"}
    (queue,) = as_json("list", "queues", *where)
    assert (queue["policy"], queue["operator_policy"]) == ("short", "old")
    shown = json.loads(works("show", "queue", "orders", *where, "--format", "json"))
    assert shown["effective_arguments"] == {"x-max-length": 10, "x-message-ttl": 5000}
    assert (shown["max_length"], shown["message_ttl_ms"]) == (10, 5000)
    assert shown["arguments"] == {"x-max-length": 50}


def test_lists_show_no_secrets(broker: LocalBroker, data: Path) -> None:
    said = works("list", "users", "--data", data, "--columns", "all", "--format", "json")
    assert "argon2" not in said
    assert json.loads(said) == {"name": "guest", "tags": "administrator", "connections": 0}


def test_tables_show_nothing_that_a_terminal_obeys(broker: LocalBroker, data: Path) -> None:
    key = "evil\x1b[2J\tname [red]"
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("q", durable=True)
        channel.bind_queue("q", "amq.direct", key)
    for form in ("table", "tsv"):
        said = works("list", "bindings", "--data", data, "--format", form)
        assert "\x1b" not in said
        assert r"evil\x1b[2J\tname [red]" in said
    assert as_json("list", "bindings", "--data", data)[0]["routing_key"] == key


def test_a_narrow_terminal_costs_no_numbers(
    broker: LocalBroker, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts get shorter; a table that is not for a terminal has them as they are."""
    name = "a" * 100 + "漢"
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(name, durable=True)
    assert name in works("list", "queues", "--data", data, "--format", "table")
    lines: list[str] = []
    monkeypatch.setattr("headrace.cli.output.click.echo", lambda text="": lines.append(text))
    rows = [{"name": name, "ready": 123456789, "type": "classic"}] * 501
    output.print_table(rows[:1], ("name", "ready", "type"), 40)
    assert lines == [
        "name                      ready  type",
        "────────────────────  ─────────  ───────",
        "aaaaaaaaaaaaaaaaaaa…  123456789  classic",
    ]
    lines.clear()
    assert output.print_tables([], ("name", "ready")) == 0
    assert lines == ["name  ready", "────  ─────"]
    lines.clear()
    assert output.print_tables(rows, ("name", "ready")) == 501
    assert sum(line.startswith("name") for line in lines) == 2


def test_columns_are_chosen_and_unknown_ones_refused(broker: LocalBroker, data: Path) -> None:
    said = works("list", "users", "--data", data, "--columns", "connections,name")
    assert said == "connections\tname\n0\tguest\n"
    assert "unknown column 'colour'; columns: " in refused(
        "list", "users", "--data", data, "--columns", "colour"
    )
    assert "no queue 'x' in vhost '/'" in refused("show", "queue", "x", "--data", data)
    assert "there is no connection 99" in refused("show", "connection", "99", "--data", data)
    assert "there is no virtual host 'x'" in refused(
        "list", "queues", "--vhost", "x", "--data", data
    )


# --- Closing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_connection_is_closed_with_a_reason(
    broker: LocalBroker, data: Path, version: str
) -> None:
    where = ("--data", data)
    with connect(f"{broker.url}?version={version}", reconnect=None) as connection:
        channel = connection.channel()
        (told,) = as_json("list", "connections", *where)
        works("close", "connection", str(told["id"]), "--reason", "maintenance at noon", *where)
        with pytest.raises(ConnectionClosed, match="maintenance at noon") as caught:
            channel.declare_queue("x")
        assert str(caught.value).startswith("320 ")
    until(lambda: as_json("list", "connections", *where) == [], "it is gone")


def test_all_connections_of_a_user_or_a_vhost_are_closed(broker: LocalBroker, data: Path) -> None:
    where = ("--data", data)
    with connect(broker.url), connect(broker.url):
        assert works("close", "connections", "--user", "x", *where) == "0 connections closed\n"
        assert works("close", "connections", "--user", "guest", *where) == (
            "2 connections closed\n"
        )
    with connect(broker.url):
        assert works("close", "connections", "--vhost", "/", *where) == "1 connections closed\n"
    assert "give --user, --vhost or --all" in refused("close", "connections", *where)
