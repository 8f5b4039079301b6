# SPDX-License-Identifier: Apache-2.0
"""Input that is wrong, hostile or endless: a clear answer, and a broker that is unhurt."""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import blocking
from headrace.console.api.routes import ROUTES
from headrace.console.http import request_body
from headrace.console.http.limits import BODY_BYTES_MAX, HEADERS_BYTES_MAX
from headrace.console.http.routes import SAFE
from headrace.console.run import Console
from headrace.console.settings import ConsoleSettings
from support.console import LocalConsole, basic
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.console.http.routes import Route

BASIC = f"Authorization: {basic('guest', 'guest')}\r\n".encode()
HEAD = b"Host: localhost\r\n" + BASIC
PUT = b"PUT /api/queues/%2F/smuggled HTTP/1.1\r\n" + HEAD
GET = b"GET /api/whoami HTTP/1.1\r\n" + HEAD
DEEP = 100_000
WRONG: tuple[object, ...] = (
    None, True, -1, 1.5, 10**30, "", "x" * 300, "\0", "\ud800", [], [None], [[]], {}, {"": {}},
)  # fmt: skip
BODIES = {
    "deep lists": b"[" * DEEP,
    "deep objects": b'{"arguments":' * DEEP,
    "deep and whole": b'{"arguments":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "a huge number": b'{"arguments":{"x-max-length":' + b"9" * 10_000 + b"}}",
    "a number beyond a double": b'{"arguments":{"x-max-length":1e400}}',
    "no number": b'{"arguments":{"x-max-length":NaN}}',
    "no UTF-8": b'{"arguments":{"\xff":1}}',
    "a cut object": b'{"durable":',
    "two values": b"{}{}",
    "a list": b"[]",
    "a text": b'"{}"',
    "a number": b"7",
}


@pytest.fixture(autouse=True)
def _unhurt(console: LocalConsole) -> Iterator[None]:
    """After each test, the console answers, and a message passes through the broker."""
    yield
    assert console.get("/api/whoami")["name"] == "guest"
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        queue = channel.declare_queue("", exclusive=True)
        channel.publish(b"still here", routing_key=queue.name)
        delivery = channel.get(queue.name)
        assert delivery is not None
        assert bytes(delivery.body) == b"still here"


def filled(route: Route, value: str) -> str:
    """Return a route's path with a value for each parameter."""
    segments = [value if one.startswith("{") else one for one in route.path.split("/")]
    return "/".join(segments)


def bodies_of(route: Route) -> list[Any]:
    """Return bodies in which one field after the other has a wrong type."""
    properties = (route.body or {}).get("properties", {})
    names = list(properties) or ["name"]
    one = [{name: value} for name in names for value in WRONG]
    return one + [dict.fromkeys(names, value) for value in WRONG]


WRITES = [route for route in ROUTES if route.method not in SAFE]


@pytest.mark.parametrize("route", WRITES, ids=lambda one: f"{one.method} {one.path}")
def test_wrong_types_are_refused_on_each_route(console: LocalConsole, route: Route) -> None:
    path = filled(route, "absent")
    for body in bodies_of(route):
        answer = console.ask(route.method, path, body)
        assert answer.status < 500, (body, answer.body)
        if answer.status >= 400:
            assert set(answer.json) == {"error", "reason"}, body


@pytest.mark.parametrize("kind", BODIES)
def test_bodies_that_are_no_objects_are_refused(console: LocalConsole, kind: str) -> None:
    answer = console.ask("PUT", "/api/queues/%2F/bad-body", BODIES[kind])
    assert answer.status == 400, answer.body
    assert len(answer.body) < 1000, "an error repeats no body"
    assert console.ask("GET", "/api/queues/%2F/bad-body").status == 404


@pytest.mark.parametrize("name", ["q" * 256, "%00", "%ED%A0%80", "%FF", "%C3%A9" * 128, "a%0D%0Ab"])
@pytest.mark.parametrize("route", ["queues", "exchanges"])
def test_names_that_no_frame_can_hold(console: LocalConsole, route: str, name: str) -> None:
    path = f"/api/{route}/%2F/{name}"
    answer = console.ask("PUT", path, {"type": "topic"} if route == "exchanges" else {})
    found = console.ask("GET", path)
    if answer.status == 201:  # A name that AMQP allows, as odd as it is.
        assert found.status == 200
        assert console.ask("DELETE", path).status == 204
    else:
        assert answer.status == 400, answer.body
        assert found.status in (400, 404)


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: f"{one.method} {one.path}")
@pytest.mark.parametrize("name", ["q" * 300, "%ED%A0%80", "%00", "%22%3E%3Cscript%3E", "%2e%2e%2f"])
def test_hostile_names_in_each_path(console: LocalConsole, route: Route, name: str) -> None:
    if "{" not in route.path:
        return
    answer = console.ask(route.method, filled(route, name), None if route.method in SAFE else {})
    is_probe = route.path.startswith("/api/health/")
    assert answer.status < 500 or (is_probe and answer.status == 503), answer.body
    kind = answer.headers.get("Content-Type", "application/json")
    assert not answer.body or not kind.startswith("text/html"), "no answer is a page"


@pytest.mark.parametrize(
    "query",
    [
        "columns=nothing,really",
        "columns=" + "a," * 2000,
        "sort=nothing",
        "sort=__class__.__mro__",
        "page=1&page_size=500&name=" + "(a%2B)" * 200 + "%24&use_regex=true",
        "page=1&name=" + "a" * 2000 + "&use_regex=true",
        "page=1&name=" + "((((((((((a%7B100%7D)%7B100%7D)%7B100%7D))))))))&use_regex=true",
        "page=-1",
        "page=1&page_size=99999999999999999999",
        "lengths_age=1e9&lengths_incr=0",
        "page=%00",
    ],
)
def test_questions_that_make_no_sense(console: LocalConsole, query: str) -> None:
    for path in ("/api/queues", "/api/exchanges", "/api/connections"):
        answer = console.ask("GET", f"{path}?{query}")
        assert answer.status in (200, 400), answer.body


# --- Bytes that are no HTTP, or more than one reading of it ---------------------------------------


def first(console: LocalConsole, raw: bytes) -> int:
    """Send bytes; return the status of the answer, without waiting for the connection's end."""
    with socket.create_connection(("127.0.0.1", console.port), PATIENCE_S) as end:
        end.sendall(raw)
        return status_of(end.recv(65536))


def status_of(raw: bytes) -> int:
    """Return the status of the first answer; 0 for none."""
    head = raw.split(b" ", 2)
    return int(head[1]) if len(head) == 3 else 0


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(
            PUT + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="both"
        ),
        pytest.param(
            PUT + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}xyz", id="two lengths"
        ),
        pytest.param(PUT + b"Content-Length: +2\r\n\r\n{}", id="a sign"),
        pytest.param(PUT + b"Content-Length: -1\r\n\r\n", id="below zero"),
        pytest.param(PUT + b"Content-Length: 1_0\r\n\r\n{}        ", id="an underscore"),
        pytest.param(PUT + b"Content-Length: 0x2\r\n\r\n{}", id="hexadecimal"),
        pytest.param(PUT + b"Content-Length : 2\r\n\r\n{}", id="a space before the colon"),
        pytest.param(PUT + b"X: a\r\n folded\r\nContent-Length: 2\r\n\r\n{}", id="folded"),
        pytest.param(PUT + b"Transfer-Encoding: xchunked\r\n\r\n{}", id="another encoding"),
        pytest.param(
            PUT + b"Transfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n", id="not last"
        ),
        pytest.param(
            PUT + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", id="bad size"
        ),
        pytest.param(PUT + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", id="-2"),
        pytest.param(PUT + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n", id="bad end"),
        pytest.param(
            PUT + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n", id="huge size"
        ),
        pytest.param(PUT + b"X\0: a\r\nContent-Length: 2\r\n\r\n{}", id="NUL in a name"),
        pytest.param(PUT + b"X: a\0\r\nContent-Length: 2\r\n\r\n{}", id="NUL in a value"),
        pytest.param(GET.replace(b"1.1", b"3.7") + b"\r\n", id="another version"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS without TLS"),
        pytest.param(b"AMQP\0\0\x09\x01", id="AMQP"),
    ],
)
def test_what_others_may_read_otherwise_is_refused(console: LocalConsole, raw: bytes) -> None:
    """No request that a proxy may cut elsewhere is served; the connection ends."""
    with socket.create_connection(("127.0.0.1", console.port), PATIENCE_S) as end:
        end.sendall(raw + GET.replace(b"whoami", b"cluster-name") + b"\r\n")
        end.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := end.recv(65536):
                found += piece
    assert status_of(found) in (0, 400), found[:200]
    assert found.count(b"HTTP/1.") <= 1, "what follows is not taken for a request"
    assert console.ask("GET", "/api/queues/%2F/smuggled").status == 404


def test_headers_without_number_or_end(console: LocalConsole) -> None:
    many = b"".join(b"x-%d: 1\r\n" % number for number in range(5000))
    assert first(console, GET + many + b"\r\n") == 400
    wide = b"".join(
        b"x-%d: %s\r\n" % (one, b"v" * 1000) for one in range(HEADERS_BYTES_MAX // 1000 + 1)
    )
    assert first(console, GET + wide + b"\r\n") == 431
    deep = GET.replace(b"/api/whoami", b"/api" + b"/a" * 4000)
    assert status_of(console.send(deep + b"Connection: close\r\n\r\n")) == 404


def test_an_endless_body_ends_at_the_limit(console: LocalConsole) -> None:
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with socket.create_connection(("127.0.0.1", console.port), PATIENCE_S) as end:
        end.sendall(PUT + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(64 * BODY_BYTES_MAX // 65536):
            end.sendall(piece)
            if select.select([end], [], [], 0)[0]:
                break
        assert status_of(end.recv(65536)) == 400
    assert console.ask("GET", "/api/queues/%2F/smuggled").status == 404


def test_a_body_that_is_announced_too_long_is_not_read(console: LocalConsole) -> None:
    raw = PUT + b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n"
    assert first(console, raw) == 400


def test_a_body_that_does_not_come(console: LocalConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "BODY_S", 0.1)
    assert first(console, PUT + b"Content-Length: 2\r\n\r\n{") == 408


def test_a_client_that_leaves_within_its_body(console: LocalConsole) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", console.port), PATIENCE_S) as end:
            end.sendall(PUT + b"Content-Length: 1000\r\n\r\n{")
    assert console.ask("GET", "/api/queues/%2F/smuggled").status == 404


def test_many_requests_in_one_write_are_answered_in_order(console: LocalConsole) -> None:
    raw = (GET + b"\r\n") * 200 + GET + b"Connection: close\r\n\r\n"
    assert console.send(raw).count(b"HTTP/1.1 200 ") == 201


# --- A socket of something else -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "of this version"),
        (b"", "closed the connection"),
        (b"[1,2]\n", "closed the connection"),
        (b'{"error":"unknown operation \'login\'","code":"bad-request"}\n', ""),
        (b'{"done":{}}\n', "of this version"),
        (b'{"done":[]}\n', "of this version"),
    ],
)
def test_a_socket_of_another_version(tmp_path: Path, says: bytes, told: str) -> None:
    path = tmp_path / "management.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        threading.Thread(target=answer_all, args=(other, says), daemon=True).start()
        with console_at(path, tmp_path) as port:
            status, body = ask_at(port)
        other.shutdown(socket.SHUT_RDWR)
    assert status in (401, 503) if not told else status == 503, body
    assert told in json.loads(body)["reason"]


def answer_all(listening: socket.socket, says: bytes) -> None:
    """Answer each request with the same bytes, and close."""
    with contextlib.suppress(OSError):
        while True:
            end, _ = listening.accept()
            with end, contextlib.suppress(OSError):
                end.recv(65536)
                end.sendall(says)


@contextlib.contextmanager
def console_at(path: Path, home: Path) -> Iterator[int]:
    """Run a console on a socket; yield its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_S)

    async def start() -> tuple[Console, dict[str, str]]:
        console = Console(ConsoleSettings(socket=path, port=0, metrics_port=None, history="none"))
        return console, await console.start()

    try:
        console, addresses = run(start())
        yield int(addresses["http"].rpartition(":")[2])
        run(console.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


def ask_at(port: int) -> tuple[int, bytes]:
    """Ask a console who the user is."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as end:
        end.sendall(GET + b"Connection: close\r\n\r\n")
        found = b""
        while piece := end.recv(65536):
            found += piece
    return status_of(found), found.partition(b"\r\n\r\n")[2]
