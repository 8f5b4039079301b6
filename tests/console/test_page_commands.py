# SPDX-License-Identifier: Apache-2.0
"""The command lines on pages are lines that the command takes, and do what the page does."""

from __future__ import annotations

import re
import shlex
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
import pytest
from click.testing import CliRunner

from headrace.cli import main
from support.console_browser import Browser, is_page
from support.console_objects import populate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.console import LocalConsole

COMMAND = re.compile(r"<code data-copy><bdi>(.*?)</bdi></code>", re.DOTALL)
HIDDEN = "\\u202e"  # Names with hidden characters are shown with escapes, not to be copied.
PLACEHOLDERS = {"VALUE": "1", "DEFINITION": "{}", "ID": "1"}  # Values for words of empty fields.
DASHED_NAME = "--if-empty"


@pytest.fixture(scope="module", autouse=True)
def objects(console: LocalConsole) -> Iterator[None]:
    """Objects of all kinds."""
    with populate(console):
        yield


@pytest.fixture(scope="module")
def browser(console: LocalConsole) -> Browser:
    return Browser(console)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[click.Context]:
    """The contexts of called commands, which do nothing."""
    contexts: list[click.Context] = []
    monkeypatch.setattr(click.Command, "invoke", lambda self, context: contexts.append(context))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").touch()
    return contexts


def parse_line(line: str, called: list[click.Context]) -> tuple[str, dict[str, Any]]:
    """Return the command that a command line calls, and its parameters."""
    program, *words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line)]
    assert program == "headrace"
    called.clear()
    result = CliRunner().invoke(main, words, input="secret\nsecret\n")
    assert result.exit_code == 0, (line, result.output)
    return called[-1].command_path.partition(" ")[2], called[-1].params


def command_lines(html: str) -> list[str]:
    """Return the command lines of a page."""
    return [line for lines in COMMAND.findall(html) for line in unescape(lines).split(" && ")]


def test_every_command_line_is_one_that_the_command_takes(browser: Browser, called) -> None:
    """The test walks the pages from the first one, and each kind of page a few times."""
    lines: dict[str, str] = {}  # A command line of each kind.
    for _, answer in browser.walk(7):
        if not is_page(answer):
            continue
        for line in command_lines(answer.body.decode()):
            if HIDDEN not in line:
                lines.setdefault(re.sub(r"'.*'", "", line).split(" -")[0], line)
    wrong = []
    for line in lines.values():
        try:
            parse_line(line, called)
        except AssertionError as error:
            wrong.append(str(error).partition("assert")[0])
    assert not wrong, "\n".join(wrong)
    assert len(lines) > 40


@pytest.mark.parametrize(
    ("page", "command", "parameter"),
    [
        ("/queues/%2F/{}/delete", "delete queue", "name"),
        ("/queues/%2F/{}/purge", "purge", "name"),
        ("/queues/{}/q/delete", "delete queue", "url"),
        ("/exchanges/%2F/{}/delete", "delete exchange", "name"),
        ("/users/{}/delete", "user delete", "name"),
        ("/vhosts/{}/delete", "vhost delete", "name"),
    ],
)
def test_names_are_no_options(
    console: LocalConsole, browser: Browser, called, page, command, parameter
) -> None:
    """Clients choose names: without care a name with a dash would be an option."""
    link: Any = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("put vhost", name=DASHED_NAME))
    console.run(link.ask("declare queue", vhost=DASHED_NAME, name="q"))
    console.run(link.ask("declare queue", name=DASHED_NAME))
    console.run(link.ask("declare exchange", name=DASHED_NAME))
    console.run(link.ask("put user", name=DASHED_NAME, password="a-password", tags=[]))
    (line,) = command_lines(browser.text(page.format(quote(DASHED_NAME))))
    called_command, params = parse_line(line, called)
    assert called_command == command
    assert DASHED_NAME in str(params[parameter])


