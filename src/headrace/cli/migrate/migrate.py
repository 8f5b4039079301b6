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

PROGRESS_S = 1.0  # The shortest time between two lines of progress.


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
    help="The new broker; also HEADRACE_URL. [default: this machine, same virtual host]",
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

    A message leaves the old broker when this one has confirmed it. After an interruption, run the
    command again. HEADRACE_MIGRATE_FROM can name OLD and hides its password from other users.
    """
    import asyncio

    from headrace.cli.admin.definitions import import_definitions, print_report, read_file
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
        report = import_definitions(document, data, socket, None, dry_run=dry_run)
        if form == "text":
            print_report(report, form)
    if topology_only:
        return
    if document is not None and not (queues or streams):
        queues, streams = queue_names(document, vhost)
    results = ResultPrinter(form)
    try:
        asyncio.run(move(old, target, state, queues, streams, origin, dry_run, results))
    except KeyboardInterrupt:
        raise click.ClickException("interrupted; run it again to continue") from None
    except (ClientError, StateError, OSError, TimeoutError) as error:
        raise click.ClickException(f"{error}; run it again to continue") from None
    if results.incomplete:
        raise click.ClickException(f"{results.incomplete} of {results.count} are not complete")


def queue_names(document: Document, vhost: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the queues and of the streams of a virtual host in a file."""
    queues: list[str] = []
    streams: list[str] = []
    for value in document.sections.get("queues", []):
        if isinstance(value, dict) and value.get("vhost", vhost) == vhost:
            arguments = value.get("arguments") or {}
            if not isinstance(arguments, dict) or not isinstance(value.get("name"), str):
                continue
            is_stream = "stream" in (arguments.get("x-queue-type"), value.get("type"))
            (streams if is_stream else queues).append(value["name"])
    return tuple(queues), tuple(streams)


class ResultPrinter:
    """Prints the result of each queue, and counts the queues."""

    def __init__(self, form: str) -> None:
        self.count = 0
        self.incomplete = 0
        self._form = form
        self._printed_s = time.monotonic()

    def progress(self, queue: str, moved: int, total: int) -> None:
        """Print the progress of a queue, at most once in ``PROGRESS_S``."""
        now_s = time.monotonic()
        if now_s - self._printed_s >= PROGRESS_S:
            self._printed_s = now_s
            click.echo(f"{format_value(queue)}: {moved} of {total}", err=True)

    def add_result(self, result: QueueResult) -> None:
        """Print the result of a queue."""
        self.count += 1
        self.incomplete += not result.is_complete
        if self._form == "json":
            click.echo(json.dumps(asdict(result)))
            return
        text = f"{result.kind} {format_value(result.queue)}: {result.moved} moved"
        if result.suppressed:
            text += f", {result.suppressed} duplicates dropped"
        if result.repeated:
            text += f", {result.repeated} may be duplicates"
        text += f"; the target had {result.target_first} messages, now {result.target_last}"
        click.echo(f"{text}: {result.note}" if result.note else text)

    def add_skipped(self, queue: str, text: str) -> None:
        """Print that a queue was left out."""
        self.count += 1
        self.incomplete += 1
        click.echo(f"queue {format_value(queue)}: {format_value(text)}", err=True)


async def move(
    old: str,
    new: str,
    path: Path,
    queues: tuple[str, ...],
    streams: tuple[str, ...],
    origin: bool,
    dry_run: bool,
    results: ResultPrinter,
) -> None:
    """Move the messages of all queues, one after the other."""
    from headrace.cli.migrate.migration import Migration
    from headrace.cli.migrate.state import MigrationState
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
            with contextlib.closing(MigrationState(path)) as state:
                migration = Migration(
                    source, target, state, origin=origin, progress=results.progress
                )
                for queue in queues:
                    await move_queue(migration.queue, queue, results)
                for stream in streams:
                    await move_queue(migration.stream, stream, results)
    sys.stdout.flush()


async def move_queue(
    move_messages: Callable[[str], Awaitable[QueueResult]], name: str, results: ResultPrinter
) -> None:
    """Move one queue; report a missing one, so that the others are moved."""
    from headrace.client import NotFound

    try:
        results.add_result(await move_messages(name))
    except NotFound as error:
        results.add_skipped(name, str(error))
