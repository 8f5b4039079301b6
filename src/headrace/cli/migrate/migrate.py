# SPDX-License-Identifier: Apache-2.0
"""``headrace migrate``: topology from a file of definitions, messages from a running broker."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from headrace.cli.admin.definitions_command import where_option
from headrace.cli.environment import FromEnvironment
from headrace.cli.output import format_value, text_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.cli.migrate.migration import QueueResult
    from headrace.server.definitions.document import Document

PROGRESS_S = 1.0  # How often progress is printed.


@click.command()
@where_option
@click.option(
    "--definitions",
    "file",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="A file of `rabbitmqctl export_definitions` or of the management API.",
)
@click.option(
    "--to",
    "target",
    cls=FromEnvironment,
    envvar="HEADRACE_URL",
    metavar="URL",
    help="The new broker; also HEADRACE_URL. [a local one, the virtual host of OLD]",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    help="Move only this queue; may be repeated. [all queues of the file]",
)
@click.option(
    "--stream",
    "streams",
    multiple=True,
    help="Copy only this stream; may be repeated. [all streams of the file]",
)
@click.option("--topology-only", is_flag=True, help="Import the topology, but move no messages.")
@click.option(
    "--messages-only", is_flag=True, help="Move messages only; the topology exists already."
)
@click.option("--origin", is_flag=True, help="Keep exchange and routing key in headers.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("headrace-migrate.state"),
    show_default=True,
    help="The file that keeps the progress.",
)
@click.option("--dry-run", is_flag=True, help="Print the steps without doing them.")
@text_option
@click.argument("old", metavar="OLD", envvar="HEADRACE_MIGRATE_FROM")
def migrate(
    data: Path,
    socket: Path | None,
    file: str | None,
    target: str | None,
    queues: tuple[str, ...],
    streams: tuple[str, ...],
    topology_only: bool,
    messages_only: bool,
    origin: bool,
    state: Path,
    dry_run: bool,
    form: str,
    old: str,
) -> None:
    """Move queues and their messages here from the broker OLD, such as amqp://user:pass@old/shop.

    A message leaves the old broker when this one has confirmed it. After an interruption, run it
    again. OLD may be given as HEADRACE_MIGRATE_FROM, which other users do not see.
    """
    import asyncio

    from headrace.cli.admin.definitions import print_report, read_file, take
    from headrace.cli.migrate.state import StateError
    from headrace.client import ClientError
    from headrace.client.url import parse_url

    if topology_only and messages_only:
        raise click.UsageError("--topology-only and --messages-only exclude each other")
    if file is None and not (messages_only and (queues or streams)):
        raise click.UsageError("give --definitions, or --messages-only and --queue")
    try:
        vhost = parse_url(old).vhost
        target = target or f"amqp://guest:guest@127.0.0.1:5672/{quote(vhost, safe='')}"
        parse_url(target)
    except ClientError as error:
        raise click.ClickException(str(error)) from None
    document = None if file is None else read_file(file)
    if document is not None and not messages_only:
        report = take(document, data, socket, None, dry_run=dry_run)
        if form == "text":
            print_report(report, form)
    if topology_only:
        return
    if document is not None and not (queues or streams):
        queues, streams = queue_names(document, vhost)
    outcome = Outcome(form)
    try:
        asyncio.run(move(old, target, state, queues, streams, origin, dry_run, outcome))
    except KeyboardInterrupt:
        raise click.ClickException("interrupted; run it again to continue") from None
    except (ClientError, StateError, OSError, TimeoutError) as error:
        raise click.ClickException(f"{error}; run it again to continue") from None
    if outcome.wrong:
        raise click.ClickException(f"{outcome.wrong} of {outcome.count} are not complete")


def queue_names(document: Document, vhost: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the queues and the streams of a virtual host in a file."""
    queues: list[str] = []
    streams: list[str] = []
    for value in document.sections.get("queues", []):
        if isinstance(value, dict) and value.get("vhost", vhost) == vhost:
            kind = value.get("arguments") or {}
            if not isinstance(kind, dict) or not isinstance(value.get("name"), str):
                continue
            is_stream = "stream" in (kind.get("x-queue-type"), value.get("type"))
            (streams if is_stream else queues).append(value["name"])
    return tuple(queues), tuple(streams)


class Outcome:
    """Prints the results of queues, and counts them."""

    def __init__(self, form: str) -> None:
        self.count = 0
        self.wrong = 0
        self._form = form
        self._printed_s = time.monotonic()

    def progress(self, queue: str, moved: int, total: int) -> None:
        """Print the progress of a queue now and then."""
        now = time.monotonic()
        if now - self._printed_s >= PROGRESS_S:
            self._printed_s = now
            click.echo(f"{format_value(queue)}: {moved} of {total}", err=True)

    def add_result(self, moved: QueueResult) -> None:
        """Print the result of a queue."""
        self.count += 1
        self.wrong += not moved.is_complete
        if self._form == "json":
            click.echo(json.dumps(asdict(moved)))
            return
        text = f"{moved.kind} {format_value(moved.queue)}: {moved.moved} moved"
        if moved.suppressed:
            text += f", {moved.suppressed} that came again were known"
        if moved.repeated:
            text += f", {moved.repeated} came again and may be there twice"
        text += f"; {moved.target_first} before, {moved.target_last} now"
        click.echo(f"{text}: {moved.note}" if moved.note else text)

    def add_skipped(self, queue: str, text: str) -> None:
        """Print that a queue was left out."""
        self.count += 1
        self.wrong += 1
        click.echo(f"queue {format_value(queue)}: {format_value(text)}", err=True)


async def move(
    old: str,
    new: str,
    path: Path,
    queues: tuple[str, ...],
    streams: tuple[str, ...],
    origin: bool,
    dry_run: bool,
    outcome: Outcome,
) -> None:
    """Move the messages of all queues, one after the other."""
    from headrace.cli.migrate.migration import Migration
    from headrace.cli.migrate.state import State
    from headrace.client import connect

    name = "headrace migrate"
    async with connect(old, reconnect=None, name=name) as source:
        if dry_run:
            for queue in (*queues, *streams):
                async with source.channel() as channel:
                    count = (await channel.declare_queue(queue, passive=True)).message_count
                click.echo(f"queue {format_value(queue)}: {count} messages")
            return
        async with connect(new, reconnect=None, name=name) as target:
            with contextlib.closing(State(path)) as state:
                migration = Migration(
                    source, target, state, origin=origin, progress=outcome.progress
                )
                for queue in queues:
                    await move_one(migration.queue, queue, outcome)
                for stream in streams:
                    await move_one(migration.stream, stream, outcome)
    sys.stdout.flush()


async def move_one(
    moving: Callable[[str], Awaitable[QueueResult]], name: str, outcome: Outcome
) -> None:
    """Move one queue; a missing one does not stop the others."""
    from headrace.client import NotFound

    try:
        outcome.add_result(await moving(name))
    except NotFound as error:
        outcome.add_skipped(name, str(error))
