# SPDX-License-Identifier: Apache-2.0
"""``headrace messages``: move, copy, requeue and delete selected messages of a queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

import click

from headrace.cli.broker_url import NAMED, OFFSET_MAX, QUEUE, broker_option, selector_option
from headrace.cli.commands import Group
from headrace.cli.management import BY_SOCKET, ask
from headrace.cli.messages.jobs import run_job
from headrace.cli.output import json_flag, print_facts

Function = TypeVar("Function", bound=Callable[..., object])


def options(function: Function) -> Function:
    """Add the options that select messages."""
    for option in (
        click.option(
            "--id",
            "name",
            metavar="NAME",
            type=NAMED,
            help="A name for the job; a job of one name runs once.",
        ),
        click.option("--dry-run", is_flag=True, help="Count the messages, and change nothing."),
        click.option(
            "--limit",
            "--count",
            "-n",
            "count",
            type=click.IntRange(1, OFFSET_MAX),
            help="Maximum number of messages.",
        ),
        selector_option,
        json_flag,
        broker_option,
    ):
        function = option(function)
    return function


class MessageSelection(TypedDict):
    """The values of :func:`options`."""

    url: str
    selector: str
    count: int | None
    dry_run: bool
    name: str | None
    as_json: bool


@click.group(cls=Group)
def messages() -> None:
    """Move, copy, requeue or delete selected messages of a queue.

    A command applies to all selected messages or to none, even if the broker is killed. Ctrl-C
    cancels it.
    """


@messages.command()
@options
@click.argument("source", metavar="FROM", type=QUEUE)
@click.argument("target", metavar="TO", type=QUEUE)
def move(source: str, target: str, **selection: Unpack[MessageSelection]) -> None:
    """Move messages from one queue to another."""
    run_and_print("messages.move", "moved", source, to=target, **selection)


@messages.command()
@options
@click.argument("source", metavar="FROM", type=QUEUE)
@click.argument("target", metavar="TO", type=QUEUE)
def copy(source: str, target: str, **selection: Unpack[MessageSelection]) -> None:
    """Copy messages of a queue or a stream to another."""
    run_and_print("messages.copy", "copied", source, to=target, **selection)


@messages.command()
@options
@click.argument("source", metavar="FROM", type=QUEUE)
def requeue(source: str, **selection: Unpack[MessageSelection]) -> None:
    """Return dead letters to the queues in which they died last."""
    run_and_print("messages.requeue", "given back", source, **selection)


@messages.command()
@options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.argument("source", metavar="FROM", type=QUEUE)
def delete(source: str, yes: bool, **selection: Unpack[MessageSelection]) -> None:
    """Delete messages."""
    if not yes and not selection["dry_run"]:
        limit_text = (
            "ALL of them" if selection["count"] is None else f"{selection['count']} at most"
        )
        selection_text = ", ".join(filter(None, (selection["selector"], limit_text)))
        click.confirm(f"delete messages of '{source}' ({selection_text})?", abort=True)
    run_and_print("messages.delete", "deleted", source, **selection)


@BY_SOCKET.command(messages, "cancel")
@click.option("--vhost", help="The virtual host of the job. [the default one]")
@click.argument("name", metavar="ID")
def cancel(socket: Path, vhost: str | None, name: str) -> None:
    """Cancel the job ID, as `headrace list jobs` shows it; no message is changed."""
    ask(socket, "cancel job", id=name, vhost=vhost)


def run_and_print(
    request: str,
    done: str,
    source: str,
    *,
    url: str,
    selector: str,
    count: int | None,
    dry_run: bool,
    name: str | None,
    as_json: bool,
    **fields: str,
) -> None:
    """Run a job, and print its result."""
    answer = run_job(
        url,
        request,
        None if dry_run else name,
        **{"from": source},
        selector=selector,
        count=count,
        dry_run=dry_run,
        **fields,
    )
    if as_json:
        print_facts(answer, "json")
        return
    before = " before, under this name" if answer["already"] else ""
    messages = "1 message" if answer["done"] == 1 else f"{answer['done']} messages"
    click.echo(f"{messages} {'would be ' if dry_run else ''}{done}{before}")
    if "to" not in fields:
        for queue, number in sorted(answer["to"].items()):
            click.echo(f"{number} to {queue}")
    for reason, number in sorted(answer["skipped"].items()):
        click.echo(f"{number} stay: {reason}", err=True)
