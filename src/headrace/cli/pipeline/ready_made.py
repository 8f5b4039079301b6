# SPDX-License-Identifier: Apache-2.0
"""``headrace pipeline archive``, ``replay`` and ``dead-letters``: the ready-made pipelines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli import commands
from headrace.cli.broker_url import NAMED, broker_option
from headrace.cli.output import json_flag
from headrace.cli.pipeline.run import console, pipeline_errors, run_pipeline

if TYPE_CHECKING:
    from headrace.pipeline.ready.dead_letters import DeadLetterGroup, RoutingResult
    from headrace.pipeline.ready.death import DeadLetterRule
    from headrace.pipeline.ready.replay import ReplayCounts

SHOWN_MAX = 20


@click.command()
@broker_option
@click.option("--stream", help="The stream to archive.")
@click.option("--super-stream", help="The super stream to archive.")
@click.option("--queue", help="The queue to archive; its messages are consumed.")
@click.option("--to", "path", required=True, type=click.Path(file_okay=False), metavar="PATH")
@click.option("--delta", is_flag=True, help="Write a Delta table instead of Parquet files.")
@click.option(
    "--trigger", default="10 seconds", show_default=True,
    help="available-now archives what is ready and ends; or an interval.",
)  # fmt: skip
@click.option("--batch", type=click.IntRange(1), default=500_000, show_default=True)
@click.option("--from", "start", default="earliest", show_default=True, metavar="OFFSETS")
@click.option("--compact-every", type=click.IntRange(1), default=100, show_default=True)
def archive(
    url: str,
    stream: str | None,
    super_stream: str | None,
    queue: str | None,
    path: str,
    delta: bool,
    trigger: str,
    batch: int,
    start: str,
    compact_every: int,
) -> None:
    """Archive every message once in a lake, a directory per day. A restart continues.

    The same as `headrace pipeline run ready:archive --set …`, where `status`, `stop` and `reset`
    find it too. Its state is in .headrace/archive-NAME.
    """
    from headrace.pipeline.config.load import load

    kinds = {"stream": stream, "super-stream": super_stream, "queue": queue}
    sources = [(kind, name) for kind, name in kinds.items() if name is not None]
    if len(sources) != 1:
        raise click.UsageError("give one of --stream, --super-stream and --queue")
    kind, name = sources[0]
    parameters = {
        "URL": url,
        "SOURCE": kind,
        "NAME": name,
        "PATH_TO": path,
        "FORMAT": "delta" if delta else "parquet",
        "TRIGGER": trigger,
        "BATCH_RECORDS": str(batch),
        "STARTING_OFFSETS": "" if kind == "queue" else start,
        "COMPACT_EVERY": str(compact_every),
    }
    with pipeline_errors():
        run_pipeline(load("ready:archive", parameters))


MOMENT = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"])


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)


@click.command()
@broker_option
@click.argument("lake", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--exchange", "-e", help="The target exchange. [that of each message]")
@click.option("--routing-key", "-k", help="The routing key. [that of each message]")
@click.option("--stream", "streams", multiple=True, help="Only messages of this stream.")
@click.option("--since", type=MOMENT, help="Only messages that arrived from this time on, UTC.")
@click.option("--until", type=MOMENT, help="Only messages that arrived before this time, UTC.")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Rate in messages per second."
)
@click.option(
    "--without", multiple=True, metavar="PROPERTY", help="Omit this property; may be repeated."
)
@click.option(
    "--header",
    "-H",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Add this header; may be repeated.",
)
@click.option(
    "--progress", type=click.Path(dir_okay=False, path_type=Path),
    help="A file for the progress, from which a later run continues.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Count the messages without publishing them.")
def replay(
    url: str,
    lake: Path,
    exchange: str | None,
    routing_key: str | None,
    streams: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    rate: float | None,
    without: tuple[str, ...],
    headers: tuple[str, ...],
    progress: Path | None,
    dry_run: bool,
) -> None:
    """Publish the messages of an archive again, in order, with properties and headers."""
    from headrace.pipeline.ready.archive import MessageFilter
    from headrace.pipeline.ready.replay import OMITTABLE_PROPERTIES, ReplayRequest, count_messages
    from headrace.pipeline.ready.replay import replay as publish

    added = {}
    for header in headers:
        name, separator, value = header.partition("=")
        if not separator or not name:
            raise click.UsageError(f"--header {header!r} is not NAME=VALUE")
        added[name] = value
    for name in without:
        if name not in OMITTABLE_PROPERTIES:
            raise click.UsageError(
                f"--without {name}: it is not one of {', '.join(OMITTABLE_PROPERTIES)}"
            )
    request = ReplayRequest(
        lake=lake,
        message_filter=MessageFilter(frozenset(streams), _utc(since), _utc(until)),
        exchange=exchange,
        routing_key=routing_key,
        rate=rate,
        without=frozenset(without),
        headers=added,
        progress=progress,
    )
    with pipeline_errors():
        if dry_run:
            _show_counters(count_messages(request))
            return
        counters = publish(url, request, lambda done: click.echo(f"{done.messages} …", err=True))
    click.echo(
        f"{counters.messages} published and confirmed, {counters.size_bytes} bytes", err=True
    )


def _show_counters(counters: ReplayCounts) -> None:
    from rich.table import Table

    table = Table(title=f"{counters.messages:,} messages, {counters.size_bytes:,} bytes")
    for heading in ("exchange", "routing key", "messages"):
        table.add_column(heading, justify="right" if heading == "messages" else "left")
    most = sorted(counters.addresses.items(), key=lambda counter: -counter[1])
    for (exchange, routing_key), count in most[:SHOWN_MAX]:
        table.add_row(exchange or "(default)", routing_key, f"{count:,}")
    if len(most) > SHOWN_MAX:
        table.add_row("…", f"{len(most) - SHOWN_MAX} more", "")
    if counters.first is not None and counters.last is not None:
        table.caption = f"arrived {_format_time(counters.first)} to {_format_time(counters.last)}"
    console().print(table)


def _format_time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


@click.group(cls=commands.Group, name="dead-letters")
def dead_letters() -> None:
    """List dead letters, and route back, park or drop them by rules."""


limit_option = click.option(
    "--limit", type=click.IntRange(1), default=100_000, show_default=True,
    help="Maximum number of messages to read, from the head of the queue.",
)  # fmt: skip


@dead_letters.command("list")
@broker_option
@limit_option
@click.option("--by", default="reason,queue,routing_key", show_default=True, metavar="COLUMNS")
@json_flag
@click.argument("queue", type=NAMED)
def list_letters(url: str, limit: int, by: str, as_json: bool, queue: str) -> None:
    """Count the messages of QUEUE by reason and queue of their death, without removing them."""
    from headrace.pipeline.ready.dead_letters import browse, group_by_death

    columns = tuple(by.split(","))
    with pipeline_errors():
        groups = group_by_death(browse(url, queue, limit), columns)
    if as_json:
        for group in groups:
            click.echo(json.dumps(_as_json(columns, group)))
        return
    _show_groups(queue, columns, groups)


def _as_json(columns: tuple[str, ...], group: DeadLetterGroup) -> dict[str, object]:
    return {
        **dict(zip(columns, group.key, strict=True)),
        "messages": group.messages,
        "bytes": group.size_bytes,
        "deaths_max": group.deaths_max,
        "first": None if group.first is None else group.first.isoformat(),
        "last": None if group.last is None else group.last.isoformat(),
    }


def _show_groups(queue: str, columns: tuple[str, ...], groups: list[DeadLetterGroup]) -> None:
    from rich.table import Table

    table = Table(title=f"{queue}: {sum(group.messages for group in groups):,} messages")
    for heading in columns:
        table.add_column(heading)
    for heading in ("messages", "bytes", "deaths"):
        table.add_column(heading, justify="right")
    for heading in ("first", "last"):
        table.add_column(heading)
    for group in groups:
        counts = (f"{group.messages:,}", f"{group.size_bytes:,}", f"{group.deaths_max:,}")
        table.add_row(*group.key, *counts, _format_time(group.first), _format_time(group.last))
    console().print(table)


@dead_letters.command()
@broker_option
@limit_option
@click.option("--dry-run", is_flag=True, help="Print the actions without doing them.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--rules", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file of [[rules]]; see docs/guides/dead-letters.md.",
)  # fmt: skip
@click.option(
    "--action", type=click.Choice(["route-back", "park", "drop"]),
    help="Instead of --rules: the action for the messages that the other options select.",
)  # fmt: skip
@click.option(
    "--reason", default="*", help="Only dead letters with this reason; * and ? are wildcards."
)
@click.option(
    "--from-queue", default="*", help="Only dead letters of this queue; * and ? are wildcards."
)
@click.option("--to", help="The queue for park.")
@click.option("--forget-deaths", is_flag=True, help="Remove the headers about deaths.")
@click.argument("queue", type=NAMED)
def apply(
    url: str,
    limit: int,
    dry_run: bool,
    yes: bool,
    rules: Path | None,
    action: str | None,
    reason: str,
    from_queue: str,
    to: str | None,
    forget_deaths: bool,
    queue: str,
) -> None:
    """Apply rules to the messages of QUEUE; messages that match none stay there."""
    from headrace.pipeline.ready.dead_letters import browse, load_rules, preview, settle

    if (rules is None) == (action is None):
        raise click.UsageError("give either --rules or --action")
    with pipeline_errors():
        if rules is not None:
            chosen = load_rules(rules)
        else:
            chosen = [_rule(str(action), reason, from_queue, to, keep=not forget_deaths)]
        if dry_run or not yes:
            _show_outcome(preview(browse(url, queue, limit), chosen), "would be")
        if dry_run:
            return
        if not yes:
            click.confirm("Do this?", abort=True)
        _show_outcome(settle(url, queue, chosen, limit), "is")


def _rule(action: str, reason: str, queue: str, to: str | None, *, keep: bool) -> DeadLetterRule:
    from pydantic import ValidationError

    from headrace.pipeline.ready.death import DeadLetterRule

    try:
        return DeadLetterRule.model_validate(
            {"name": action, "action": action, "reason": reason, "queue": queue, "to": to}
            | {"keep_deaths": keep}
        )
    except ValidationError as error:
        text = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise click.UsageError(text.replace("'to'", "--to")) from None


def _show_outcome(outcome: RoutingResult, verb: str) -> None:
    for name, count in outcome.by_rule.items():
        click.echo(f"{name}: {count:,}")
    click.echo(f"left where it {verb}: {outcome.unmatched:,}")
