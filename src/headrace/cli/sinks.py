# SPDX-License-Identifier: Apache-2.0
"""``headrace sinks``: who writes staged batches, what is undecided, and giving that up by hand."""

import json
from datetime import UTC, datetime
from typing import Any

import click

from headrace.cli.leases import open_requests
from headrace.cli.messages import broker_option


def moment(ms: int) -> str:
    """Return a time for people; ``-`` where there was none."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") if ms else "-"


def columns(found: dict[str, Any]) -> str:
    """Return a sink as one line."""
    last = "-" if found["last"] is None else found["last"]
    fields = (found["sink"], last, moment(found["at_ms"]), found["branches"], found["messages"])
    return "\t".join(str(field) for field in (*fields, found["epoch"], found["owner"]))


@click.group()
def sinks() -> None:
    """Sinks of staged batches: the last batch, what is staged, and who owns them."""


@sinks.command("list")
@broker_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_all(url: str, as_json: bool) -> None:
    """Print sink, last batch, when, branches and messages undecided, epoch and owner."""
    with open_requests(url) as requests:
        for found in requests.ask("sink.list")["sinks"]:
            click.echo(json.dumps(found) if as_json else columns(found))


@sinks.command()
@broker_option
@click.argument("sink")
def show(url: str, sink: str) -> None:
    """Print SINK, and each branch that is undecided: batch, name, state, since, messages."""
    with open_requests(url) as requests:
        found = requests.ask("sink.show", sink=sink)
    click.echo(columns(found))
    for branch in found["staged"]:
        since = moment(branch["since_ms"])
        fields = (branch["batch"], branch["branch"], branch["state"], since, branch["messages"])
        click.echo("\t".join(str(field) for field in fields))


@sinks.command()
@broker_option
@click.option("--forget", is_flag=True, help="All batches, and the sink itself.")
@click.argument("sink")
@click.argument("batch", type=int, required=False)
def abort(url: str, forget: bool, sink: str, batch: int | None) -> None:
    """Roll back what is staged for BATCH of SINK and undecided."""
    if forget == (batch is not None):
        raise click.UsageError("say either BATCH or --forget")
    with open_requests(url) as requests:
        if forget:
            answer = requests.ask("sink.discard", sink=sink)
        else:
            answer = requests.ask("batch.abort", sink=sink, batch=batch)
    click.echo(f"{answer['branches']} branches rolled back")
