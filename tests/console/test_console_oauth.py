# SPDX-License-Identifier: Apache-2.0
"""The login by way of an authorization server: code with PKCE, bound to one browser."""

from __future__ import annotations

import asyncio
import http.client
import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from headrace.console.auth import broker_login
from headrace.console.auth.oauth import (
    ATTEMPT_S,
    AuthorizationError,
    PendingLogins,
    code_challenge,
)
from headrace.console.listening import ConsoleError
from headrace.console.run import Console
from headrace.console.settings import ConsoleSettings, OAuthClient
from support.authorization_server import AuthorizationServer
from support.console import HttpAnswer, LocalConsole
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizationServer]:
    """An authorization server."""
    with AuthorizationServer(tmp_path_factory.mktemp("keys") / "jwks.json") as running:
        yield running


@pytest.fixture(autouse=True)
def _as_before(server: AuthorizationServer) -> None:
    """Have the server answer as it should."""
    server.scopes, server.lives_s, server.identity = ("tag:management",), 600.0, {}


@pytest.fixture(scope="module")
def console(
    server: AuthorizationServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalConsole]:
    """A broker and a console that trust the server."""
    data = tmp_path_factory.mktemp("data")
    with LocalConsole(data, broker=server.trust, oauth=server.client) as running:
        yield running


def visit(console: LocalConsole, path: str, cookie: str = "") -> HttpAnswer:
    """Do what a browser does with an address of the console."""
    headers = {"Cookie": cookie} if cookie else {}
    return console.ask("GET", path, user=None, headers=headers)


def begin(console: LocalConsole, wanted: str = "/queues") -> tuple[str, str]:
    """Return the browser's cookie and the address at the server."""
    answer = visit(console, f"/login/oauth?next={wanted}")
    assert answer.status == 303
    return answer.headers["Set-Cookie"].partition(";")[0], answer.headers["Location"]


def come_back(address: str) -> str:
    """Log in at the server; return the path and query of the way back."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer = connection.getresponse()
    assert answer.status == 302
    back = urlsplit(answer.headers["Location"])
    connection.close()
    return f"{back.path}?{back.query}"


def test_a_user_logs_in_and_goes_on(console: LocalConsole, server: AuthorizationServer) -> None:
    assert b'href="/login/oauth?next=/queues"' in visit(console, "/login?next=/queues").body
    cookie, address = begin(console)
    answer = visit(console, come_back(address), cookie)
    assert answer.status == 200
    assert b'content="0;url=/queues"' in answer.body
    given = answer.headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(given)
    assert visit(console, "/queues", given[0]).status == 200
    who = console.get("/api/whoami", user=None, headers={"Cookie": given[0]})
    assert who == {"name": "tess", "tags": ["management"], "is_internal_user": False}
    headers = {"Authorization": f"Bearer {server.tokens[-1]}"}
    assert console.get("/api/whoami", user=None, headers=headers) == who
    assert console.get("/api/whoami")["is_internal_user"] is True


def test_the_address_has_a_challenge_and_no_secret(console, server: AuthorizationServer) -> None:
    cookie, address = begin(console)
    query = parse_qs(urlsplit(address).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["scope"] == ["openid headrace"]
    assert query["redirect_uri"] == [f"http://127.0.0.1:{console.port}/login/oauth/return"]
    answer = visit(console, come_back(address), cookie)
    verifier = server.verifiers[-1]
    assert query["code_challenge"] == [code_challenge(verifier)]
    told = address + cookie + str(answer.headers) + answer.body.decode()
    assert verifier not in told
    assert server.tokens[-1] not in told


@pytest.mark.parametrize("fault", ["no cookie", "another browser", "no state", "changed cookie"])
def test_a_login_that_this_browser_did_not_begin(console: LocalConsole, fault: str) -> None:
    """An attacker's code logs no victim in."""
    cookie, address = begin(console)
    path = come_back(address)
    if fault == "no state":
        path = path.replace("state=", "s=")
    other = {
        "no cookie": "",
        "another browser": begin(console)[0],
        "no state": cookie,
        "changed cookie": cookie + "x",
    }[fault]
    answer = visit(console, path, other)
    assert answer.status == 401
    assert "Set-Cookie" not in answer.headers
    assert b"this browser did not begin the login" in answer.body


def test_a_code_is_used_once(console: LocalConsole) -> None:
    cookie, address = begin(console)
    path = come_back(address)
    assert visit(console, path, cookie).status == 200
    again = visit(console, path, cookie)
    assert (again.status, "Set-Cookie" in again.headers) == (401, False)


def test_the_servers_texts_are_not_repeated(console: LocalConsole) -> None:
    cookie, address = begin(console)
    state = parse_qs(urlsplit(address).query)["state"][0]
    query = f"state={state}&error=%3Cscript%3Ehi&error_description=%3Cscript%3E"
    answer = visit(console, f"/login/oauth/return?{query}", cookie)
    assert answer.status == 401
    assert b"hi" not in answer.body.partition(b'role="alert"')[2].partition(b"</p>")[0]
    answer = visit(console, f"/login/oauth/return?state={state}&error=access_denied", cookie)
    assert b"refused the login: access_denied" in answer.body


def test_answers_of_another_server_are_refused(console: LocalConsole) -> None:
    cookie, address = begin(console)
    path = come_back(address).replace("iss=http", "iss=https")
    answer = visit(console, path, cookie)
    assert answer.status == 401
    assert b"another authorization server" in answer.body


