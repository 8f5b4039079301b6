# SPDX-License-Identifier: Apache-2.0
"""``headrace sinks``: writers of staged batches, and their undecided branches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headrace.cli.broker_url import BY_REQUEST, NAMED, broker_option, open_requests
from headrace.cli.commands import Group
from headrace.cli.output import (
    TSV_WITHOUT_HEADER,
    Row,
    iso_time,
    json_flag,
    print_facts,
    print_rows,
)

if TYPE_CHECKING:
    from headrace.client.blocking_pipeline import Requests

LISTED = ("sink", "last", "at", "branches", "messages", "epoch", "owner")
SINK = click.argument("sink", type=NAMED)


@click.group(cls=Group)
def sinks() -> None:
    """List, show and abort sinks: the writers of staged batches."""


def sink_row(sink: Row) -> Row:
    """Return a sink as a line of the list."""
    return {**sink, "at": iso_time(sink["at_ms"]) or "-"}


@BY_REQUEST.command(sinks, "list", columns=LISTED, convert_row=sink_row)
def list_all(requests: Requests) -> Iterable[Row]:
    """Print sink, last batch, its time, undecided branches and messages, epoch and owner."""
    rows: Iterable[Row] = requests.ask("sink.list")["sinks"]
    return rows


@sinks.command()
@broker_option
@json_flag
@SINK
def show(url: str, as_json: bool, sink: str) -> None:
    """Print SINK and its undecided branches: batch, name, state, since, messages."""
    with open_requests(url) as requests:
        row = requests.ask("sink.show", sink=sink)
    if as_json:
        print_facts(row, "json")
        return
    print_rows([sink_row(row)], LISTED, TSV_WITHOUT_HEADER)
    for branch in row["staged"]:
        since = iso_time(branch["since_ms"]) or "-"
        fields = (branch["batch"], branch["branch"], branch["state"], since, branch["messages"])
        click.echo("\t".join(str(field) for field in fields))


@sinks.command()
@broker_option
@click.option("--forget", is_flag=True, help="All batches, and the sink itself.")
@SINK
@click.argument("batch", type=int, required=False)
def abort(url: str, forget: bool, sink: str, batch: int | None) -> None:
    """Roll back the undecided branches of BATCH of SINK."""
    if forget == (batch is not None):
        raise click.UsageError("give either BATCH or --forget")
    with open_requests(url) as requests:
        if forget:
            answer = requests.ask("sink.discard", sink=sink)
        else:
            answer = requests.ask("batch.abort", sink=sink, batch=batch)
    click.echo(f"{answer['branches']} branches rolled back")
