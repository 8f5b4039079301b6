# SPDX-License-Identifier: Apache-2.0
"""``headrace peek`` looks at messages; ``headrace messages`` moves, copies, returns, deletes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.errands import errand
from headrace.cli.messages import broker_option, open_channel, read_offset, show
from headrace.cli.output import print_rows
from headrace.client import ConsumerCancelled

if TYPE_CHECKING:
    from headrace.client.blocking import Consumer, Delivery

Function = TypeVar("Function", bound=Callable[..., Any])

PREFETCH = 100  # Messages that the broker sends ahead.
PREVIEW = 60  # Characters of a body in a table.
COLUMNS = ("position", "exchange", "routing_key", "properties", "headers", "octets", "body")

selector_option = click.option(
    "--selector",
    default="",
    metavar="CONDITION",
    help="Which messages: a condition on headers and properties, such as \"region = 'north'\".",
)


@click.command()
@broker_option
@selector_option
@click.option("--count", "-n", type=click.IntRange(1), default=10, show_default=True)
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    help="A position, first, last or next; of a stream also an ISO time. [first]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "body"]),
    default="table",
    show_default=True,
    help="A table, one JSON object a line, or the bodies alone.",
)
@click.argument("queue")
def peek(url: str, selector: str, count: int, start: str | None, form: str, queue: str) -> None:
    """Show messages of QUEUE, a queue of any type or a stream, and leave them as they are."""
    arguments: dict[str, Any] = {"x-browse": True}
    if selector.strip():
        arguments["x-filter-jms-selector"] = selector
    if start:
        arguments["x-stream-offset"] = read_offset(start)
    with open_channel(url) as channel, contextlib.suppress(BrokenPipeError):
        prefetch = min(PREFETCH, count)
        with channel.consume(queue, prefetch=prefetch, arguments=arguments) as consumer:
            seen = itertools.islice(until_end(consumer), count)
            if form == "table":
                if not print_rows(map(row, seen), COLUMNS, None):
                    click.echo("no such messages", err=True)
                return
            for delivery in seen:
                show(delivery, form == "json")


def until_end(consumer: Consumer) -> Iterator[Delivery]:
    """Give what comes until the broker says that this was all; acknowledging gives credit."""
    with contextlib.suppress(ConsumerCancelled):
        for delivery in consumer:
            yield delivery
            delivery.ack()


def row(delivery: Delivery) -> dict[str, Any]:
    """A message as a row of a table."""
    said = {
        name: getattr(delivery, name)
        for name in (
            "content_type",
            "content_encoding",
            "priority",
            "type",
            "correlation_id",
            "message_id",
            "reply_to",
            "timestamp",
            "expiration",
            "user_id",
            "app_id",
        )
    }
    if delivery.persistent:
        said["persistent"] = True
    own = ("x-stream-offset", "x-stream-arrival-ms")
    text = delivery.body[: 4 * PREVIEW].decode("utf-8", "replace")
    more = "…" if len(text) > PREVIEW or len(delivery.body) > 4 * PREVIEW else ""
    return {
        "position": delivery.offset,
        "exchange": delivery.exchange,
        "routing_key": delivery.routing_key,
        "properties": listed((name, value) for name, value in said.items() if value is not None),
        "headers": listed(item for item in delivery.headers.items() if item[0] not in own),
        "octets": len(delivery.body),
        "body": text[:PREVIEW] + more,
    }


def listed(items: Iterable[tuple[str, Any]]) -> str:
    """Names and values as one text."""
    return " ".join(
        f"{name}={value.isoformat() if isinstance(value, datetime) else value}"
        for name, value in items
    )


# --- Moving -------------------------------------------------------------------------------------


def options(function: Function) -> Function:
    """The options that all commands about chosen messages have."""
    for option in (
        click.option(
            "--id",
            "name",
            metavar="NAME",
            help="A name for the errand: done once, however often it is asked for.",
        ),
        click.option("--dry-run", is_flag=True, help="Count, and do nothing."),
        click.option(
            "--limit",
            "--count",
            "-n",
            "count",
            type=click.IntRange(1),
            help="So many messages at most.",
        ),
        selector_option,
        broker_option,
    ):
        function = option(function)
    return function


@click.group()
def messages() -> None:
    """Chosen messages of a queue: move, copy, give back, delete.

    All of it happens or nothing, whatever happens to the broker. Ctrl-C: nothing.
    """


@messages.command()
@options
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def move(source: str, target: str, **choice: Any) -> None:
    """Move messages from one queue to another."""
    do("messages.move", "moved", source, to=target, **choice)


@messages.command()
@options
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy(source: str, target: str, **choice: Any) -> None:
    """Copy messages of a queue or a stream to another."""
    do("messages.copy", "copied", source, to=target, **choice)


@messages.command()
@options
@click.argument("source", metavar="FROM")
def requeue(source: str, **choice: Any) -> None:
    """Give dead letters back to the queues in which they died last."""
    do("messages.requeue", "given back", source, **choice)


@messages.command()
@options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("source", metavar="FROM")
def delete(source: str, yes: bool, **choice: Any) -> None:
    """Delete messages."""
    if not yes and not choice["dry_run"]:
        which = choice["selector"] or "ALL of them"
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
    before = " before, under this name" if answer["already"] else ""
    click.echo(f"{answer['done']} messages {'would be ' if dry_run else ''}{done}{before}")
    if "to" not in fields:
        for queue, number in sorted(answer["to"].items()):
            click.echo(f"{number} to {queue}")
    for reason, number in sorted(answer["skipped"].items()):
        click.echo(f"{number} stay: {reason}", err=True)