@pytest.mark.parametrize("claim", ["another", None])
def test_an_identity_token_of_another_login(console, server: AuthorizationServer, claim) -> None:
    server.identity = {"nonce": claim}
    cookie, address = begin(console)
    answer = visit(console, come_back(address), cookie)
    assert (answer.status, "Set-Cookie" in answer.headers) == (401, False)


def test_a_token_without_a_tag_opens_nothing(console, server: AuthorizationServer) -> None:
    server.scopes = ("read:*/*",)
    cookie, address = begin(console)
    answer = visit(console, come_back(address), cookie)
    assert (answer.status, "Set-Cookie" in answer.headers) == (401, False)
    assert b"has no tag that gives access" in answer.body


def test_the_session_ends_with_its_token(console, server, monkeypatch) -> None:
    monkeypatch.setattr(broker_login, "FRESH_S", 0.0)
    server.lives_s = 0.5
    cookie, address = begin(console)
    session = visit(console, come_back(address), cookie).headers["Set-Cookie"].partition(";")[0]
    deadline = time.monotonic() + PATIENCE_S
    while visit(console, "/queues", session).status == 200:
        assert time.monotonic() < deadline
    assert visit(console, "/queues", session).headers["Location"] == "/login?next=/queues"


def test_a_login_leads_to_no_other_site(console: LocalConsole) -> None:
    cookie, address = begin(console, "https://evil.example/")
    assert b'content="0;url=/"' in visit(console, come_back(address), cookie).body


def test_a_server_that_is_gone_is_told(tmp_path: Path) -> None:
    with AuthorizationServer(tmp_path / "jwks.json") as server:
        settings, trust = server.client, server.trust
        with LocalConsole(tmp_path, broker=trust, oauth=settings) as console:
            cookie, address = begin(console)
            path = come_back(address)
            server.stop()
            answer = visit(console, path, cookie)
            assert answer.status == 401
            assert b"the authorization server does not answer" in answer.body


def test_an_attempt_ends() -> None:
    now_s = [1000.0]
    marks = PendingLogins(lambda: now_s[0])
    mark = marks.begin("/queues")
    assert marks.next_path(mark, marks.state(mark)) == "/queues"
    now_s[0] += ATTEMPT_S + 1
    with pytest.raises(AuthorizationError, match="took longer"):
        marks.next_path(mark, marks.state(mark))
    assert len(marks.verifier(mark)) >= 43, "RFC 7636, section 4.1"
    assert len({marks.verifier(mark), marks.nonce(mark), marks.state(mark)}) == 3


@pytest.mark.parametrize("endpoint", ["http://example.org/token", "", "ftp://localhost/", "/token"])
def test_codes_do_not_cross_the_network_in_clear(tmp_path: Path, endpoint: str) -> None:
    client = OAuthClient(
        client_id="c", authorization_endpoint="https://example.org/", token_endpoint=endpoint
    )
    settings = ConsoleSettings(socket=tmp_path / "none", port=0, metrics_port=None, oauth=client)
    with pytest.raises(ConsoleError, match="is not an https address"):
        asyncio.run(Console(settings).start())


def test_behind_a_proxy_the_address_is_the_outer_one(
    server: AuthorizationServer, tmp_path: Path
) -> None:
    outer = "https://mq.example:8443"
    headers = {"Host": "mq.example:8443"}
    with LocalConsole(tmp_path, broker=server.trust, oauth=server.client, url=outer) as console:
        answer = console.ask("GET", "/login/oauth", user=None, headers=headers)
        query = parse_qs(urlsplit(answer.headers["Location"]).query)
        assert query["redirect_uri"] == [f"{outer}/login/oauth/return"]
        attempt = answer.headers["Set-Cookie"]
        assert attempt.startswith("__Host-headrace-login=")
        assert "; Secure" in attempt
        back = come_back(answer.headers["Location"])
        cookie = attempt.partition(";")[0]
        answer = console.ask("GET", back, user=None, headers={**headers, "Cookie": cookie})
        assert answer.status == 200, answer.body
        given = answer.headers["Set-Cookie"]
        assert given.startswith("__Host-headrace=")
        assert "; Secure" in given
        session = {**headers, "Cookie": given.partition(";")[0]}
        assert console.ask("GET", "/queues", user=None, headers=session).status == 200
        html = console.ask("GET", "/", user=None, headers=session).body.decode()
        token = html.partition('name="csrf" value="')[2].partition('"')[0].encode()
        for origin, status in ((f"http://127.0.0.1:{console.port}", 403), (outer, 303)):
            form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": origin}
            sent = {**session, **form}
            answer = console.ask("POST", "/logout", b"csrf=" + token, user=None, headers=sent)
            assert answer.status == status, origin


@pytest.mark.parametrize(
    "url", ["mq.example", "ftp://mq.example", "https://mq.example/console", "https://a@b"]
)
def test_an_outer_address_that_browsers_cannot_have_is_refused(tmp_path: Path, url: str) -> None:
    settings = ConsoleSettings(socket=tmp_path / "none", port=0, metrics_port=None, url=url)
    with pytest.raises(ConsoleError, match="console_url"):
        asyncio.run(Console(settings).start())


def test_without_settings_there_is_no_such_login(tmp_path: Path) -> None:
    with LocalConsole(tmp_path) as console:
        assert visit(console, "/login/oauth").status == 404
        assert b"/login/oauth" not in visit(console, "/login").body
