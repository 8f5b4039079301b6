# SPDX-License-Identifier: Apache-2.0
"""Errors of commands: one sentence, and an exit code other than 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.cli.broker_url import broker_option
from headrace.client.blocking import connect

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.testing import LocalBroker

Names = Callable[..., str]
SKIPPED = ("bench", "bench-spark", "conformance", "soak", "soak-spark")  # They start brokers.


def refusal(*arguments: str, url: str = "amqp://guest:guest@127.0.0.1:1/") -> str:
    """Run a command, which fails; return what it says."""
    result = CliRunner().invoke(main, arguments, env={"HEADRACE_URL": url})
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (1, 2), result.output
    before, _, said = result.stderr.partition("Error: ")
    assert before == "" or before.startswith(("Usage: ", "job ")), result.stderr
    assert said.endswith("\n"), result.stderr
    return said[:-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("messages", "move", "{q}", "{q}"), "queue '{q}' is both the source and the target"),
        (("messages", "requeue", "nosuch"), "no queue 'nosuch' in vhost '/'"),
        (
            ("messages", "delete", "--yes", "--selector", "a =", "{q}"),
            "invalid selector: it ends too early at position 4",
        ),
        (("groups", "show", "{q}", "g"), "queue '{q}' is not a stream"),
        (("groups", "list", "--stream", "nosuch"), "no queue 'nosuch' in vhost '/'"),
        (("leases", "show", "{q}", "g"), "group 'g' has no lease of queue '{q}'"),
        (("sinks", "show", "nosuch"), "there is no sink 'nosuch' in vhost '/'"),
        (("super-stream", "show", "nosuch"), "no exchange 'nosuch' in vhost '/'"),
        (("transaction", "commit", "nosuch"), "the xid nosuch is unknown"),
        (("get", "nosuch"), "404 NOT_FOUND - no queue 'nosuch' in vhost '/'"),
        (("get", "a\n\x1b[1mb"), r"404 NOT_FOUND - no queue 'a\n\x1b[1mb' in vhost '/'"),
        (("publish", "x" * 256, "body"), "a short string holds 255 bytes, not 256"),
        (("publish", "bad\udcff", "body"), r"'bad\udcff' is not valid UTF-8"),
        (("consume", "--selector", "bad\udcff", "{q}"), r"'bad\udcff' is not valid UTF-8"),
    ],
    ids=lambda value: " ".join(value[:2])[:24] if isinstance(value, tuple) else "",
)
def test_what_a_broker_refuses(
    headrace_broker: LocalBroker, name: Names, arguments: tuple[str, ...], said: str
) -> None:
    with connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(name())
    given = [one.format(q=name()) for one in arguments]
    assert refusal(*given, url=headrace_broker.url) == said.format(q=name())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("get", ""), "Invalid value for 'QUEUE': a name cannot be empty"),
        (
            ("peek", "q" * 256),
            "Invalid value for 'QUEUE': a name may have at most 255 bytes, not 256",
        ),
        (
            ("messages", "move", "a", "b\udcff"),
            r"Invalid value for 'TO': b\udcff is not valid UTF-8",
        ),
        (
            ("consume", "--offset", "9" * 5000, "s"),
            f"--offset '{'9' * 79} is neither a position, first, last, next nor an ISO time",
        ),
        (
            ("groups", "set", "s", "g", "yesterday"),
            "POSITION 'yesterday' is neither a position, first, last, next nor an ISO time",
        ),
        (
            ("publish", "--expiration-s", "nan", "q", "b"),
            "--expiration-s nan is not a number of seconds",
        ),
        (("no\x1bsuch",), r"No such command 'no\x1bsuch'."),
        (("definitions", "export", ""), "the name of the file is empty"),
    ],
    ids=lambda value: " ".join(value[:2])[:24] if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(tmp_path))
    if arguments[0] == "definitions":
        CliRunner().invoke(main, ["vhost", "add", "there"])
    assert refusal(*arguments) == said


def test_a_file_that_cannot_be(tmp_path: Path) -> None:
    long = str(tmp_path / ("x" * 300))
    assert refusal("verify-data", long) == f"{long}/backup.json: File name too long"


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands that do something."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        if (*path, word)[0] not in SKIPPED:
            found = command.get_command(context, word)
            assert found is not None
            yield from commands(found, (*path, word))


def test_every_command_says_that_no_broker_is_there() -> None:
    @broker_option
    def example() -> None:
        """To know the option by."""

    [option] = example.__click_params__  # type: ignore[attr-defined]  # As click keeps them.
    tried = 0
    for path, command in commands(main):
        if not any(
            one.opts == option.opts and one.envvar == option.envvar for one in command.params
        ):
            continue
        if path[0] == "pipeline":
            continue  # Spark would have to start first.
        arguments = [
            "1" if isinstance(one.type, click.types.IntParamType) else "name"
            for one in command.params
            if isinstance(one, click.Argument) and one.required
        ]
        yes = ["--yes"] if any("--yes" in one.opts for one in command.params) else []
        if path == ("sinks", "abort"):
            arguments.append("1")
        if path == ("sql",):
            arguments = ["select * from name"]
        if path == ("groups", "set"):
            arguments.append("first")
        said = refusal(*path, *yes, *arguments, "--url=amqp://guest:guest@127.0.0.1:1/")
        assert said.startswith("cannot connect to amqp://127.0.0.1:1//: "), (path, said)
        assert "\n" not in said
        tried += 1
    assert tried > 20
