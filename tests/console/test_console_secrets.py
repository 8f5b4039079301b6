# SPDX-License-Identifier: Apache-2.0
"""No secret in an answer, a log or a file; no text of a peer as anything but text."""

from __future__ import annotations

import base64
import json
import logging
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest

from headrace.console.api.events import MEDIA as EVENTS
from headrace.console.api.routes import ROUTES as API
from headrace.console.http.routes import NOBODY, SAFE, Route
from headrace.console.http.security_headers import ALWAYS
from headrace.console.pages.routes import ROUTES as PAGES
from support.authorization_server import AuthorizationServer
from support.certificates_and_tokens import EVERYTHING
from support.console import HttpAnswer, LocalConsole
from support.console_objects import HOSTILE, populate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "marked-password-4711"
WRONG = "marked-and-wrong-4712"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
OWN = {"Sec-Fetch-Site": "same-origin"}
VALUES = {
    "vhost": "%2F",
    "queue": quote(HOSTILE[0], safe=""),
    "exchange": quote(HOSTILE[0], safe=""),
    "user": "marked",
    "username": "marked",
    "name": quote(HOSTILE[0], safe=""),
    "kind": "q",
}
# A stream of events does not end: see test_own_events.
READS = [one for one in (*API, *PAGES) if one.method in SAFE and one.media != EVENTS]


def path_of(route: Route) -> str:
    """Return a path of a route."""
    parts = route.path.split("/")
    return "/".join(
        VALUES.get(one[1:-1], VALUES["name"]) if one.startswith("{") else one for one in parts
    )


class Visitor:
    """Sends requests, and keeps all that comes back, but for the cookies that a browser gets."""

    def __init__(self, console: LocalConsole) -> None:
        self.console = console
        self.heard: list[bytes] = []

    def ask(self, method: str, path: str, body: object = None, **options: object) -> HttpAnswer:
        """Send a request."""
        answer = self.console.ask(method, path, body, **options)  # type: ignore[arg-type]
        heads = [f"{n}: {v}" for n, v in answer.headers.items() if n not in GIVEN]
        self.heard += [path.encode(), "\n".join(heads).encode(), answer.body]
        return answer

    def login(self, password: str) -> str:
        """Log in by the form; return the cookie."""
        form = urlencode({"username": "marked", "password": password, "next": "/"})
        answer = self.ask("POST", "/login", form.encode(), user=None, headers=FORM)
        return answer.headers.get("Set-Cookie", "").partition(";")[0]


