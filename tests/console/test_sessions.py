# SPDX-License-Identifier: Apache-2.0
"""Sessions of browsers: their cookies, tokens, limits and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.console.auth import broker_login
from headrace.console.auth import sessions as store
from headrace.console.auth.addresses import local_path
from headrace.console.auth.broker_login import Identity
from headrace.console.auth.sessions import Sessions
from headrace.console.broker.errors import BrokerGone
from headrace.console.http.forms import FIELDS_MAX, FormError, parse_form
from headrace.operator_logins import IDLE_S, LIFE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.console import HttpAnswer, LocalConsole

GUEST = {"username": "guest", "password": "guest"}
OWN = {"Sec-Fetch-Site": "same-origin"}


def log_in(console: LocalConsole, body: Mapping[str, str] = GUEST, **headers: str) -> HttpAnswer:
    return console.ask("POST", "/api/login", dict(body), user=None, headers=headers)


def begin(console: LocalConsole, body: Mapping[str, str] = GUEST) -> tuple[str, str]:
    """Return the cookie and the token of a new session."""
    answer = log_in(console, body)
    assert answer.status == 204, answer.body
    return answer.headers["Set-Cookie"].partition(";")[0], answer.headers["X-CSRF-Token"]


def test_a_session_opens_the_api(console: LocalConsole) -> None:
    answer = log_in(console)
    cookie = answer.headers["Set-Cookie"]
    assert {"Path=/", "HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    cookie, _ = begin(console)
    name, _, mark = cookie.partition("=")
    assert (name, len(mark)) == ("headrace", 43), "256 bits in base64"
    found = console.get("/api/whoami", user=None, headers={"Cookie": cookie})
    assert found["name"] == "guest"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"username": "guest", "password": "wrong"}, 401),
        ({"username": "no-one", "password": "wrong"}, 401),
        ({"username": "guest"}, 400),
        ({"username": "", "password": ""}, 400),
        ({"username": "guest", "password": "x" * 70_000}, 400),
    ],
)
def test_a_wrong_login_begins_nothing(console: LocalConsole, body, status) -> None:
    answer = log_in(console, body)
    assert answer.status == status
    assert "Set-Cookie" not in answer.headers
    assert "WWW-Authenticate" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "with_token", "status"),
    [
        ({**OWN}, True, 201),
        ({"Origin": "http://127.0.0.1:PORT"}, True, 201),
        ({**OWN}, False, 403),
        ({}, True, 403),
        ({"Origin": "http://evil.example"}, True, 403),
        ({"Origin": "null"}, True, 403),
        ({"Sec-Fetch-Site": "cross-site"}, True, 403),
        ({"Sec-Fetch-Site": "same-site"}, True, 403),
        ({"Sec-Fetch-Site": "none"}, True, 403),
        ({**OWN, "X-CSRF-Token": "wrong"}, False, 403),
    ],
)
def test_a_change_needs_origin_and_token(console, headers, with_token, status) -> None:
    cookie, token = begin(console)
    sent = {name: value.replace("PORT", str(console.port)) for name, value in headers.items()}
    sent |= {"Cookie": cookie} | ({"X-CSRF-Token": token} if with_token else {})
    path = "/api/queues/%2F/by-session"
    answer = console.ask("PUT", path, {}, user=None, headers=sent)
    assert answer.status == status, answer.body
    removed = console.ask("DELETE", path).status
    assert removed == (204 if status == 201 else 404)


def test_another_sessions_token_does_not_count(console: LocalConsole) -> None:
    cookie, _ = begin(console)
    _, token = begin(console)
    headers = {**OWN, "Cookie": cookie, "X-CSRF-Token": token}
    assert console.ask("PUT", "/api/queues/%2F/x", {}, user=None, headers=headers).status == 403


def test_a_login_ends_the_browsers_earlier_session(console: LocalConsole) -> None:
    """A session that was planted before the login does not become the user's."""
    planted = "headrace=planted"
    answer = log_in(console, Cookie=planted)
    first = answer.headers["Set-Cookie"].partition(";")[0]
    assert first != planted
    second = log_in(console, Cookie=first).headers["Set-Cookie"].partition(";")[0]
    assert second != first
    headers = {"Cookie": first}
    assert console.ask("GET", "/api/whoami", user=None, headers=headers).status == 401


def test_a_logout_ends_the_session_and_its_ticket(console: LocalConsole) -> None:
    cookie, _ = begin(console)
    sent = {**OWN, "Cookie": cookie}
    answer = console.ask("DELETE", "/api/login", user=None, headers=sent)
    assert answer.status == 204
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    answer = console.ask("GET", "/api/whoami", user=None, headers={"Cookie": cookie})
    assert (answer.status, answer.json["reason"]) == (401, "the session has ended")
    assert "WWW-Authenticate" not in answer.headers


