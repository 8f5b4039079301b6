# SPDX-License-Identifier: Apache-2.0
"""``headrace transaction``: list distributed transactions, and decide them.

Requests go to the queue ``amq.headrace.transactions``; see
:mod:`headrace.gateway.requests.transactions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headrace.cli.broker_url import broker_option, open_requests
from headrace.cli.commands import Group
from headrace.cli.operations import Target

if TYPE_CHECKING:
    from headrace.cli.output import Row
    from headrace.client.blocking_pipeline import Requests

QUEUE = "amq.headrace.transactions"
LISTED = ("xid", "state", "since", "publishes", "settles", "sessions")
BY_REQUEST = Target(broker_option, "url", lambda url: open_requests(url, QUEUE))
XID = click.argument("xid")
HEURISTIC = click.option(
    "--heuristic",
    is_flag=True,
    help="Decide in place of the coordinator, which is notified until `transaction forget`.",
)


@click.group(cls=Group)
def transaction() -> None:
    """List distributed transactions of a virtual host, and decide them."""


@BY_REQUEST.command(transaction, "list", columns=LISTED, wide=True)
def list_all(requests: Requests) -> Iterable[Row]:
    """Print id, state, start time, publishes, acks and sessions of each transaction."""
    rows: Iterable[Row] = requests.ask("list")["transactions"]
    return rows


@BY_REQUEST.command(transaction, "prepare")
@XID
def prepare(requests: Requests, xid: str) -> str:
    """Write the transaction XID to disk, to be committed or rolled back later."""
    return str(requests.ask("prepare", xid=xid)["status"])


@BY_REQUEST.command(transaction, "commit")
@HEURISTIC
@XID
def commit(requests: Requests, heuristic: bool, xid: str) -> str:
    """Commit the transaction XID, in one phase if it is not prepared."""
    return str(requests.ask("commit", xid=xid, heuristic=heuristic)["status"])


@BY_REQUEST.command(transaction, "rollback")
@HEURISTIC
@XID
def rollback(requests: Requests, heuristic: bool, xid: str) -> str:
    """Roll back the transaction XID."""
    return str(requests.ask("rollback", xid=xid, heuristic=heuristic)["status"])


@BY_REQUEST.command(transaction, "forget")
@XID
def forget(requests: Requests, xid: str) -> None:
    """Forget the transaction XID, which an operator has decided."""
    requests.ask("forget", xid=xid)
