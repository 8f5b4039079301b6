# SPDX-License-Identifier: Apache-2.0
"""``headrace sinks``: who writes staged batches, what is undecided, and giving that up by hand."""

from datetime import UTC, datetime

import click

from headrace.cli.broker_url import NAMED, broker_option, open_requests
from headrace.cli.commands import Group
from headrace.cli.output import BARE, format_option, json_flag, print_facts, print_rows

LISTED = ("sink", "last", "at", "branches", "messages", "epoch", "owner")


def moment(ms: int) -> str:
    """Return a time for people; ``-`` where there was none."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") if ms else "-"


@click.group(cls=Group)
def sinks() -> None:
    """Sinks of staged batches: the last batch, what is staged, and who owns them."""


@sinks.command("list")
@broker_option
@format_option
def list_all(url: str, form: str | None) -> None:
    """Print sink, last batch, when, branches and messages undecided, epoch and owner."""
    with open_requests(url) as requests:
        found = requests.ask("sink.list")["sinks"]
    if form == "json":
        print_rows(found, (), form, wide=True)
    else:
        print_rows(({**sink, "at": moment(sink["at_ms"])} for sink in found), LISTED, form)


@sinks.command()
@broker_option
@json_flag
@click.argument("sink", type=NAMED)
def show(url: str, as_json: bool, sink: str) -> None:
    """Print SINK, and each branch that is undecided: batch, name, state, since, messages."""
    with open_requests(url) as requests:
        found = requests.ask("sink.show", sink=sink)
    if as_json:
        print_facts(found, "json")
        return
    print_rows([{**found, "at": moment(found["at_ms"])}], LISTED, BARE)
    for branch in found["staged"]:
        since = moment(branch["since_ms"])
        fields = (branch["batch"], branch["branch"], branch["state"], since, branch["messages"])
        click.echo("\t".join(str(field) for field in fields))


@sinks.command()
@broker_option
@click.option("--forget", is_flag=True, help="All batches, and the sink itself.")
@click.argument("sink", type=NAMED)
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
