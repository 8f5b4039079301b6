# SPDX-License-Identifier: Apache-2.0
"""Clients that do not move take nothing from others: slots by address, and limits of time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from headrace.console.broker import login_throttle
from headrace.console.broker.errors import OperationRefused
from headrace.console.broker.login_throttle import LOGINS_OF_PEER_MAX, LoginThrottle
from headrace.console.http.limits import (
    CONNECTIONS_MAX,
    REQUESTS_OF_STRANGERS_MAX,
    WRITE_S,
    RunningRequests,
    client_network,
)
from headrace.console.pages.assets import asset_address
from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.console.http.connections import HttpServer
    from support.console import LocalConsole

QUEUES = 3000
SLOW_BODY = (
    "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
    "Content-Type: application/x-www-form-urlencoded\r\n\r\nusername="
)
LOGIN = "username=guest&password=guest"
RIGHT = SLOW_BODY.replace("100", str(len(LOGIN))).replace("username=", LOGIN)
WHOLE = b"\r\n0\r\n\r\n"  # The end of an answer in pieces.
SCRAPE = "GET /metrics/per-object HTTP/1.1\r\nHost: localhost\r\n\r\n"


def get(path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"


def sent(host: str, port: int, request: str) -> socket.socket:
    """A connection from an address that has sent a request."""
    end = socket.socket()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    end.settimeout(PATIENCE_S)
    end.bind((host, 0))
    end.connect(("127.0.0.1", port))
    end.sendall(request.encode())
    return end


def status(host: str, port: int, request: str) -> int:
    """The status of the answer that an address gets."""
    with sent(host, port, request) as end:
        return int(end.recv(1000).split()[1])


def server_of(console: LocalConsole, port: int) -> HttpServer:
    """The console's server of a port: that of the API is the first."""
    assert console.console is not None
    return console.console._applications[port != console.port].server


@contextlib.contextmanager
def stalled(console: LocalConsole, port: int, requests: list[tuple[str, str]]) -> Iterator[None]:
    """Have requests of addresses wait for their clients."""
    server = server_of(console, port)
    until(lambda: not server._stalled, "no one waits")
    with contextlib.ExitStack() as ends:
        for host, request in requests:
            ends.enter_context(sent(host, port, request))
        most = min(len(requests), CONNECTIONS_MAX)
        for one in {host for host, _ in requests}:
            own = sum(host == one for host, _ in requests)
            most -= max(0, own - REQUESTS_OF_STRANGERS_MAX)
        until(lambda: len(server._stalled) >= most, f"{most} requests wait for their clients")
        yield
    until(lambda: not server._stalled, "no one waits")


@pytest.fixture(scope="module")
def many(console: LocalConsole) -> LocalConsole:
    """The console of a broker with so much to tell that an answer fits into no socket."""
    queues = [{"name": f"slots.{at}.{'x' * 150}", "vhost": "/"} for at in range(QUEUES)]
    console.ask("POST", "/api/definitions", {"queues": queues})
    return console


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.0.3"])
def test_slow_login_bodies_leave_the_login_to_others(console: LocalConsole, host: str) -> None:
    """Also of the same address: what waits for its client longest is given up."""
    with stalled(console, console.port, [("127.0.0.2", SLOW_BODY)] * 70):
        paths = ("/login", asset_address("console.css"), asset_address("console.js"))
        probes = ("/api/health/checks/is-in-service", "/api/health/checks/ready-to-serve-clients")
        for path in (*paths, *probes):
            assert status(host, console.port, get(path)) == 200
        assert status(host, console.port, RIGHT) == 303


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.0.3"])
def test_scrapes_that_nobody_reads_leave_the_metrics_to_others(
    many: LocalConsole, host: str
) -> None:
    with stalled(many, many.metrics_port, [("127.0.0.2", SCRAPE)] * 64):
        for path in ("/metrics", "/metrics/per-object"):
            assert status(host, many.metrics_port, get(path)) == 200
        assert status("127.0.0.2", many.port, get("/login")) == 200


