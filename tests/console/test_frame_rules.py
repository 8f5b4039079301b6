# SPDX-License-Identifier: Apache-2.0
"""What holds for every request: headers, errors, logins, paths, limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from headrace.console.api.routes import ROUTES
from headrace.console.http.routes import SAFE
from headrace.console.http.security_headers import ALWAYS
from support.console import LocalConsole, basic

if TYPE_CHECKING:
    from headrace.console.http.routes import Route

OVER_HEADERS = {f"x-{number}": "v" * 4000 for number in range(5)}
REQUESTS = [
    ("GET", "/api/overview", None, {}, 200),
    ("GET", "/api/overview", None, {"Authorization": "Basic !"}, 401),
    ("GET", "/api/nothing", None, {}, 404),
    ("GET", "/nothing.html", None, {}, 404),
    ("PATCH", "/api/overview", None, {}, 405),
    ("OPTIONS", "/api/overview", None, {}, 200),
    ("HEAD", "/api/overview", None, {}, 200),
    ("GET", "/api/overview", None, {"Host": "evil.example"}, 421),
    ("GET", "/api/overview", None, OVER_HEADERS, 431),
    ("GET", "/api/queues?name=(&use_regex=true", None, {}, 400),
]


@pytest.mark.parametrize(("method", "path", "body", "headers", "status"), REQUESTS)
def test_every_answer_has_the_security_headers(
    console: LocalConsole, method, path, body, headers, status
) -> None:
    user = None if "Authorization" in headers else ("guest", "guest")
    answer = console.ask(method, path, body, headers=headers, user=user)
    assert answer.status == status
    for name, value in ALWAYS.items():
        assert answer.headers.get_all(name) == [value], name
    assert answer.headers["Cache-Control"] == "no-store"
    assert "python" not in str(answer.headers).lower()
    assert "access-control-allow-origin" not in answer.headers
    if status >= 400 and not answer.headers["Content-Type"].startswith("text/html"):
        assert set(answer.json) == {"error", "reason"}


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_the_headers_too(console: LocalConsole, raw: bytes) -> None:
    head, _, body = console.send(raw).partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    for name, value in ALWAYS.items():
        assert f"{name}: {value}".encode() in head
    assert b"aaaa" not in body


def test_no_credentials_get_a_challenge_and_wrong_ones_none(console: LocalConsole) -> None:
    without = console.ask("GET", "/api/overview", user=None)
    assert without.status == 401
    assert without.headers["WWW-Authenticate"] == 'Basic realm="RabbitMQ Management"'
    for user in (("guest", "wrong"), ("nobody", "guest"), ("", "")):
        wrong = console.ask("GET", "/api/overview", user=user)
        assert wrong.status == 401
        assert "WWW-Authenticate" not in wrong.headers
        assert wrong.json == {"error": "not_authorized", "reason": "Not_Authorized"}


def test_paths_that_do_not_exist_are_not_told_to_strangers(console: LocalConsole) -> None:
    assert console.ask("GET", "/api/nothing", user=None).status == 401
    assert console.ask("GET", "/api/nothing").status == 404


def test_slashes_at_the_end_and_doubled_ones_change_nothing(console: LocalConsole) -> None:
    expected = console.get("/api/whoami")
    for path in ("/api/whoami/", "//api//whoami", "/api/whoami//"):
        assert console.get(path) == expected


def test_options_need_no_login(console: LocalConsole) -> None:
    answer = console.ask("OPTIONS", "/api/queues", user=None)
    assert answer.status == 200
    assert "GET, HEAD, OPTIONS" in answer.headers["Allow"]


def test_head_has_the_length_and_no_body(console: LocalConsole) -> None:
    answer = console.ask("HEAD", "/api/whoami")
    whole = console.ask("GET", "/api/whoami")
    assert answer.body == b""
    assert answer.headers["Content-Length"] == str(len(whole.body))


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:15672", "LOCALHOST."])
def test_names_of_this_machine_are_served(console: LocalConsole, host: str) -> None:
    assert console.ask("GET", "/api/whoami", headers={"Host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", ""])
def test_a_rebound_name_reaches_nothing(console: LocalConsole, host: str) -> None:
    assert console.ask("GET", "/api/whoami", headers={"Host": host}).status == 421


BODY = b'{"type":"topic","tags":"","password":"of-a-foreign-page","value":1,"name":"x"}'
WRITES = [route for route in ROUTES if route.method not in SAFE]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("route", WRITES, ids=lambda route: f"{route.method} {route.path}")
def test_a_foreign_page_changes_nothing(console: LocalConsole, route: Route, site: str) -> None:
    """A browser adds the remembered password to a form that another site posts."""
    names = {"vhost": "%2F", "user": "guest", "username": "guest", "exchange": "amq.topic"}
    path = re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "foreign"), route.path)
    before = console.get("/api/definitions")
    headers = {"Sec-Fetch-Site": site, "Content-Type": "text/plain"}
    answer = console.ask(route.method, path, BODY, headers=headers)
    assert (answer.status, "cross-site" in answer.json["reason"]) == (403, True)
    assert console.get("/api/definitions") == before


def test_http_1_0_and_pipelined_requests(console: LocalConsole) -> None:
    login = f"Authorization: {basic('guest', 'guest')}\r\n".encode()
    assert console.send(b"GET /api/whoami HTTP/1.0\r\n" + login + b"\r\n").startswith(
        b"HTTP/1.0 200 OK"
    )
    one = b"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\n" + login + b"\r\n"
    end = one.replace(b"Host:", b"Connection: close\r\nHost:")
    assert console.send(one * 2 + end).count(b"HTTP/1.1 200 OK") == 3


def test_any_accept_header_gets_json(console: LocalConsole) -> None:
    headers = {"Accept": "application/bert, application/json;q=0.1"}
    answer = console.ask("GET", "/api/overview", headers=headers)
    assert answer.headers["Content-Type"].startswith("application/json")