GIVEN = frozenset(("Set-Cookie", "X-CSRF-Token"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizationServer]:
    """An authorization server."""
    with AuthorizationServer(tmp_path_factory.mktemp("keys") / "jwks.json") as running:
        running.scopes = ("tag:administrator", *EVERYTHING)
        yield running


def test_no_secret_is_told_logged_or_kept(
    tmp_path: Path, server: AuthorizationServer, caplog: pytest.LogCaptureFixture
) -> None:
    """By every way to log in, with right and wrong secrets."""
    caplog.set_level(logging.DEBUG)
    broker = {**server.trust, "audit_log": str(tmp_path / "audit.jsonl")}
    with LocalConsole(tmp_path, broker=broker, oauth=server.client) as console:
        visitor = Visitor(console)
        user = {"password": PASSWORD, "tags": "administrator"}
        assert visitor.ask("PUT", "/api/users/marked", user).status == 201
        visitor.ask("PUT", "/api/permissions/%2F/marked", dict.fromkeys(RIGHTS, ".*"))
        basic = ("marked", PASSWORD)
        cookie = visitor.login(PASSWORD)
        for password in (PASSWORD, WRONG):
            visitor.ask("GET", "/api/whoami", user=("marked", password))
            visitor.ask(
                "POST", "/api/login", {"username": "marked", "password": password}, user=None
            )
            visitor.ask("POST", "/api/login", {"username": 1, "password": password}, user=None)
            visitor.login(WRONG)
            visitor.ask("GET", "/api/whoami", user=("marked", password), headers={"Host": "evil"})
            visitor.ask(
                "PUT", "/api/users/marked", json.dumps({"password": password}).encode()[:-1]
            )
        token = server.issuer.token(*server.scopes, iss=server.url)
        for bearer in (token, token[:-5], WRONG):
            headers = {"Authorization": f"Bearer {bearer}"}
            visitor.ask("GET", "/api/whoami", user=None, headers=headers)
        code, by_oauth = by_authorization_server(visitor, server)
        for route in READS:
            path = path_of(route)
            if route.page:
                visitor.ask("GET", path, user=None, headers={"Cookie": cookie})
                visitor.ask("GET", path, user=None, headers={"Cookie": by_oauth})
            else:
                visitor.ask("GET", path, user=basic)
        for given in (cookie, by_oauth):
            answer = visitor.ask("GET", "/api/whoami", user=None, headers={"Cookie": given})
            assert answer.status == 200, "the sessions were good all the time"
        for path in ("/metrics", "/metrics/per-object"):
            visitor.ask("GET", path, port=console.metrics_port)
    secrets = {
        "password": PASSWORD,
        "wrong password": WRONG,
        "header": base64.b64encode(f"marked:{PASSWORD}".encode()).decode(),
        "session": cookie.partition("=")[2],
        "session by OAuth": by_oauth.partition("=")[2],
        "token": token,
        "token of a code": server.tokens[-1],
        "verifier": server.verifiers[-1],
        "code": code,
    }
    assert all(len(one) > 8 for one in secrets.values()), "each way was gone"
    told = b"\n".join(visitor.heard).decode(errors="replace")
    files = {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert files["audit.jsonl"].count(b"\n") > 5
    for name, secret in secrets.items():
        assert name == "code" or secret not in told, name
        assert secret not in caplog.text, name
        assert [one for one, raw in files.items() if secret.encode() in raw] == [], name


RIGHTS = ("configure", "write", "read")


def by_authorization_server(visitor: Visitor, server: AuthorizationServer) -> tuple[str, str]:
    """Log in by a code; return the code and the session's cookie."""
    answer = visitor.ask("GET", "/login/oauth", user=None)
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    query = {n: v[0] for n, v in parse_qs(urlsplit(answer.headers["Location"]).query).items()}
    back = urlsplit(server.authorize(query))
    path = f"{back.path}?{back.query}"
    answer = visitor.ask("GET", path, user=None, headers={"Cookie": cookie})
    assert answer.status == 200
    code = parse_qs(back.query)["code"][0]
    return code, answer.headers["Set-Cookie"].partition(";")[0]


@pytest.fixture(scope="module")
def hostile(console: LocalConsole) -> Iterator[str]:
    """Objects with names that a page could take for something else; the cookie of a session."""
    with populate(console):
        form = urlencode({"username": "guest", "password": "guest", "next": "/"})
        answer = console.ask("POST", "/login", form.encode(), user=None, headers=FORM | OWN)
        yield answer.headers["Set-Cookie"].partition(";")[0]


@pytest.mark.parametrize("route", READS, ids=lambda one: one.path)
def test_texts_of_peers_are_text(console: LocalConsole, hostile: str, route: Route) -> None:
    """Each answer has the headers, and a type that no browser runs, or escapes what it shows."""
    options = {"user": None, "headers": {"Cookie": hostile}} if route.page else {}
    answer = console.ask("GET", path_of(route), **options)  # type: ignore[arg-type]
    assert answer.status in (200, 303, 400, 404, 405, 503), answer.body
    for name, value in ALWAYS.items():
        found = answer.headers.get_all(name) or []
        assert len(found) == 1, name
        assert found[0].endswith(value), name
    kind = answer.headers.get("Content-Type", "")
    if not kind.startswith("text/html"):
        assert route.page or route.tag == NOBODY or kind.startswith(("application/json", "")), kind
        return
    page = answer.body.decode()
    for text in (HOSTILE[0], HOSTILE[1], "onerror=alert(1)>"):
        assert text not in page
    assert 'href="javascript:' not in page.lower()
    assert "49{" not in page, "no name is a template"
    assert "style=" not in page
    assert "<script>" not in page, "scripts come from files only"