def test_a_client_that_does_not_read_is_closed(many: LocalConsole) -> None:
    server = server_of(many, many.metrics_port)
    now = server.clock
    with sent("127.0.0.2", many.metrics_port, SCRAPE) as end:
        until(lambda: server._stalled, "the answer waits for its reader")
        many.run(on_the_loop(server.close_silent))
        assert server._stalled
        server.clock = lambda: now() + WRITE_S
        try:
            many.run(on_the_loop(server.close_silent))
        finally:
            server.clock = now
        assert not server._stalled
        assert not rest(end).endswith(WHOLE)
        until(lambda: not server._leaving, "it has gone")


def rest(end: socket.socket) -> bytes:
    """What comes until the server closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := end.recv(65536):
            found += piece
            if found.endswith(WHOLE):
                break
    return found


async def on_the_loop(work: object) -> None:
    assert callable(work)
    work()


def test_a_client_that_reads_slowly_is_not_closed(many: LocalConsole) -> None:
    """Whenever it takes something, its time begins anew."""
    server = server_of(many, many.metrics_port)
    now = server.clock
    try:
        with sent("127.0.0.2", many.metrics_port, SCRAPE) as end:
            until(lambda: server._stalled, "the answer waits for its reader")
            (since,) = server._stalled.values()
            server.clock = lambda: now() + 0.9 * WRITE_S
            while list(server._stalled.values()) in ([], [since]):
                assert not end.recv(1 << 20).endswith(WHOLE)
            server.clock = lambda: now() + 1.8 * WRITE_S
            many.run(on_the_loop(server.close_silent))
            assert rest(end).endswith(WHOLE)
    finally:
        server.clock = now


def test_slow_bodies_of_many_addresses_leave_room_for_others(console: LocalConsole) -> None:
    """There are no more connections, and what waits for its client longest makes room."""
    per_host = REQUESTS_OF_STRANGERS_MAX
    hosts = [f"127.0.1.{at}" for at in range(1, CONNECTIONS_MAX // per_host + 2)]
    requests = [(host, SLOW_BODY) for host in hosts for _ in range(per_host)]
    with stalled(console, console.port, requests):
        for path in ("/login", asset_address("console.js")):
            assert status("127.0.0.3", console.port, get(path)) == 200
        assert status("127.0.0.3", console.port, RIGHT) == 303


def test_a_client_that_hung_up_in_an_answer_counts_no_longer(many: LocalConsole) -> None:
    server = server_of(many, many.metrics_port)
    with stalled(many, many.metrics_port, [("127.0.0.2", SCRAPE)] * 8):
        pass
    until(lambda: not server.connections, "all have gone")
    assert not server._waiting
    assert not server._leaving


def test_slots_are_given_back() -> None:
    running: RunningRequests[str] = RunningRequests(1, lambda held: min(held, default=None))
    with (
        running.count("a", "first"),
        running.count("a", "second"),
        running.count("b", "third"),
    ):
        assert running._running == {"a": {"second"}, "b": {"third"}}
    assert running._running == {}


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_an_address_of_ipv6_counts_with_its_network(host: str, network: str) -> None:
    assert client_network(host) == network


# --- Logins, which the broker may delay ----------------------------------------------------------


def test_logins_of_one_address_leave_places_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(delayed_logins(monkeypatch))


async def delayed_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LoginThrottle()
    answered = asyncio.Event()
    begun: list[str] = []

    async def log_in(host: str, name: str, *, right: bool = False) -> None:
        async with lines.turn(host, name):
            begun.append(name)
            await answered.wait()
            if not right:
                raise OperationRefused("refused", "the login was refused")

    async with lines.turn("6.6.6.6", "ada"):
        pass  # Her usual address.
    guesses = [asyncio.create_task(log_in("6.6.6.6", f"guess-{at}")) for at in range(20)]
    others = [
        asyncio.create_task(log_in("1.2.3.4", "bob", right=True)),
        asyncio.create_task(log_in("6.6.6.6", "ada", right=True)),
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun == [*(f"guess-{at}" for at in range(LOGINS_OF_PEER_MAX)), "bob", "ada"]
    monkeypatch.setattr(login_throttle, "WAIT_S", 0.0)
    with pytest.raises(OperationRefused, match="too many logins from"):
        await log_in("6.6.6.6", "late")
    answered.set()
    await asyncio.gather(*others)
    assert len(await asyncio.gather(*guesses, return_exceptions=True)) == 20
    assert lines._queues == {}
