# SPDX-License-Identifier: Apache-2.0
"""Jobs: whole, once, and on every kind of queue, from each version to the others."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.cli.messages import jobs
from headrace.cli.messages.move import messages
from headrace.client import Message, blocking
from headrace.client.blocking_pipeline import Requests
from headrace.client.requests import RequestRefused
from headrace.model.operations import message_job
from headrace.testing.broker import ChildBroker, LocalBroker
from support.clients.client_fixtures import channel_of
from support.queue_contents import left
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ["0-8", "0-9", "0-9-1", "0-10"]
STREAM = {"x-queue-type": "stream"}
KINDS: dict[str, dict[str, Any]] = {
    "priority": {"x-max-priority": 9},
    "last-value": {"qpid.last_value_queue_key": "k"},
    "sorted": {"qpid.queue_sort_key": "k"},
    "shared groups": {"qpid.group_header_key": "k", "qpid.shared_msg_group": 1},
    "exclusive groups": {"qpid.group_header_key": "k"},
    "fair share": {"qpid.priorities": 10, "qpid.fairshare": 1},
    "ring": {"x-max-length": 5},
    "deduplicating": {"x-message-deduplication": True, "x-deduplication-header": "k"},
}


@pytest.fixture(scope="module")
def management_socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("management") / "socket"


@pytest.fixture(scope="module")
def shared(management_socket: Path) -> Iterator[LocalBroker]:
    with LocalBroker(job_messages_max=3000, management_socket=management_socket) as broker:
        yield broker


@pytest.fixture
def channel(shared: LocalBroker) -> Iterator[blocking.Channel]:
    with blocking.connect(shared.url) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
def requests(shared: LocalBroker) -> Iterator[Requests]:
    with blocking.connect(shared.url) as connection, Requests(connection) as requests:
        yield requests


def fill(channel: blocking.Channel, queue: str, count: int, ranks: int = 1) -> None:
    """Messages with keys that come again, and priorities that go up and down."""
    channel.publish_many(
        (Message(b"%d" % n, headers={"n": n, "k": "cab"[n % 3]}, priority=4 * n % ranks)
         for n in range(count)), queue
    )  # fmt: skip


def count(channel: blocking.Channel, queue: str) -> int:
    return channel.declare_queue(queue, passive=True).message_count


def stand_still(monkeypatch: pytest.MonkeyPatch, looked: int) -> None:
    """Let jobs go no further than so many messages, until this is undone."""
    read = message_job.Job._read

    def some(job: message_job.Job) -> list[message_job.Message]:  # type: ignore[name-defined]
        return read(job)[: max(looked - job._looked, 0)]

    monkeypatch.setattr(message_job.Job, "_read", some)


# --- Whole --------------------------------------------------------------------------------------


def test_more_than_the_bound_is_refused_and_nothing_changed(
    channel: blocking.Channel, requests: Requests, queues: list[str]
) -> None:
    source, target = queues
    fill(channel, source, 3200)
    for selector in ("", "n >= 0"):
        with pytest.raises(RequestRefused, match=r"job_messages_max.*--limit") as refused:
            requests.ask("messages.move", **{"from": source}, to=target, selector=selector)
        assert refused.value.code == "limit"
    assert count(channel, source) == 3200
    done = requests.ask("messages.move", **{"from": source}, to=target, count=3000)
    assert (done["done"], done["complete"]) == (3000, False)
    assert left(channel, source) == list(range(3000, 3200))
    assert left(channel, target) == list(range(3000))


@pytest.mark.parametrize("how", ["request", "connection", "command"])
def test_what_is_cancelled_is_back_in_its_place(
    shared: LocalBroker,
    channel: blocking.Channel,
    requests: Requests,
    queues: list[str],
    management_socket: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    stand_still(monkeypatch, 40)
    monkeypatch.setattr(message_job, "BATCH_MAX", 7)
    source, target = queues
    fill(channel, source, 2000)
    with blocking.connect(shared.url) as connection, Requests(connection) as others:
        names = {"from": source, "to": target, "id": f"cancelled {source}"}
        begun = others.ask("messages.move", **names, wait=False)
        assert begun["state"] == "choosing"
        held = channel.get(source)
        while requests.ask("messages.job", id=names["id"])["done"] < 30:
            pass
        if how == "request":
            others.ask("messages.cancel", id=names["id"])
        elif how == "command":
            words = ["messages", "cancel", names["id"], "--socket", str(management_socket)]
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 0, done.output
    while (state := requests.ask("messages.job", id=names["id"]))["state"] == "choosing":
        pass
    assert state["state"] == "failed"
    assert "nothing was changed" in state["error_text"]
    assert held is not None
    first = int(held.body)
    held.ack()
    assert left(channel, target) == []
    monkeypatch.undo()
    assert left(channel, source) == [n for n in range(2000) if n != first]
    assert requests.ask("messages.move", **names)["done"] == 0  # It is tried again.


def test_a_queue_that_is_deleted_ends_the_job(
    channel: blocking.Channel,
    requests: Requests,
    queues: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_still(monkeypatch, 40)
    monkeypatch.setattr(message_job, "BATCH_MAX", 7)
    source, target = queues
    fill(channel, source, 300)
    name = f"deleted {source}"
    requests.ask("messages.move", **{"from": source}, to=target, id=name, wait=False)
    channel.delete_queue(target)
    while (state := requests.ask("messages.job", id=name))["state"] == "choosing":
        pass
    assert f"queue '{target}' was deleted meanwhile" in state["error_text"]
    assert left(channel, source) == list(range(300))


def test_all_or_nothing_over_kills(tmp_path: Path) -> None:
    size = 3000
    with ChildBroker(tmp_path / "data") as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            for queue in ("a", "b"):
                channel.declare_queue(queue, durable=True)
            fill(channel, "a", size)
        for source, target, stage in (("a", "b", "choosing"), ("b", "a", "moving")):
            names = {"from": source, "to": target, "id": stage}
            kill_at(broker, names, stage)
            broker.start()
            with (
                blocking.connect(broker.url) as connection,
                Requests(connection) as requests,
                connection.channel() as channel,
            ):
                moved = count(channel, target)
                assert (moved, count(channel, source)) in ((0, size), (size, 0))
                answer = requests.ask("messages.move", **names)
                assert (answer["done"], answer["already"]) == (size, moved == size)
                assert requests.ask("messages.move", **names)["already"]
                assert (count(channel, source), count(channel, target)) == (0, size)
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            assert left(channel, "a") == list(range(size))


def kill_at(broker: ChildBroker, names: dict[str, str], stage: str) -> None:
    """Kill the broker when a job is at a stage, or beyond it."""
    with (
        suppress(Exception),
        blocking.connect(broker.url, reconnect=None) as connection,
        Requests(connection) as requests,
    ):
        state = requests.ask("messages.move", **names, wait=False)
        while state["state"] == "choosing" and (stage != "choosing" or state["done"] < 600):
            state = requests.ask("messages.job", id=names["id"])
        broker.kill()


# --- Once ---------------------------------------------------------------------------------------


def test_what_is_asked_for_again_is_done_once(
    channel: blocking.Channel, requests: Requests, queues: list[str]
) -> None:
    source, target = queues
    fill(channel, source, 10)
    names = {"from": source, "to": target, "id": f"once {source}"}
    first = requests.ask("messages.copy", **names, selector="n < 4")
    again = requests.ask("messages.copy", **names, selector="n < 4")
    assert (first["done"], first["already"]) == (4, False)
    assert (again["done"], again["already"], again["to"]) == (4, True, {target: 4})
    assert requests.ask("messages.job", id=names["id"])["state"] == "done"
    for what, fields in (("messages.copy", {"selector": "n < 5"}), ("messages.move", {})):
        with pytest.raises(RequestRefused, match="is a different one"):
            requests.ask(what, **names, **fields)
    for what in ("messages.job", "messages.errand"):  # Its name in earlier versions.
        assert requests.ask(what, id=names["id"])["done"] == 4
        with pytest.raises(RequestRefused, match="there is no job"):
            requests.ask(what, id="nobody's")
    assert left(channel, target) == [0, 1, 2, 3]


def former(command: list[str]) -> list[str]:
    """Return a command with the word that jobs had in earlier versions."""
    return [word.replace("job", "errand") for word in command]


def test_what_was_done_is_known_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_still(monkeypatch, 0)  # So that it can be seen under way.
    shown = ["list", "jobs", "--format", "json", "--data", str(tmp_path / "data")]
    with LocalBroker(tmp_path / "data") as broker:
        names = {"from": "a", "to": "b", "id": "copy"}
        for already in (False, True):
            with (
                blocking.connect(broker.url) as connection,
                Requests(connection) as requests,
                connection.channel() as channel,
            ):
                for queue in ("a", "b"):
                    channel.declare_queue(queue, durable=True)
                if not already:
                    fill(channel, "a", 500)
                    requests.ask("messages.copy", **names, wait=False)
                    [line] = CliRunner().invoke(main, shown).stdout.splitlines()
                    assert json.loads(line)["id"] == "copy"
                    assert json.loads(line)["state"] == "choosing"
                    assert [line] == CliRunner().invoke(main, former(shown)).stdout.splitlines()
                    monkeypatch.undo()
                    assert not requests.ask("messages.copy", **names)["already"]  # It waits.
                answer = requests.ask("messages.copy", **names)
                assert (answer["done"], answer["already"]) == (500, True)
                assert count(channel, "b") == 500
            broker.restart()


def test_the_command_names_its_job(
    shared: LocalBroker, channel: blocking.Channel, queues: list[str]
) -> None:
    fill(channel, queues[0], 3)

    def run(*words: str) -> Any:
        return CliRunner().invoke(messages, words, env={"HEADRACE_URL": shared.url})

    said = run("copy", *queues)
    assert said.stdout == "3 messages copied\n"
    name = said.stderr.removeprefix("job ").strip()
    assert run("copy", "--id", name, *queues).stdout == (
        "3 messages copied before, under this name\n"
    )
    assert left(channel, queues[1]) == [0, 1, 2]


def test_ctrl_c_leaves_everything_as_it_was(
    shared: LocalBroker,
    channel: blocking.Channel,
    queues: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_still(monkeypatch, 40)
    fill(channel, queues[0], 1000)

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(jobs.time, "sleep", interrupted)  # type: ignore[attr-defined]
        said = CliRunner().invoke(messages, ["move", *queues], env={"HEADRACE_URL": shared.url})
    assert said.exit_code == 1
    assert "the job was cancelled; nothing was changed" in said.stderr
    assert (count(channel, queues[0]), count(channel, queues[1])) == (1000, 0)


def test_a_terminal_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    far = {"first": 10, "next": 60, "last": 110, "done": 20, "shown": 5, "state": "choosing"}
    with jobs.progress() as show:
        show(far)
        show({**far, "state": "moving", "next": 110})
    assert "20 chosen" in screen.getvalue()


# --- Kinds of queues, and versions --------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_queue_is_a_source_and_a_target(
    channel: blocking.Channel, requests: Requests, name: Callable[..., str], kind: str
) -> None:
    plain, full, stream, plain_too = name("plain"), name("full"), name("stream"), name("too")
    channel.declare_queue(plain)
    channel.declare_queue(plain_too, durable=True)
    channel.declare_queue(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.declare_queue(stream, durable=True, arguments=STREAM)
    made = {role: name(role) for role in ("as-it-is", "source", "target", "copied", "rest")}
    for queue in made.values():
        channel.declare_queue(queue, durable=True, arguments=KINDS[kind])
    for queue in (made["as-it-is"], made["source"], made["rest"], plain, stream):
        fill(channel, queue, 12, ranks=9)
    with pytest.raises(RequestRefused, match="has no room"):
        requests.ask("messages.move", **{"from": made["source"]}, to=full)
    requests.ask("messages.move", **{"from": plain}, to=made["target"])
    requests.ask("messages.copy", **{"from": stream}, to=made["copied"])
    done = requests.ask("messages.move", **{"from": made["rest"]}, to=plain_too, selector="n > 9")
    order = left(channel, made["as-it-is"])
    assert left(channel, made["source"]) == order  # It came back to its places.
    assert left(channel, made["target"]) == order
    assert left(channel, made["copied"]) == order
    assert left(channel, made["rest"]) == [n for n in order if n <= 9]
    moved = left(channel, plain_too)
    assert done["done"] == len(moved)
    assert sorted(moved) == sorted(n for n in order if n > 9)
    assert count(channel, plain) == 0


def test_what_is_not_valid_yet_waits_where_it_comes_to(
    channel: blocking.Channel, requests: Requests, name: Callable[..., str]
) -> None:
    plain, hold = name("plain"), name("hold")
    channel.declare_queue(plain)
    channel.declare_queue(hold, arguments={"holdOnPublishEnabled": True})
    due_ms = int(time.time() * 1000) + 250
    for body, when_ms in ((b"never", due_ms + 3_600_000), (b"later", due_ms)):
        channel.publish(Message(body, headers={"x-qpid-not-valid-before": when_ms}), plain)
    channel.publish(Message(b"now"), plain)
    assert requests.ask("messages.move", **{"from": plain}, to=hold)["done"] == 3
    with channel.consume(hold, no_ack=True) as consumer:
        found = {consumer.receive(PATIENCE_S).body for _ in range(2)}
    assert found == {b"now", b"later"}
    assert time.time() * 1000 >= due_ms


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_moved_is_read_in_any_version(
    shared: LocalBroker, requests: Requests, name: Callable[..., str], version: str
) -> None:
    moved, kept, target = name("moved"), name("kept"), name("target")
    about: dict[str, Any] = {
        "headers": {"n": 7, "text": "ä"},
        "content_type": "text/plain",
        "priority": 6,
        "message_id": "m-1",
        "correlation_id": "c-1",
        "type": "t",
    }
    with channel_of(f"{shared.url}?version={version}") as channel:
        for queue in (moved, kept, target):
            channel.declare_queue(queue, durable=True)
        for queue in (moved, kept):
            for body in (b"small", bytes(300_000)):
                channel.publish_many([Message(body, **about)] * len(VERSIONS), queue)
    assert requests.ask("messages.move", **{"from": moved}, to=target)["done"] == 8
    for reader in VERSIONS:
        with channel_of(f"{shared.url}?version={reader}") as channel:
            for _ in range(2):
                pair = [channel.get(queue) for queue in (kept, target)]
                told = [
                    (d.body, d.redelivered, dict(d.headers), *(getattr(d, a) for a in about))
                    for d in pair
                    if d is not None
                ]
                assert told[0] == told[1]
                assert len(told) == 2
                for delivery in pair:
                    assert delivery is not None
                    delivery.ack()
