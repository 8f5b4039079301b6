# SPDX-License-Identifier: Apache-2.0
"""``headrace messages`` moves, copies, returns, deletes chosen messages of a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.cli.broker_url import NAMED, OFFSET_MAX, QUEUE, broker_option, selector_option
from headrace.cli.commands import Group
from headrace.cli.messages.jobs import errand
from headrace.cli.output import json_flag, print_facts

Function = TypeVar("Function", bound=Callable[..., object])


def options(function: Function) -> Function:
    """The options that all commands about chosen messages have."""
    for option in (
        click.option(
            "--id",
            "name",
            metavar="NAME",
            type=NAMED,
            help="A name for the errand: done once, however often it is asked for.",
        ),
        click.option("--dry-run", is_flag=True, help="Count, and do nothing."),
        click.option(
            "--limit",
            "--count",
            "-n",
            "count",
            type=click.IntRange(1, OFFSET_MAX),
            help="So many messages at most.",
        ),
        selector_option,
        json_flag,
        broker_option,
    ):
        function = option(function)
    return function


@click.group(cls=Group)
def messages() -> None:
    """Chosen messages of a queue: move, copy, give back, delete.

    All of it happens or nothing, whatever happens to the broker. Ctrl-C: nothing.
    """


@messages.command()
@options
@click.argument("source", metavar="FROM", type=QUEUE)
@click.argument("target", metavar="TO", type=QUEUE)
def move(source: str, target: str, **choice: Any) -> None:
    """Move messages from one queue to another."""
    do("messages.move", "moved", source, to=target, **choice)


@messages.command()
@options
@click.argument("source", metavar="FROM", type=QUEUE)
@click.argument("target", metavar="TO", type=QUEUE)
def copy(source: str, target: str, **choice: Any) -> None:
    """Copy messages of a queue or a stream to another."""
    do("messages.copy", "copied", source, to=target, **choice)


@messages.command()
@options
@click.argument("source", metavar="FROM", type=QUEUE)
def requeue(source: str, **choice: Any) -> None:
    """Give dead letters back to the queues in which they died last."""
    do("messages.requeue", "given back", source, **choice)


@messages.command()
@options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("source", metavar="FROM", type=QUEUE)
def delete(source: str, yes: bool, **choice: Any) -> None:
    """Delete messages."""
    if not yes and not choice["dry_run"]:
        most = "ALL of them" if choice["count"] is None else f"{choice['count']} at most"
        which = ", ".join(filter(None, (choice["selector"], most)))
        click.confirm(f"delete messages of '{source}' ({which})?", abort=True)
    do("messages.delete", "deleted", source, **choice)


def do(
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
    """Have it done, and say what was."""
    answer = errand(
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
    some = "1 message" if answer["done"] == 1 else f"{answer['done']} messages"
    click.echo(f"{some} {'would be ' if dry_run else ''}{done}{before}")
    if "to" not in fields:
        for queue, number in sorted(answer["to"].items()):
            click.echo(f"{number} to {queue}")
    for reason, number in sorted(answer["skipped"].items()):
        click.echo(f"{number} stay: {reason}", err=True)
