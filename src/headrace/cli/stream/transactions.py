# SPDX-License-Identifier: Apache-2.0
"""``headrace transaction``: see distributed transactions, and decide them.

The command talks to a running broker as any client does: with a message to its queue
``amq.headrace.transactions`` (see :mod:`headrace.gateway.requests.transactions`).
"""

from typing import Any

import click

from headrace.cli.broker_url import broker_option, open_requests
from headrace.cli.commands import Group
from headrace.cli.output import format_option, print_rows

QUEUE = "amq.headrace.transactions"
LISTED = ("xid", "state", "since", "publishes", "settles", "sessions")


def ask(url: str, do: str, **request: Any) -> dict[str, Any]:
    """Send a request to the broker and return its answer; an error ends the command."""
    with open_requests(url, QUEUE) as requests:
        return requests.ask(do, **request)


@click.group(cls=Group)
def transaction() -> None:
    """Distributed transactions of a virtual host: see them, decide them."""


@transaction.command("list")
@broker_option
@format_option
def list_transactions(url: str, form: str | None) -> None:
    """Print id, state, since when, publishes, acks and sessions at work, of each transaction."""
    print_rows(ask(url, "list")["transactions"], LISTED, form, wide=True)


HEURISTIC = click.option(
    "--heuristic",
    is_flag=True,
    help="Decide in place of the coordinator, which will be told so until someone says forget.",
)


@transaction.command()
@broker_option
@click.argument("xid")
def prepare(url: str, xid: str) -> None:
    """Write the transaction XID to disk, to be committed or rolled back later."""
    click.echo(ask(url, "prepare", xid=xid)["status"])


@transaction.command()
@broker_option
@HEURISTIC
@click.argument("xid")
def commit(url: str, heuristic: bool, xid: str) -> None:
    """Make the transaction XID happen, in one phase if it is not prepared."""
    click.echo(ask(url, "commit", xid=xid, heuristic=heuristic)["status"])


@transaction.command()
@broker_option
@HEURISTIC
@click.argument("xid")
def rollback(url: str, heuristic: bool, xid: str) -> None:
    """Undo the transaction XID."""
    click.echo(ask(url, "rollback", xid=xid, heuristic=heuristic)["status"])


@transaction.command()
@broker_option
@click.argument("xid")
def forget(url: str, xid: str) -> None:
    """Forget the transaction XID, which an operator has decided."""
    ask(url, "forget", xid=xid)
