# SPDX-License-Identifier: Apache-2.0
"""Messages that are looked at, moved, copied, given back and deleted by an operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.cli.inspect.peek import peek
from headrace.cli.messages.move import messages
from headrace.client import Message, blocking
from headrace.client.blocking_pipeline import Requests
from headrace.client.requests import RequestRefused
from headrace.testing.broker import LocalBroker
from support.queue_contents import left

if TYPE_CHECKING:
    from pathlib import Path

    import click


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def channel(shared: LocalBroker) -> Iterator[blocking.Channel]:
    with blocking.connect(shared.url) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
def run(shared: LocalBroker) -> Callable[..., str]:
    def run(command: click.Command, *arguments: str, fails: bool = False) -> str:
        result = CliRunner().invoke(command, arguments, env={"HEADRACE_URL": shared.url})
        assert (result.exit_code != 0) == fails, result.output
        lines = result.output.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("job cli-"))

    return run


def fill(channel: blocking.Channel, queue: str, count: int, start: int = 0) -> None:
    channel.publish_many(
        (Message(b"%d" % n, headers={"n": n}, type="odd" if n % 2 else "even", priority=4)
         for n in range(start, start + count)), queue
    )  # fmt: skip


def test_chosen_messages_move(
    channel: blocking.Channel, queues: list[str], run: Callable[..., str]
) -> None:
    source, target = queues
    fill(channel, source, 10)
    odd = ["--selector", "JMSType = 'odd'"]
    assert run(messages, "move", *odd, "--dry-run", source, target) == (
        "5 messages would be moved\n"
    )
    assert run(messages, "move", *odd, "-n", "2", source, target) == "2 messages moved\n"
    assert run(messages, "move", *odd, source, target) == "3 messages moved\n"
    moved = channel.get(target)
    assert moved is not None
    assert (moved.headers["n"], moved.type, moved.priority) == (1, "odd", 4)
    assert moved.routing_key == source
    assert not moved.redelivered
    moved.ack()
    assert left(channel, source) == [0, 2, 4, 6, 8]
    assert left(channel, target) == [3, 5, 7, 9]


def test_chosen_messages_are_copied_and_deleted(
    channel: blocking.Channel, queues: list[str], run: Callable[..., str]
) -> None:
    source, target = queues
    fill(channel, source, 2500)  # More than a batch.
    assert run(messages, "copy", "--selector", "n >= 100", source, target) == (
        "2400 messages copied\n"
    )
    assert run(messages, "delete", "--yes", "--selector", "n >= 5", source) == (
        "2495 messages deleted\n"
    )
    assert left(channel, source) == [0, 1, 2, 3, 4]
    assert left(channel, target) == list(range(100, 2500))
    assert "Aborted" in run(messages, "delete", source, fails=True)


def test_a_stream_is_copied_and_nothing_leaves_it(
    channel: blocking.Channel, queues: list[str], name: Callable[..., str], run: Callable[..., str]
) -> None:
    stream = name("stream")
    channel.declare_queue(stream, durable=True, arguments={"x-queue-type": "stream"})
    fill(channel, stream, 50)
    assert run(messages, "copy", "--selector", "n % 10 = 0", stream, queues[0]) == (
        "5 messages copied\n"
    )
    assert left(channel, queues[0]) == [0, 10, 20, 30, 40]
    fill(channel, queues[0], 3)
    assert run(messages, "move", queues[0], stream) == "3 messages moved\n"
    assert "from which messages cannot be removed" in run(
        messages, "move", stream, queues[0], fails=True
    )
    assert channel.declare_queue(stream, passive=True).message_count == 53


def test_dead_letters_go_back_to_where_they_died(
    channel: blocking.Channel, name: Callable[..., str], run: Callable[..., str]
) -> None:
    dead, orders, parcels = name("dead"), name("orders"), name("parcels")
    channel.declare_queue(dead, durable=True)
    for queue in (orders, parcels):
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        channel.declare_queue(queue, durable=True, arguments=letters)
    fill(channel, orders, 4)
    fill(channel, parcels, 2, start=10)
    fill(channel, dead, 1, start=99)
    for queue in (orders, orders, parcels):
        delivery = channel.get(queue)
        assert delivery is not None
        delivery.reject()
    given = run(messages, "requeue", "--dry-run", dead).splitlines()
    assert given[:3] == ["3 messages would be given back", f"2 to {orders}", f"1 to {parcels}"]
    out = run(messages, "requeue", dead)
    assert "3 messages given back" in out
    assert "1 stay: no x-death header names a queue" in out
    assert left(channel, dead) == [99]
    assert left(channel, parcels) == [11, 10]
    again = [channel.get(orders) for _ in range(4)]
    assert [int(each.body) for each in again if each is not None] == [2, 3, 0, 1]
    last = again[3]
    assert last is not None
    deaths: Any = last.headers["x-death"]
    assert deaths[0]["queue"] == orders


def test_what_is_in_the_way_is_said_and_nothing_lost(
    channel: blocking.Channel, queues: list[str], name: Callable[..., str], run: Callable[..., str]
) -> None:
    source, full = queues[0], name("full")
    channel.declare_queue(full, arguments={"x-max-length": 1500, "x-overflow": "reject-publish"})
    fill(channel, source, 2000)
    out = run(messages, "move", source, full, fails=True)
    assert "has no room for" in out
    assert "nothing was changed" in out
    assert channel.declare_queue(source, passive=True).message_count == 2000
    assert channel.declare_queue(full, passive=True).message_count == 0
    assert run(messages, "move", "--limit", "1500", source, full) == "1500 messages moved\n"
    assert left(channel, source) == list(range(1500, 2000))
    assert "unexpected '!'" in run(
        messages, "move", "--selector", "a ! b", source, full, fails=True
    )
    assert "no queue 'nowhere'" in run(messages, "move", source, "nowhere", fails=True)
    assert "is both the source and the target" in run(messages, "move", source, source, fails=True)


def test_what_others_hold_stays_with_them(
    channel: blocking.Channel, queues: list[str], run: Callable[..., str]
) -> None:
    source, target = queues
    fill(channel, source, 4)
    held = channel.get(source)
    assert held is not None
    assert run(messages, "move", source, target) == "3 messages moved\n"
    held.nack()
    back = channel.get(source)
    assert back is not None
    assert (back.body, back.redelivered) == (b"0", True)
    back.ack()
    assert left(channel, target) == [1, 2, 3]


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
def test_any_version_may_ask(
    shared: LocalBroker, channel: blocking.Channel, queues: list[str], version: str
) -> None:
    source, target = queues
    fill(channel, source, 6)
    url = f"{shared.url}?version={version}"
    with blocking.connect(url) as connection, Requests(connection) as requests:
        names = {"from": source, "to": target}
        done = requests.ask("messages.move", **names, selector="n > 3", count=1)
        assert (done["done"], done["to"], done["complete"]) == (1, {target: 1}, False)
        done = requests.ask("messages.move", **names, selector="n > 3", first=done["next"])
        assert (done["done"], done["looked"], done["complete"]) == (1, 1, True)
        with pytest.raises(RequestRefused, match="too early at position 4"):
            requests.ask("messages.delete", **{"from": source}, selector="n =")
    assert left(channel, source) == [0, 1, 2, 3]
    assert left(channel, target) == [4, 5]


def test_permissions_apply(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            for queue in ("mine", "theirs", "open"):
                channel.declare_queue(queue, durable=True)
            fill(channel, "mine", 2)
        where = {"HEADRACE_DATA": str(tmp_path / "data")}
        for words in (
            ["user", "add", "eve"],
            ["permission", "set", "eve", "^$", "open|amq.default", "mine"],
        ):
            result = CliRunner().invoke(main, words, env=where, input="secret\nsecret\n")
            assert result.exit_code == 0, result.output
        broker.restart()
        url = broker.url_of("eve", "secret")
        with blocking.connect(url) as connection, Requests(connection) as requests:
            for fields in (
                {"from": "theirs", "to": "open"},
                {"from": "mine", "to": "theirs"},
            ):
                with pytest.raises(RequestRefused, match="access to 'theirs'"):
                    requests.ask("messages.move", **fields)
            assert requests.ask("messages.move", **{"from": "mine"}, to="open")["done"] == 2


def test_peek_leaves_no_trace(
    channel: blocking.Channel, queues: list[str], name: Callable[..., str], run: Callable[..., str]
) -> None:
    priority, stream = name("priority"), name("stream")
    channel.declare_queue(priority, arguments={"x-max-priority": 9})
    channel.declare_queue(stream, durable=True, arguments={"x-queue-type": "stream"})
    for queue in (queues[0], priority, stream):
        fill(channel, queue, 20)
        bodies = run(peek, "--format", "body", "--count", "3", queue).split()
        assert bodies == ["0", "1", "2"]
        chosen = run(peek, "--format", "json", "--selector", "n > 16 OR n = 3", queue).splitlines()
        found = [json.loads(line) for line in chosen]
        assert [each["body"] for each in found] == ["3", "17", "18", "19"]
        assert found[0]["type"] == "odd"
        assert not any(each["redelivered"] for each in found)
        place = str(found[1]["position"])
        assert run(peek, "--format", "body", "--from", place, queue).split() == ["17", "18", "19"]
        line = run(peek, "-n", "1", queue).split("\t")
        assert line[2] == queue
        assert "type=even" in line[3]
        assert line[4:] == ["n=0", "1", "0\n"]
    assert run(peek, "--selector", "n > 100", queues[0]).strip() == "no such messages"
    assert "at position 3" in run(peek, "--selector", "n !", queues[0], fails=True)
    for queue in (queues[0], priority):
        assert left(channel, queue) == list(range(20))
    assert channel.declare_queue(stream, passive=True).message_count == 20


def test_what_was_done_as_json(
    channel: blocking.Channel, queues: list[str], run: Callable[..., str]
) -> None:
    fill(channel, queues[0], 3)
    answer = json.loads(run(messages, "move", "--json", "-n", "2", queues[0], queues[1]))
    assert (answer["state"], answer["done"], answer["skipped"]) == ("done", 2, {})
    answer = json.loads(run(messages, "delete", "--json", "--yes", queues[1]))
    assert answer["done"] == 2
