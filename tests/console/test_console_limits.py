# SPDX-License-Identifier: Apache-2.0
"""Limits of connections and patterns, and a broker that ends and returns under the console."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from typing import TYPE_CHECKING

import pytest

from headrace.console.broker import login_throttle
from headrace.console.http import connections
from headrace.console.http.limits import CONNECTIONS_MAX
from support.console import LocalConsole
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

EXPLODES = "(a|aa)+$"
IDLE = 10_000
LOGIN = b"username=guest&password=guest"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_more_idle_connections_than_there_is_room_for(console: LocalConsole) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = CONNECTIONS_MAX + 1000  # Both sides are in this process.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(IDLE + others, hard)), hard))
    with contextlib.ExitStack() as idle:
        for number in range(min(IDLE, hard - others)):
            end = socket.create_connection(("127.0.0.1", console.port), PATIENCE_S)
            idle.enter_context(contextlib.closing(end))
            if number % 500 == 499:
                assert console.ask("GET", "/api/whoami").status == 200
    assert console.ask("GET", "/api/whoami").status == 200


@pytest.mark.parametrize("raw", [b"", b"GET /api/whoami HTTP/1.1\r\nHost: loc"])
def test_a_connection_that_waits_is_closed(console: LocalConsole, monkeypatch, raw: bytes) -> None:
    monkeypatch.setattr(connections, "WAIT_S", 0.1)
    with socket.create_connection(("127.0.0.1", console.port), PATIENCE_S) as end:
        end.sendall(raw)
        with contextlib.suppress(ConnectionResetError):
            assert end.recv(1) == b""


def test_a_pattern_that_explodes_elsewhere_is_quick(console: LocalConsole) -> None:
    pattern = EXPLODES.replace("+", "%2B")
    began = time.monotonic()
    assert console.ask("GET", f"/api/users?name={pattern}&use_regex=true").status == 200
    assert time.monotonic() - began < 1.0


def test_a_broker_that_ends_and_returns(tmp_path: Path) -> None:
    with LocalConsole(tmp_path) as console:
        assert console.get("/api/whoami")["name"] == "guest"
        console.broker.stop()
        gone = console.ask("GET", "/api/overview")
        assert (gone.status, gone.json["error"]) == (503, "service_unavailable")
        probe = console.ask("GET", "/api/health/checks/is-in-service", user=None)
        assert probe.status == 503
        console.broker.start()
        assert console.get("/api/overview")["node"]
        assert console.get("/api/whoami")["name"] == "guest"


def test_pages_say_that_the_broker_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come back by themselves, and the user is still logged in."""
    monkeypatch.setattr("headrace.console.auth.broker_login.FRESH_S", 0.0)
    with LocalConsole(tmp_path) as console:
        headers = {"Cookie": log_in(console)}
        assert console.ask("GET", "/queues", user=None, headers=headers).status == 200
        console.broker.stop()
        gone = console.ask("GET", "/queues", user=None, headers=headers)
        assert (gone.status, gone.headers["Retry-After"]) == (503, "2")
        assert gone.headers["Content-Type"].startswith("text/html")
        assert b"management.sock" in gone.body
        assert b"data-retry" in gone.body
        console.broker.start()
        assert console.ask("GET", "/queues", user=None, headers=headers).status == 200


def log_in(console: LocalConsole) -> str:
    """Return the cookie of a new session."""
    answer = console.ask("POST", "/login", LOGIN, user=None, headers=FORM)
    return answer.headers["Set-Cookie"].partition(";")[0]


def test_too_many_requests_of_a_user_are_refused_with_a_time_to_retry(
    console: LocalConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    for application in console.console._applications:  # type: ignore[union-attr]
        monkeypatch.setattr(application._of_user, "_requests_max", 0)
    answer = console.ask("GET", "/api/whoami")
    assert (answer.status, answer.json["error"]) == (429, "too_many_requests")
    assert answer.headers["Retry-After"] == "5"
    assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize("path", ["/login", "/api/login"])
def test_a_login_that_waits_too_long_is_refused_with_a_time_to_retry(
    console: LocalConsole, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_throttle, "LOGINS_OF_PEER_MAX", 0)
    monkeypatch.setattr(login_throttle, "WAIT_S", 0.0)
    answer = console.ask("POST", path, LOGIN, user=None, headers=FORM)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "5")
    assert b"too many logins from" in answer.body


def test_a_changed_password_ends_the_login(console: LocalConsole, monkeypatch) -> None:
    monkeypatch.setattr("headrace.console.auth.broker_login.FRESH_S", 0.0)
    link = console.console.link
    console.run(link.ask("put user", name="eve", password="before-it-changes", tags=["monitoring"]))
    old = ("eve", "before-it-changes")
    assert console.ask("GET", "/api/whoami", user=old).status == 200
    console.run(link.ask("put user", name="eve", password="after-it-changed", tags=["monitoring"]))
    assert console.ask("GET", "/api/whoami", user=old).status == 401
    assert console.ask("GET", "/api/whoami", user=("eve", "after-it-changed")).status == 200