FORMS: list[tuple[str, dict[str, str], str, dict[str, Any]]] = [
    (
        "/queues/new",
        {"vhost": "/", "name": "-q", "durable": "", "auto_delete": "true",
         "arguments": '{"x-max-length": 5, "x-overflow": "drop-head"}'},
        "declare queue",
        {"name": "-q", "durable": False, "auto_delete": True,
         "argument_pairs": (("x-max-length", 5), ("x-overflow", "drop-head"))},
    ),
    (
        "/exchanges/new",
        {"vhost": "/", "name": "made", "type": "topic", "internal": "true",
         "arguments": '{"alternate-exchange": "amq.fanout"}'},
        "declare exchange",
        {"name": "made", "kind": "topic", "durable": True, "internal": True,
         "argument_pairs": (("alternate-exchange", "amq.fanout"),)},
    ),
    (
        "/bindings/new",
        {"vhost": "/", "source": "amq.headers", "kind": "exchange", "destination": "amq.topic",
         "routing_key": "-k", "arguments": '{"x-match": "all", "n": "5"}'},
        "declare binding",
        {"source": "amq.headers", "destination": "amq.topic", "routing_key": "-k",
         "to_exchange": True, "argument_pairs": (("x-match", "all"), ("n", "5"))},
    ),
    (
        "/users/new",
        {"name": "written", "password": "a-password", "tags": "monitoring, other"},
        "user add",
        {"name": "written", "tags": ("monitoring", "other"), "password": None},
    ),
    (
        "/users/written/edit", {"tags": "viewer"}, "user tags",
        {"name": "written", "tags": ("viewer",)},
    ),
    (
        "/vhosts/new",
        {"name": "written", "description": "of tests", "tags": "a, b",
         "default_queue_type": "classic", "protected_from_deletion": ""},
        "vhost set",
        {"name": "written", "description": "of tests", "tags": ("a", "b"),
         "protected_from_deletion": None},
    ),
    (
        "/vhosts/written/edit",
        {"description": "", "tags": "", "protected_from_deletion": "true", "tracing": "",
         "default_queue_type": "classic"},
        "vhost set",
        {"name": "written", "description": "", "tags": (), "no_tags": True,
         "protected_from_deletion": True},
    ),
    (
        "/vhosts/written/edit",
        {"description": "again", "tags": "c", "protected_from_deletion": "",
         "default_queue_type": "classic"},
        "vhost set",
        {"name": "written", "description": "again", "tags": ("c",), "no_tags": False,
         "protected_from_deletion": False},
    ),
    (
        "/policies/new",
        {"vhost": "/", "name": "written", "pattern": "^w", "apply-to": "queues", "priority": "3",
         "definition": '{"max-length": 7}'},
        "policy set",
        {"name": "written", "pattern": "^w", "priority": 3, "apply_to": "queues", "vhost": "/"},
    ),
    (
        "/queues/%2F/many.05/publish",
        {"payload": "-- a 'body'", "payload_encoding": "string", "content_type": "text/plain",
         "delivery_mode": "1", "properties": '{"headers": {"n": 1}, "expiration": "1500"}'},
        "publish",
        {"routing_key": "many.05", "bodies": ("-- a 'body'",), "content_type": "text/plain",
         "transient": True, "expiration_s": 1.5},
    ),
    (
        "/exchanges/%2F/amq.topic/publish",
        {"routing_key": "a.b", "payload": "x", "payload_encoding": "string"},
        "publish", {"routing_key": "a.b", "exchange": "amq.topic", "transient": False},
    ),
    (
        "/queues/%2F/many.06/delete", {"if-empty": "true", "confirmation": "many.06"},
        "delete queue", {"name": "many.06", "if_empty": True, "if_unused": False},
    ),
    (
        "/permissions/new",
        {"vhost": "/", "user": "written", "configure": "^-", "write": "-x", "read": ""},
        "permission set", {"name": "written", "configure": "^-", "write": "-x", "read": ""},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("page", "fields", "command", "expected"), FORMS)
def test_what_was_done_is_told_as_a_command(
    browser: Browser, called, page, fields, command, expected
) -> None:
    """The page after a form has the command line with all values of the form."""
    filled = {name: value for name, value in fields.items() if value}
    cleared = [name for name in fields if name not in filled]
    answer = browser.send(page, *cleared, **filled)
    assert answer.status == 303, re.findall(r'class="error"[^<]*<[^<]*', answer.body.decode())
    html = browser.text(answer.headers["Location"])
    (notice,) = re.findall(r"Equivalent command: (.*?)</bdi>", html)
    lines = unescape(notice).split(" && ")
    (line,) = [line for line in lines if line.startswith(f"headrace {command} ")]
    called_command, params = parse_line(line, called)
    assert called_command == command
    assert {name: params[name] for name in expected} == expected


def test_a_form_clears_what_a_virtual_host_has(browser: Browser, called) -> None:
    """An empty field is sent as such, and the command says the same."""
    path = "/api/vhosts/to%20clear"
    body = {"description": "d", "tags": ["a"], "tracing": True, "protected_from_deletion": True}
    assert browser.console.ask("PUT", path, body).status == 201
    _, line = command_lines(browser.text("/vhosts/to%20clear/edit"))
    command, params = parse_line(line, called)
    assert (command, params["what"], params["vhost"]) == ("trace", "on", "to clear")
    form = {"description": "", "tags": "", "default_queue_type": "classic"}
    answer = browser.send("/vhosts/to%20clear/edit", "tracing", "protected_from_deletion", **form)
    assert answer.status == 303
    row = browser.console.get(path)
    assert [row[name] for name in body] == ["", [], False, False]
    _, line = command_lines(browser.text("/vhosts/to%20clear/edit"))
    assert parse_line(line, called)[1]["what"] == "off"


def test_the_command_that_removes_a_binding_names_no_other(browser: Browser, called) -> None:
    """Bindings between the same two differ by key and arguments."""
    path = "/api/bindings/%2F/e/amq.direct/q/many.07"
    answer = browser.console.ask("POST", path, {"routing_key": "k", "arguments": {"n": "7"}})
    key = answer.headers["Location"].rpartition("/")[2]
    (line,) = command_lines(browser.text(f"/bindings/%2F/amq.direct/q/many.07/{key}"))
    command, params = parse_line(line, called)
    assert command == "delete binding"
    assert (params["routing_key"], params["argument_pairs"]) == ("k", (("n", "7"),))


def test_the_command_that_closes_a_connection_has_its_id(browser: Browser, called) -> None:
    (row,) = browser.console.get("/api/connections")
    (line,) = command_lines(browser.text(f"/connections/{quote(row['name'])}/close"))
    assert "ID" not in line
    assert parse_line(line, called)[0] == "close connection"


def test_a_message_that_the_command_cannot_say_has_none(browser: Browser) -> None:
    form = {"payload": "eA==", "payload_encoding": "base64"}
    answer = browser.send("/queues/%2F/many.05/publish", **form)
    assert "Equivalent command: " not in browser.text(answer.headers["Location"])
