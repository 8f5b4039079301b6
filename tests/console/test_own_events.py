# SPDX-License-Identifier: Apache-2.0
"""The broker's events as Server-Sent Events."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import TYPE_CHECKING, Any

import pytest

from headrace.console.api import events as sent
from headrace.server.management.resources import events
from support.brokers.broker_process import until
from support.console import GUEST, LocalConsole, basic
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECRET = "a-password-of-tests"
EVENTS = "/api/headrace/events"


class Reader:
    """A client that reads a stream."""

    def __init__(
        self,
        console: LocalConsole,
        query: str,
        user: tuple[str, str] | None,
        headers: Mapping[str, str] | None,
    ) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=PATIENCE_S)
        login = {} if user is None else {"Authorization": basic(*user)}
        self.connection.request("GET", f"{EVENTS}?{query}", headers={**login, **(headers or {})})
        self.answer = self.connection.getresponse()

    def next(self) -> dict[str, str]:
        """Return the fields of the next event; comments and ``retry`` are none."""
        fields: dict[str, str] = {}
        while True:
            line = self.answer.readline().decode()
            assert line, "the stream has ended"
            if line == "\n":
                if "data" in fields:
                    return fields
                fields = {}
                continue
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value

    def told(self) -> dict[str, Any]:
        """Return the next event of the broker."""
        event = self.next()
        assert "event" not in event, event
        found: dict[str, Any] = json.loads(event["data"])
        assert event["id"] == str(found["at_ms"])
        return found


@contextlib.contextmanager
def stream(
    console: LocalConsole,
    query: str = "",
    user: tuple[str, str] | None = GUEST,
    headers: Mapping[str, str] | None = None,
) -> Iterator[Reader]:
    """Read a stream for the time of the block."""
    reader = Reader(console, query, user, headers)
    try:
        yield reader
    finally:
        reader.connection.close()


def link(console: LocalConsole) -> Any:
    return console.console.link  # type: ignore[union-attr]


def declare(console: LocalConsole, name: str, vhost: str = "/") -> None:
    console.run(link(console).ask("declare queue", name=name, vhost=vhost))


def add_user(console: LocalConsole, name: str, tags: list[str], vhost: str) -> None:
    console.run(link(console).ask("put vhost", name=vhost))
    console.run(link(console).ask("put user", name=name, password=SECRET, tags=tags))
    given = {"configure": ".*", "write": ".*", "read": ".*"}
    console.run(link(console).ask("put permission", user=name, vhost=vhost, **given))


def test_each_event_is_sent(console: LocalConsole) -> None:
    with stream(console) as reader:
        assert reader.answer.headers["Content-Type"] == "text/event-stream"
        assert reader.answer.headers["Cache-Control"] == "no-store"
        assert "Content-Security-Policy" in reader.answer.headers
        declare(console, "n\u00e4me")
        found = reader.told()
        assert (found["kind"], found["facts"]["name"]) == ("queue.created", "n\u00e4me")


def test_kind_and_vhost_choose(console: LocalConsole) -> None:
    add_user(console, "someone", ["management"], "mine")
    with stream(console, "kind=exchange,queue.deleted&vhost=mine") as reader:
        for vhost in ("/", "mine"):
            declare(console, "q", vhost)
            console.run(link(console).ask("delete queue", name="q", vhost=vhost))
        found = reader.told()
        assert (found["kind"], found["facts"]["vhost"]) == ("queue.deleted", "mine")


def test_a_user_is_told_what_it_may_see(console: LocalConsole) -> None:
    add_user(console, "ada", ["management"], "hers")
    with stream(console, "kind=queue", ("ada", SECRET)) as reader:
        declare(console, "theirs")
        declare(console, "ours", "hers")
        assert reader.told()["facts"]["name"] == "ours"
    for query in ("vhost=%2F", "vhost=none"):
        assert console.ask("GET", f"{EVENTS}?{query}", user=("ada", SECRET)).status == 404


def test_a_stream_ends_with_its_ticket(console: LocalConsole) -> None:
    add_user(console, "eve", ["management"], "hers")
    with stream(console, "kind=queue", ("eve", SECRET)) as reader:
        console.run(link(console).ask("put user", name="eve", password="other", tags="management"))
        declare(console, "late", "hers")
        assert reader.next() == {
            "event": "end", "data": '{"reason":"the ticket has ended"}'
        }  # fmt: skip
        assert reader.answer.read() == b""
    assert console.ask("GET", EVENTS, user=("eve", SECRET)).status == 401


def test_a_stream_ends_with_its_session(console: LocalConsole) -> None:
    login = {"username": "guest", "password": "guest"}
    answer = console.ask("POST", "/api/login", login, user=None)
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    token = {"Cookie": cookie, "X-CSRF-Token": answer.headers["X-CSRF-Token"]}
    with stream(console, user=None, headers={"Cookie": cookie}) as reader:
        declare(console, "seen")
        assert reader.told()["facts"]["name"] == "seen"
        own = {**token, "Sec-Fetch-Site": "same-origin"}
        answer = console.ask("DELETE", "/api/login", user=None, headers=own)
        assert answer.status == 204, answer.body
        declare(console, "unseen")
        assert reader.next()["event"] == "end"


def test_who_comes_back_is_told_of_the_gap(console: LocalConsole) -> None:
    with stream(console, headers={"Last-Event-ID": "1700000000123"}) as reader:
        assert reader.next() == {"event": "gap", "data": '{"since_ms":1700000000123}'}
        declare(console, "after-the-gap")
        assert reader.told()["facts"]["name"] == "after-the-gap"


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("", {"Last-Event-ID": "x"}),
        ("", {"Last-Event-ID": "9" * 16}),
        (f"kind={'q' * 256}", {}),
        (f"kind={','.join(['queue'] * 33)}", {}),
    ],
)
def test_a_wrong_question_is_refused(console: LocalConsole, query: str, headers: Any) -> None:
    answer = console.ask("GET", f"{EVENTS}?{query}", headers=headers)
    assert (answer.status, set(answer.json)) == (400, {"error", "reason"})


def until_free(console: LocalConsole) -> None:
    """Wait until the broker has no stream left."""
    until(lambda: console.broker._broker.managed.event_streams == 0, "no stream is left", 5.0)


def test_streams_are_few_and_one_that_ends_makes_room(console: LocalConsole) -> None:
    with contextlib.ExitStack() as open_streams:
        until_free(console)
        for _ in range(events.STREAMS_MAX):
            open_streams.enter_context(stream(console))
        answer = console.ask("GET", EVENTS)
        assert (answer.status, answer.headers["Retry-After"]) == (429, "5")
        assert console.get("/api/overview")["node"], "others are served"

    until_free(console)


def test_head_is_answered_without_a_stream(console: LocalConsole) -> None:
    answer = console.ask("HEAD", EVENTS)
    assert (answer.status, answer.body) == (200, b"")


def test_what_a_slow_reader_cannot_take_is_counted() -> None:
    buffer = sent.Buffer()
    piece = b"x" * (sent.BUFFER_BYTES_MAX // 2)
    for _ in range(5):
        buffer.put(piece)
    buffer.lose(7)
    found = buffer.take()
    assert found.startswith(piece * 2)
    assert found[2 * len(piece) :] == b'event: lost\ndata: {"lost":10}\n\n'
    buffer.put(piece)
    assert buffer.take() == piece


def test_a_reader_that_does_not_read_is_told_how_many_it_lost(console: LocalConsole) -> None:
    count, note = 500, "x" * 20_000  # More than the buffers of the sockets and the console hold.
    with stream(console, "kind=queue.created") as reader:
        console.run(burst(console, count, note))
        seen = lost = 0
        while seen + lost < count:
            event = reader.next()
            told = json.loads(event["data"])
            lost += told["lost"] if event.get("event") == "lost" else 0
            seen += "kind" in told
        assert (seen + lost, lost > 0) == (count, True)


async def burst(console: LocalConsole, count: int, note: str) -> None:
    """Declare queues."""
    for number in range(count):
        fields = {"name": f"burst-{number}", "arguments": {"note": note}}
        await link(console).ask("declare queue", **fields)