@pytest.mark.parametrize("change", ["password", "tags", "deletion"])
def test_a_session_ends_with_the_users_password_tags_and_account(
    console: LocalConsole, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_login, "FRESH_S", 0.0)
    link: Any = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("put user", name="eve", password="of-tests-1", tags=["management"]))
    cookie, _ = begin(console, {"username": "eve", "password": "of-tests-1"})
    headers = {"Cookie": cookie}
    assert console.get("/api/whoami", user=None, headers=headers)["name"] == "eve"
    if change == "password":
        console.run(link.ask("put user", name="eve", password="of-tests-2", tags=["management"]))
    elif change == "tags":
        console.run(link.ask("put user", name="eve", keep_password=True, tags=["monitoring"]))
    else:
        console.run(link.ask("delete user", name="eve"))
    assert console.ask("GET", "/api/whoami", user=None, headers=headers).status == 401


def test_basic_wins_over_a_cookie(console: LocalConsole) -> None:
    answer = console.ask("GET", "/api/whoami", user=("guest", "wrong"), headers={"Cookie": "x=y"})
    assert answer.status == 401
    cookie, _ = begin(console)
    headers = {"Cookie": cookie}
    assert console.ask("GET", "/api/whoami", user=("guest", "wrong"), headers=headers).status == 401


# --- The store -----------------------------------------------------------------------------------


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class NoLink:
    """A broker that is not asked."""

    async def ask(self, do: str, **_: object) -> dict[str, object]:
        raise BrokerGone(do)


def user(name: str) -> Identity:
    return Identity(name, (), frozenset(), False, False, "ticket")


def sessions_at(clock: Clock) -> Sessions:
    link: Any = NoLink()
    return Sessions(link, clock)


def test_a_session_ends_idle_and_at_last() -> None:
    clock = Clock()
    sessions = sessions_at(clock)
    mark = sessions.begin(user("ada"))
    session = sessions.peek(mark)
    assert session is not None
    clock.now_s = IDLE_S
    assert sessions.peek(mark) is session
    clock.now_s += 1
    assert sessions.peek(mark) is None
    mark = sessions.begin(user("ada"))
    began_s = clock.now_s
    while clock.now_s - began_s < LIFE_S:
        found = sessions.peek(mark)
        assert found is not None
        found.used_s = clock.now_s
        clock.now_s += IDLE_S
    clock.now_s += 1
    assert sessions.peek(mark) is None


def test_the_longest_idle_session_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SESSIONS_MAX", 3)
    monkeypatch.setattr(store, "SESSIONS_OF_USER_MAX", 2)
    sessions = sessions_at(Clock())
    marks = [sessions.begin(user("ada")) for _ in range(3)]
    assert [sessions.peek(mark) is None for mark in marks] == [True, False, False]
    for name in ("bob", "eve"):
        sessions.begin(user(name))
    assert len(sessions) == 3
    assert sessions.peek(marks[1]) is None


@pytest.mark.parametrize("mark", [None, "", "x", "x" * 5000, "\ud800"])
def test_no_session_has_a_made_up_identifier(mark: str | None) -> None:
    sessions = sessions_at(Clock())
    sessions.begin(user("ada"))
    assert sessions.peek(mark) is None


# --- Forms and addresses -------------------------------------------------------------------------


def test_forms_are_read() -> None:
    form = parse_form(b"a=1&b=%C3%A9&a=2&c=", "application/x-www-form-urlencoded")
    assert (form.get("a"), form.all("a"), form.get("b"), form.get("c")) == (
        "1",
        ["1", "2"],
        "é",
        "",
    )
    assert "c" in form
    assert "d" not in form
    raw = (
        b'--M\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
        b'--M\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n'
        b"\xff\r\n\r\n--M--\r\n"
    )
    form = parse_form(raw, "multipart/form-data; boundary=M")
    assert (form.get("a"), form.files) == ("1", {"f": b"\xff\r\n"})


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"a=1", "text/plain"),
        (b"a=%ff", "application/x-www-form-urlencoded"),
        (b"\xff=1", "application/x-www-form-urlencoded"),
        (b"a=&" * (FIELDS_MAX + 1), "application/x-www-form-urlencoded"),
        (b"--M\r\n\r\nx\r\n--M--", "multipart/form-data; boundary=M"),
        (b"x", "multipart/form-data; boundary=M"),
        (b"x", "multipart/form-data"),
        (b"x", f"multipart/form-data; boundary={'m' * 80}"),
        (
            b"--M\r\nContent-Disposition: form-data; name=a\r\n\r\n\xff\r\n--M--",
            "multipart/form-data; boundary=M",
        ),
    ],
)
def test_what_is_no_form_is_refused(raw: bytes, kind: str) -> None:
    with pytest.raises(FormError):
        parse_form(raw, kind)


@pytest.mark.parametrize(
    "wanted",
    ["", "//evil.example", "/\\evil.example", "https://evil.example", "x", "/a\nb", "/" * 3000],
)
def test_a_login_leads_to_no_other_site(wanted: str) -> None:
    assert local_path(wanted) == "/"


def test_a_login_leads_to_the_page_that_was_asked_for() -> None:
    assert local_path("/queues/%2F/a?page=2") == "/queues/%2F/a?page=2"
