# SPDX-License-Identifier: Apache-2.0
"""Peeks at every kind of queue, by every way to peek, in every version.

A message stays ready and in its place, and its consumers get it as if no peek had happened.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click import ClickException
from click.testing import CliRunner, Result

from headrace.cli import main
from headrace.cli.management import ask
from headrace.client import Message, blocking
from headrace.client.errors import ClientError, ConsumerCancelled
from headrace.testing.broker import LocalBroker
from support.brokers.broker_process import undisturbed
from support.timeouts import PATIENCE_S

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
every = pytest.mark.parametrize("version", VERSIONS)
SELECTOR = "x-filter-jms-selector"
NO_CONSUME = {"x-filter-no-consume": True, "x-filter-auto-close": True}
HOUR_MS = 3_600_000


class Kind(NamedTuple):
    """A kind of queue, what is published to it, and in which order that is there."""

    arguments: dict[str, Any]
    sent: str  # A word for each message: its body, the last character being its priority.
    order: str  # In which consumers get what is there.
    places: str = ""  # In order of position; empty: the same.
    headers: Callable[[str], dict[str, Any]] = lambda body: {}

    @property
    def is_fair(self) -> bool:
        return "qpid.fairshare" in self.arguments

    @property
    def is_stream(self) -> bool:
        return "stream" in self.arguments.values() or "partition" in self.arguments


def key(body: str) -> dict[str, Any]:
    return {"k": body[0]}


def once(body: str) -> dict[str, Any]:
    return {"x-deduplication-header": body[0]}


def due(body: str) -> dict[str, Any]:
    later = HOUR_MS if body[0] == "z" else -HOUR_MS
    return {"x-qpid-not-valid-before": str(int(time.time() * 1000) + later)}


KINDS = {
    "ordinary": Kind({}, "a4 b9 c4 d9 e4", "b9 d9 a4 c4 e4", "a4 b9 c4 d9 e4"),
    "priority": Kind(
        {"x-max-priority": 5}, "a0 b3 c5 d3 e5", "c5 e5 b3 d3 a0", "a0 b3 c5 d3 e5"
    ),
    "fair": Kind(
        {"qpid.priorities": 10, "qpid.fairshare": 1},
        "a1 b1 c9 d9 e5",
        "c9 e5 a1 d9 b1",
        "a1 b1 c9 d9 e5",
    ),
    "last value": Kind(
        {"qpid.last_value_queue_key": "k"}, "a1 b1 c1 a2 d1 e1", "b1 c1 a2 d1 e1", headers=key
    ),
    "ring": Kind({"qpid.policy_type": "ring", "qpid.max_count": 5}, "x4 y4 a4 b4 c4 d4 e4",
                 "a4 b4 c4 d4 e4"),
    "sorted": Kind(
        {"qpid.queue_sort_key": "k"}, "d4 b9 a4 c9 e4", "a4 b9 c9 d4 e4", "d4 b9 a4 c9 e4", key
    ),
    "groups": Kind({"qpid.group_header_key": "k"}, "a4 b9 a5 c4 b4", "a4 b9 a5 c4 b4", headers=key),
    "shared groups": Kind(
        {"qpid.group_header_key": "k", "qpid.shared_msg_group": 1},
        "a4 b9 a5 c4 b4", "a4 b9 a5 c4 b4", headers=key,
    ),
    "once": Kind(
        {"x-message-deduplication": True}, "a4 b4 a3 c4 b3 d4 e4", "a4 b4 c4 d4 e4", headers=once
    ),
    "quorum": Kind({"x-queue-type": "quorum"}, "a4 b4 c4 d4 e4", "a4 b4 c4 d4 e4"),
    "hold": Kind(
        {"holdOnPublishEnabled": True}, "a4 z4 b4 c4 d4 e4", "a4 b4 c4 d4 e4", headers=due
    ),
    "stream": Kind({"x-queue-type": "stream"}, "a4 b9 c4 d9 e4", "a4 b9 c4 d9 e4"),
    "partition": Kind({"partition": 1}, "a4 b9 c4 d9 e4", "a4 b9 c4 d9 e4"),
}  # fmt: skip
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
queues_only = pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS.values() if not kind.is_stream],
    ids=[name for name, kind in KINDS.items() if not kind.is_stream],
)


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("looking") / "management.sock"


@pytest.fixture(scope="module")
def broker(socket: Path) -> Iterator[LocalBroker]:
    with LocalBroker(management_socket=str(socket)) as broker:
        yield broker


@pytest.fixture
def other(broker: LocalBroker) -> Iterator[blocking.Channel]:
    with blocking.connect(broker.url) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
def connection(broker: LocalBroker, version: str) -> Iterator[blocking.Connection]:
    with blocking.connect(f"{broker.url}?version={version}") as connection:
        yield connection


@pytest.fixture
def channel(connection: blocking.Connection) -> Iterator[blocking.Channel]:
    with connection.channel() as channel:
        yield channel


@pytest.fixture
def look(socket: Path) -> Callable[..., list[dict[str, Any]]]:
    """`headrace peek` by the management socket."""

    def look(*words: str) -> list[dict[str, Any]]:
        command = ["peek", "--socket", str(socket), "--format", "json", *words]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return look


def make(channel: blocking.Channel, kind: Kind, queue: str) -> str:
    """Declare a queue of a kind; return its name."""
    if "partition" in kind.arguments:
        arguments = {"x-partitions": kind.arguments["partition"]}
        channel.declare_exchange(queue, "x-super-stream", durable=True, arguments=arguments)
        return f"{queue}-0"
    channel.declare_queue(queue, durable=True, arguments=kind.arguments)
    return queue


def publish(channel: blocking.Channel, kind: Kind, queue: str, words: str) -> None:
    channel.publish_many(
        [
            Message(
                word.encode(),
                priority=int(word[1]),
                type="odd" if word[0] in "ace" else "even",
                headers={"name": word[0], **kind.headers(word)},
            )
            for word in words.split()
        ],
        queue,
    )


def shown(channel: blocking.Channel, queue: str, **arguments: Any) -> str:
    """Return the messages that a consumer with these arguments gets until the broker ends it."""
    found = []
    told = {name.replace("_", "-"): value for name, value in arguments.items()}
    with channel.consume(queue, prefetch=2, arguments=told) as consumer:
        with suppress(ConsumerCancelled):
            for delivery in consumer:
                assert not delivery.redelivered
                assert "x-redelivered" not in delivery.headers
                found.append(delivery.body.decode())
                delivery.ack()
    return " ".join(found)


def browsed(channel: blocking.Channel, queue: str, selector: str = "", /, **more: Any) -> str:
    return shown(channel, queue, **{**NO_CONSUME, SELECTOR: selector, **more})


def chosen(words: str, wanted: str) -> str:
    return " ".join(word for word in words.split() if word[0] in wanted)


def state(socket: Path, queue: str) -> dict[str, Any]:
    told = ask(socket, "show queue", name=queue)
    return {name: told[name] for name in ("ready", "unacked", "bytes", "consumers", "used_at")}


@every
@kinds
def test_a_peek_shows_all_in_order_and_leaves_no_trace(
    channel: blocking.Channel,
    other: blocking.Channel,
    look: Callable[..., list[dict[str, Any]]],
    socket: Path,
    name: Callable[..., str],
    kind: Kind,
) -> None:
    queue = make(other, kind, name())
    publish(other, kind, queue, kind.sent)
    before = state(socket, queue)
    places = kind.places or kind.order
    assert " ".join(one["body"] for one in look(queue)) == kind.order
    found = look("--from", "first", queue)
    assert " ".join(one["body"] for one in found) == places
    assert state(socket, queue) == before  # Not even used.
    assert not any(one["redelivered"] for one in found)
    assert [one["type"] for one in found] == [
        "odd" if word[0] in "ace" else "even" for word in places.split()
    ]
    at = {one["body"]: one["position"] for one in found}
    third = at[places.split()[2]]
    assert browsed(channel, queue) == kind.order
    assert browsed(channel, queue, "name IN ('b', 'c')") == chosen(kind.order, "bc")
    assert browsed(channel, queue, "JMSType = 'odd'") == chosen(kind.order, "ace")
    assert shown(channel, queue, x_browse=True) == places
    assert shown(channel, queue, **{"x-browse": True, SELECTOR: "name = 'b'"}) == chosen(
        places, "b"
    )
    later = places.split()[2:]
    assert shown(channel, queue, **{"x-browse": True, "x-stream-offset": third}) == " ".join(later)
    assert browsed(channel, queue, **{"x-stream-offset": third}) == " ".join(
        word for word in kind.order.split() if word in later
    )
    assert [one["body"] for one in look("--from", str(third), queue)] == later
    assert [one["body"] for one in look("-n", "2", queue)] == kind.order.split()[:2]
    assert " ".join(one["body"] for one in look("--selector", "name = 'b'", queue)) == chosen(
        kind.order, "b"
    )
    assert " ".join(one["body"] for one in look("--property", "type=odd", queue)) == chosen(
        kind.order, "ace"
    )
    after = state(socket, queue)
    assert (after["ready"], after["unacked"]) == (5, 0)
    assert (after["bytes"], after["consumers"]) == (before["bytes"], 0)
    ends = {"x-filter-auto-close": True} | ({"x-stream-offset": "first"} if kind.is_stream else {})
    assert shown(channel, queue, **ends) == kind.order
    assert state(socket, queue)["ready"] == (5 if kind.is_stream else 0)


@every
@queues_only
def test_looking_while_consumers_take_and_messages_return(
    connection: blocking.Connection,
    channel: blocking.Channel,
    other: blocking.Channel,
    look: Callable[..., list[dict[str, Any]]],
    socket: Path,
    name: Callable[..., str],
    kind: Kind,
) -> None:
    queue = make(other, kind, name())
    publish(other, kind, queue, kind.sent)
    words = kind.order.split()
    with other.consume(queue, prefetch=2) as taker:
        held = [taker.receive(PATIENCE_S) for _ in range(2)]
        assert [one.body.decode() for one in held] == words[:2]
        rest = words[2:]
        if kind.is_fair:  # It looks from where the queue's turn is.
            rest = ["a1", "d9", "b1"]
        with channel.consume(queue, prefetch=9, arguments={"x-filter-no-consume": True}) as browser:
            assert [browser.receive(PATIENCE_S).body.decode() for _ in rest] == rest
            if "qpid.group_header_key" in kind.arguments:  # First the messages of free groups.
                assert [one["body"] for one in look(queue)] == ["c4", "a5", "b4"]
            else:
                assert [one["body"] for one in look(queue)] == rest
            with connection.channel() as second:  # Before 0-9-1 prefetch is the channel's.
                assert browsed(second, queue) == " ".join(rest)
            assert state(socket, queue)["unacked"] == 2
            taker.cancel()
            for one in held:
                one.nack(requeue=True)
            until_ready(socket, queue, 5)
            publish(other, kind, queue, "n4")
            again = list(iter(lambda: browser.receive(PATIENCE_S).body.decode(), "n4"))
            assert set(again) <= set(words[:2])  # Those that it has not passed.
            assert len(again) == len(set(again))
    if "ring" in kind.arguments.values():
        words.remove("a4")  # It made way for the last one.
    back = [word for word in kind.order.split()[:2] if word in words]
    assert {one["body"] for one in look(queue) if one["redelivered"]} == set(back)
    ends = {"x-filter-auto-close": True}
    order = []
    with other.consume(queue, arguments=ends) as consumer:
        with suppress(ConsumerCancelled):
            for delivery in consumer:
                order.append((delivery.body.decode(), delivery.redelivered))
                delivery.ack()
    assert {body for body, again in order if again} == set(back)
    left = [body for body, _ in order if body != "n4"]
    assert left == words or (kind.is_fair and sorted(left) == sorted(words))


def until_ready(socket: Path, queue: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while state(socket, queue)["ready"] != count:
        assert time.monotonic() < deadline


@every
@pytest.mark.parametrize(
    ("kind", "before", "then", "seen", "at_last"),
    [
        ("last value", "a1 b1 c1", "b2 a2", "c1 b2 a2", "c1 b2 a2"),
        # Each once, the first of them first.
        ("sorted", "c4 e4 g4", "f4 a4 d4", "a4 d4 e4 f4 g4", "a4 c4 d4 e4 f4 g4"),
    ],
)
def test_a_queue_that_changes_under_a_browser(
    channel: blocking.Channel,
    other: blocking.Channel,
    name: Callable[..., str],
    kind: str,
    before: str,
    then: str,
    seen: str,
    at_last: str,
) -> None:
    queue = make(other, KINDS[kind], name())
    publish(other, KINDS[kind], queue, before)
    with channel.consume(queue, prefetch=1, arguments={"x-filter-no-consume": True}) as browser:
        first = browser.receive(PATIENCE_S)
        assert first.body.decode() == before.split()[0]
        publish(other, KINDS[kind], queue, then)
        first.ack()
        for body in seen.split():
            delivery = browser.receive(PATIENCE_S)
            assert delivery.body.decode() == body
            delivery.ack()
    assert shown(other, queue, **{"x-filter-auto-close": True}) == at_last


# --- headrace peek ------------------------------------------------------------------------------


@pytest.fixture
def queue(other: blocking.Channel, name: Callable[..., str]) -> str:
    queue = name()
    other.declare_queue(queue, durable=True)
    return queue


def peek(*words: str | Path, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["peek", *map(str, words)], env=env)


def test_peek_is_the_same_by_the_socket_and_by_a_url(
    broker: LocalBroker, socket: Path, other: blocking.Channel, queue: str
) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    headers: dict[str, Any] = {"n": 1, "deep": {"at": moment, "odd": b"\xff", "not": float("nan")}}
    other.publish(
        Message(
            b"one", headers=headers, type="t", message_id="m", correlation_id="c", reply_to="r",
            timestamp=moment, content_type="text/plain", app_id="a", priority=3, persistent=True,
        ),
        queue,
    )  # fmt: skip
    taken = other.get(queue)
    assert taken is not None
    taken.nack(requeue=True)
    until_ready(socket, queue, 1)
    lines = []
    for where in (("--socket", socket), ("--url", broker.url)):
        line = json.loads(peek(*where, "--format", "json", queue).stdout)
        assert datetime.fromisoformat(line.pop("arrived", moment.isoformat())) >= moment
        lines.append({name: value for name, value in line.items() if name != "class"})
    assert lines[0].pop("deliveries") == 1
    assert lines[0] == lines[1]
    assert lines[0]["timestamp"] == moment.isoformat()
    assert lines[0]["redelivered"]
    assert lines[0]["headers"]["deep"] == {
        "at": "2026-01-02 03:04:05+00:00", "odd": "\\xff", "not": "nan"
    }  # fmt: skip
    tables = [peek(*where, queue).stdout for where in (("--socket", socket), ("--url", broker.url))]
    assert tables[0] == tables[1]
    assert tables[0].split("\t")[2:3] == [queue]
    for known in ("type=t", "message_id=m", "priority=3", "persistent=True", "redelivered=True"):
        assert known in tables[0]


def test_large_and_binary_bodies_are_cut_and_shown_safely(
    broker: LocalBroker, socket: Path, other: blocking.Channel, queue: str
) -> None:
    large = "ä".encode() * 100_000  # In several frames, and cut in the middle of a letter.
    hostile = b"\x1b[2J\x00\xff" + b"x" * 10
    for body in (large, hostile, b""):
        other.publish(Message(body, headers={"esc": "\x1b]0;x\x07"}), queue)
    for where in (("--socket", socket), ("--url", broker.url)):
        rows = [
            json.loads(line)
            for line in peek(*where, "--format", "json", queue).stdout.split("\n")[:-1]
        ]
        assert [row["bytes"] for row in rows] == [200_000, 16, 0]
        assert rows[0]["cut"]
        assert rows[0]["body"] == "ä" * 512
        assert base64.b64decode(rows[1]["body_base64"]) == hostile
        assert "cut" not in rows[1]
        assert rows[2]["body"] == ""
        less = json.loads(
            peek(*where, "-n1", "--body-bytes", "3", "--format", "json", queue).stdout
        )
        assert less["body"] == "ä"
        table = peek(*where, queue).stdout
        assert "\x1b" not in table
        assert table.split("\n")[0].endswith("\t200000\t" + "ä" * 60 + "…")
        assert table.split("\n")[1].endswith("\t16\t\\x1b[2J\\x00\\xffxxxxxxxxxx")
        whole = peek(*where, "--format", "body", "--limit", "1", queue)
        assert whole.stdout_bytes == large + b"\n"
        assert whole.stderr == ""
        some = peek(*where, "--format", "body", "--limit", "1", "--body-octets", "5", queue)
        assert "bodies cut: 1" in some.stderr


def test_peek_by_property_and_header(
    broker: LocalBroker, socket: Path, other: blocking.Channel, queue: str
) -> None:
    for n, kind in enumerate(("a", "b", "it's", "7")):
        headers: dict[str, Any] = {
            "n": n,
            "type": kind.upper(),
            "flag": n % 2 == 0,
            'odd "name"': "x",
        }
        other.publish(Message(str(n).encode(), type=kind, priority=n, headers=headers), queue)
    for where in (("--socket", socket), ("--url", broker.url)):
        for wanted, found in {
            ("type=b",): "1", ("type=it's",): "2", ("type=7",): "3", ("type=B",): "",
            ("headers.type=B",): "1", ("n=2",): "2", ("priority=3",): "3", ("flag=true",): "0 2",
            ("flag=true", "n=2"): "2", ('odd "name"=x', "n=0"): "0",
            (f"routing-key={queue}", "n=1"): "1",
        }.items():  # fmt: skip
            words = [word for each in wanted for word in ("--property", each)]
            shown = peek(*where, "--format", "body", *words, queue).stdout.split()
            assert " ".join(shown) == found, wanted
        both = peek(
            *where, "--format", "body", "--selector", "n = 0 OR n = 1", "--property", "n=1", queue
        )
        assert both.stdout == "1\n"


def test_peek_from_a_place(
    broker: LocalBroker, socket: Path, other: blocking.Channel, queue: str, name: Callable[..., str]
) -> None:
    stream = name("stream")
    other.declare_queue(stream, durable=True, arguments={"x-queue-type": "stream"})
    for place in (queue, stream):
        other.publish_many([b"0", b"1", b"2"], place)
    for where in (("--socket", socket), ("--url", broker.url)):
        for one in (queue, stream):
            show = ("--format", "body", *where, one)
            assert peek("--from", "first", *show).stdout == "0\n1\n2\n"
            assert peek("--from", "last", *show).stdout == "2\n"
            assert peek("--from", "next", *show).stdout == ""
            assert "--from 'then' is neither" in peek("--from", "then", *show).stderr
        show = ("--format", "body", *where)
        assert peek("--from", "2020-01-01", *show, stream).stdout == "0\n1\n2\n"
        assert peek("--from", "2099-01-01T00:00:00+00:00", *show, stream).stdout == ""
        assert peek("--from", "2020-01-01T00:00:00", *show, queue).stdout == "0\n1\n2\n"
        assert peek("--from", "2099-01-01", *show, queue).stdout == ""
    for _ in range(2):
        taken = other.get(queue)
        assert taken is not None
    taken.ack()  # 0 is held, 1 is gone.
    assert peek("--from", "last", "--socket", socket, "--format", "body", queue).stdout == "2\n"
    other.purge_queue(queue)
    nothing = peek("--from", "last", "--socket", socket, queue)
    assert (nothing.stdout, nothing.stderr) == ("", "no such messages\n")


def test_peek_at_what_is_delayed(
    broker: LocalBroker, socket: Path, other: blocking.Channel, queue: str
) -> None:
    nothing = peek("--socket", socket, "amq.delayed")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "no such messages\n")
    for n in (3, 1, 2):
        other.publish(Message(b"%d" % n, headers={"x-delay": n * HOUR_MS, "n": n}), queue)
    show = ("--socket", socket, "--format", "json")
    rows = [json.loads(line) for line in peek(*show, "amq.delayed").stdout.splitlines()]
    assert [row["body"] for row in rows] == ["1", "2", "3"]
    hours = [
        (datetime.fromisoformat(row["due"]) - datetime.now(UTC)).total_seconds() / 3600
        for row in rows
    ]
    assert hours == [pytest.approx(n, abs=0.05) for n in (1, 2, 3)]
    assert (rows[0]["routing_key"], "expires" in rows[0]) == (queue, False)
    assert "due=" in peek("--socket", socket, "--selector", "n = 2", "amq.delayed").stdout
    refused = peek("--socket", socket, "--from", "first", "amq.delayed")
    assert "in the order in which they are due" in refused.stderr
    assert "no queue 'amq.delayed'" in peek("--url", broker.url, "amq.delayed").stderr


def test_what_peek_cannot_do_is_said(
    broker: LocalBroker, socket: Path, queue: str, tmp_path: Path
) -> None:
    for words, said in (
        (("--socket", socket, "nowhere"), "no queue 'nowhere' in vhost '/'"),
        (("--url", broker.url, "nowhere"), "no queue 'nowhere' in vhost '/'"),
        (("--socket", socket, "--vhost", "x", queue), "there is no virtual host 'x'"),
        (("--socket", socket, "--selector", "n !", queue), "unexpected '!' at position 3"),
        (("--url", broker.url, "--selector", "n !", queue), "unexpected '!' at position 3"),
        (("--url", broker.url, "--vhost", "/", queue), "--vhost is for the socket"),
        (("--url", broker.url, "--socket", socket, queue), "give --url, or --data or --socket"),
        (("--socket", socket, "--property", "n", queue), "'n' is not NAME=VALUE"),
        (("--socket", socket, "-n", "0", queue), "0 is not in the range"),
        (("--socket", socket, "--format", "xml", queue), "'xml' is not one of"),
        (("--data", tmp_path, queue), "no broker runs there"),
    ):
        result = peek(*words)
        assert result.exit_code != 0
        assert said in result.stderr
        assert result.stdout == ""


def test_where_peek_looks(
    broker: LocalBroker, socket: Path, other: blocking.Channel, queue: str, tmp_path: Path
) -> None:
    other.publish(b"here", queue)
    nowhere = "amqp://localhost:1/"
    by_socket = {"HEADRACE_MANAGEMENT_SOCKET": str(socket), "HEADRACE_URL": nowhere}
    assert "here" in peek(queue, env=by_socket).stdout
    assert "here" in peek(queue, env={"HEADRACE_URL": broker.url}).stdout
    assert "here" in peek("--url", broker.url, queue, env=by_socket).stdout
    assert "here" in peek("--socket", socket, queue, env={"HEADRACE_URL": nowhere}).stdout
    assert peek(queue, env={"HEADRACE_URL": nowhere}).exit_code == 1
    told = CliRunner().invoke(main, ["peek", "--help"]).stdout
    for option in (
        "--limit",
        "--selector",
        "--property",
        "--from",
        "--format",
        "--socket",
        "--url",
    ):
        assert option in told


def test_the_brokers_own_queues_are_not_shown(socket: Path, broker: LocalBroker) -> None:
    with pytest.raises(ClickException, match="no queue"):
        ask(socket, "peek", queue="amq.headrace.requests.none")
    for fields in ({"count": 0}, {"bytes": 1 << 30}, {"from": -1}, {"from": True}, {"from": []}):
        with pytest.raises(ClickException):
            ask(socket, "peek", queue="nowhere", **fields)


# --- How far back, and whose ----------------------------------------------------------------------

REPLAY = "x-qpid-replay-period"


@every
@pytest.mark.parametrize("look", ["x-browse", "x-filter-no-consume", "queue", "stream"])
def test_a_browser_looks_back_for_a_while(
    connection: blocking.Connection,
    channel: blocking.Channel,
    other: blocking.Channel,
    name: Callable[..., str],
    look: str,
) -> None:
    queue = name()
    made = {
        "queue": {"qpid.ensure_nondestructive_consumers": True},
        "stream": {"x-queue-type": "stream"},
    }.get(look, {})
    other.declare_queue(queue, durable=True, arguments=made)  # type: ignore[arg-type]
    other.publish_many([b"0", b"1", b"2"], queue)
    how = {"x-filter-auto-close": True} | ({look: True} if look.startswith("x-") else {})
    assert shown(channel, queue, **how, **{REPLAY: 3600}) == "0 1 2"
    assert shown(channel, queue, **how, **{REPLAY: "3600"}) == "0 1 2"
    assert shown(channel, queue, **how, **{REPLAY: 0}) == ""
    for wrong in (-1, True, "soon", 2.5, 1 << 40):
        with pytest.raises(ClientError, match="expected 0 to 999999999 seconds"):
            shown(channel, queue, **how, **{REPLAY: wrong})
        channel = connection.channel()
    with pytest.raises(ClientError, match="contradicts 'x-stream-offset'"):
        shown(channel, queue, **how, **{REPLAY: 1, "x-stream-offset": "first"})


@every
def test_what_takes_does_not_look_back(
    channel: blocking.Channel, other: blocking.Channel, queue: str
) -> None:
    with pytest.raises(ClientError, match="only consumers that browse may have it"):
        shown(channel, queue, **{REPLAY: 1})
    assert other.declare_queue(queue, passive=True).consumer_count == 0


def test_older_messages_are_not_shown(other: blocking.Channel, queue: str) -> None:
    other.publish(b"old", queue)
    deadline = time.monotonic() + PATIENCE_S
    while browsed(other, queue, **{REPLAY: 1}) == "old":
        assert time.monotonic() < deadline
    numbers = count()

    def is_shown(in_time: Callable[[], None]) -> None:
        new = f"new{next(numbers)}"
        other.publish(new.encode(), queue)
        seen = browsed(other, queue, **{REPLAY: 1}).split()
        assert seen[-1:] == [new]
        assert "old" not in seen
        in_time()

    undisturbed(is_shown, 0.5)
    assert browsed(other, queue, **{REPLAY: 3600}).split()[:2] == ["old", "new0"]
    with other.consume(queue, arguments={"x-filter-no-consume": True, REPLAY: 0}) as browser:
        other.publish(b"now", queue)
        assert browser.receive(PATIENCE_S).body == b"now"


@every
@pytest.mark.parametrize("kind", ["stream", "partition"])
def test_no_local_on_a_stream(
    connection: blocking.Connection,
    channel: blocking.Channel,
    other: blocking.Channel,
    name: Callable[..., str],
    kind: str,
) -> None:
    stream = make(other, KINDS[kind], name())
    other.publish_many([b"0", b"1"], stream)
    own = {"x-qpid-no-local": True}
    with channel.consume(stream, prefetch=5, arguments={**own, "x-stream-offset": 0}) as reader:
        for n in range(2, 8):
            (channel if n % 2 else other).publish(b"%d" % n, stream)
        found = []
        for _ in range(5):
            delivery = reader.receive(PATIENCE_S)
            found.append(delivery.body)
            delivery.ack()
        assert found == [b"0", b"1", b"2", b"4", b"6"]
    with channel.consume(stream, prefetch=5, arguments=own) as reader:
        channel.publish(b"8", stream)
        other.publish(b"9", stream)
        assert reader.receive(PATIENCE_S).body == b"9"
    with pytest.raises(ClientError, match="may have published existing records"):
        with channel.consume(stream, prefetch=5, arguments={**own, "x-stream-offset": "first"}):
            pass
    with other.consume(stream, prefetch=20, arguments={"x-stream-offset": "first"}) as reader:
        assert [reader.receive(PATIENCE_S).body for _ in range(10)] == [
            b"%d" % n for n in range(10)
        ]


@every
def test_no_local_on_a_browser(
    channel: blocking.Channel, other: blocking.Channel, queue: str
) -> None:
    for n in range(4):
        (channel if n % 2 else other).publish(b"%d" % n, queue)
    for look in ("x-browse", "x-filter-no-consume"):
        how = {look: True, "x-filter-auto-close": True, "x-qpid-no-local": True}
        assert shown(channel, queue, **how) == "0 2"
