# SPDX-License-Identifier: Apache-2.0
"""Forms of the console's pages with wrong, hostile and missing fields: a clear answer each time."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest

from headrace.console.pages.routes import RESOURCES
from support.console_browser import FORM, OWN, Browser, fields_of

if TYPE_CHECKING:
    from headrace.console.pages.actions import Action
    from support.console import HttpAnswer, LocalConsole

WRONG = ("", " ", "-1", "9" * 400, "1e400", "true", "x" * 300, "é" * 200, "\0", "\r\n", "\u202e",
         '{"a":', "[]", '{"a": 1e400}', "(", "(a+)+$" * 400, "../../etc", "<script>")  # fmt: skip
ACTIONS = [action for resource in RESOURCES for action in resource.actions]
ANSWERS = {200, 303, 400, 401, 403, 404, 405, 409, 413}


@pytest.fixture(scope="module")
def browser(console: LocalConsole) -> Browser:
    return Browser(console)


@pytest.fixture(scope="module")
def token(browser: Browser) -> str:
    """The token of the session, which each form contains."""
    return fields_of(browser.get("/queues/new").body.decode())["csrf"]


def fill_path(action: Action, value: str) -> str:
    """Return the path of an action with a value for each parameter."""
    parts = [quote(value, safe="") if p.startswith("{") else p for p in action.path.split("/")]
    return "/".join(parts)


def send(browser: Browser, path: str, body: bytes, kind: str = "") -> HttpAnswer:
    headers = browser.headers | FORM | OWN | ({"Content-Type": kind} if kind else {})
    return browser.console.ask("POST", path, body, user=None, headers=headers)


def list_objects(console: LocalConsole) -> dict[str, set[str]]:
    """Return the keys of all objects that actions could make or delete, by kind."""
    kinds = ("queues", "exchanges", "users", "vhosts", "policies", "permissions", "parameters")
    return {kind: {str(sorted(row.items())) for row in read_keys(console, kind)} for kind in kinds}


def read_keys(console: LocalConsole, kind: str) -> list[dict[str, str]]:
    """Return the objects of a kind, with only the fields that name them."""
    keys = ("name", "vhost", "user", "component", "write")
    return [{k: str(v) for k, v in row.items() if k in keys} for row in console.get(f"/api/{kind}")]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.path)
def test_a_form_with_wrong_fields_has_a_clear_answer(
    browser: Browser, token: str, action: Action
) -> None:
    before = list_objects(browser.console)
    path = fill_path(action, "nothing has this name")
    for field in action.fields:
        for value in WRONG:
            texts = {each.name: each.default for each in action.fields} | {field.name: value}
            answer = send(browser, path, urlencode({"csrf": token} | texts).encode())
            assert answer.status in ANSWERS, (path, field.name, value, answer.status)
            assert answer.status != 303 or action.confirm is None, (path, field.name, value)
    for body in (
        urlencode({"csrf": token}).encode(),
        urlencode([("csrf", token), *[(each.name, "1") for each in action.fields] * 3]).encode(),
        urlencode({"csrf": token, "confirmation": "wrong", "unknown": "x" * 5000}).encode(),
        urlencode([("csrf", token)] + [(f"f{n}", "x") for n in range(1100)]).encode(),
        f"csrf={token}&name=%FF%FE".encode(),
        b"\xff\xfe",
        b"",
    ):
        assert send(browser, path, body).status in ANSWERS, (path, body[:60])
    for kind in (
        "application/json",
        "text/plain",
        "multipart/form-data",
        "multipart/form-data; boundary=",
    ):
        assert 400 <= send(browser, path, f"csrf={token}".encode(), kind).status < 500
    if action.confirm is not None:
        after = list_objects(browser.console)
        assert after == before, "something was changed without a confirmation"
    assert browser.get("/").status == 200


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.path)
def test_a_body_larger_than_an_action_takes_is_refused(
    browser: Browser, token: str, action: Action
) -> None:
    if action.body_max > 1 << 20:
        pytest.skip("this one takes a file")
    body = f"csrf={token}&name=".encode() + b"x" * (action.body_max + 1)
    answer = send(browser, fill_path(action, "x"), body)
    assert answer.status == 400
    assert f"{action.body_max} bytes" in answer.body.decode()
