# SPDX-License-Identifier: Apache-2.0
"""``headrace leases``: what groups have taken from queues, and giving it back by hand."""

from dataclasses import asdict

import click

from headrace.cli.broker_url import NAME, NAMED, broker_option, open_requests
from headrace.cli.commands import Group
from headrace.cli.output import format_option, print_facts, print_rows

LISTED = ("queue", "group", "settled", "next", "leased", "ready", "owner")


@click.group(cls=Group)
def leases() -> None:
    """Leases: what groups have taken from queues and not settled."""


@leases.command("list")
@broker_option
@click.option("--queue", default="", help="Only the leases of this queue.")
@format_option
def list_all(url: str, queue: str, form: str | None) -> None:
    """Print queue, group, settled, next, messages leased and still ready, and the owner."""
    from headrace.client.blocking_pipeline import list_leases

    with open_requests(url) as requests:
        states = list_leases(requests, queue)
        rows = ({**asdict(state), "leased": state.leased} for state in states)
        print_rows(rows, LISTED, form, wide=True)


@leases.command()
@broker_option
@format_option
@click.argument("queue", type=NAMED)
@click.argument("group", type=NAMED)
def show(url: str, form: str | None, queue: str, group: str) -> None:
    """Print all that is known of the lease of QUEUE for GROUP."""
    with open_requests(url) as requests:
        known = requests.ask("lease.info", queue=queue, group=group)
    print_facts(known, form)


@leases.command()
@broker_option
@click.option("--force", is_flag=True, help="Even if an owner works on it.")
@click.option("--forget", is_flag=True, help="End the lease, too; the next one starts with 0.")
@click.argument("queue", type=NAMED)
@click.argument("group", type=NAMED)
def release(url: str, force: bool, forget: bool, queue: str, group: str) -> None:
    """Return what GROUP took from QUEUE, and has not settled, to its places in the queue."""
    with open_requests(url) as requests:
        names = {"queue": queue, "group": group, "owner": NAME}
        answer = requests.ask("lease.release", **names, force=force, forget=forget)
        if not force and not forget:
            requests.ask("lease.leave", **names)
    click.echo(f"{answer['released']} messages returned")
