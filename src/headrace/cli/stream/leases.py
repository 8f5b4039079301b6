# SPDX-License-Identifier: Apache-2.0
"""``headrace leases``: messages that groups have leased from queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headrace.cli.broker_url import BY_REQUEST, NAME, NAMED
from headrace.cli.commands import Group

if TYPE_CHECKING:
    from headrace.cli.output import Row
    from headrace.client.blocking_pipeline import Requests

LISTED = ("queue", "group", "settled", "next", "leased", "ready", "owner")
QUEUE = click.argument("queue", type=NAMED)
GROUP = click.argument("group", type=NAMED)


@click.group(cls=Group)
def leases() -> None:
    """List, show and release leases: unsettled messages that groups took from queues."""


@BY_REQUEST.command(leases, "list", columns=LISTED, wide=True)
@click.option("--queue", default="", help="Only the leases of this queue.")
def list_all(requests: Requests, queue: str) -> Iterator[Row]:
    """Print queue, group, settled, next, messages leased and still ready, and the owner."""
    from headrace.client.blocking_pipeline import list_leases

    return ({**asdict(state), "leased": state.leased} for state in list_leases(requests, queue))


@BY_REQUEST.command(leases, "show", facts=True)
@QUEUE
@GROUP
def show(requests: Requests, queue: str, group: str) -> Row:
    """Print the details of the lease of QUEUE for GROUP."""
    return requests.ask("lease.info", queue=queue, group=group)


@BY_REQUEST.command(leases, "release")
@click.option("--force", is_flag=True, help="Release the messages even if an owner is active.")
@click.option("--forget", is_flag=True, help="Also delete the lease; the next one starts at 0.")
@QUEUE
@GROUP
def release(requests: Requests, force: bool, forget: bool, queue: str, group: str) -> str:
    """Return the unsettled messages that GROUP leased from QUEUE to their places."""
    names = {"queue": queue, "group": group, "owner": NAME}
    answer = requests.ask("lease.release", **names, force=force, forget=forget)
    if not force and not forget:
        requests.ask("lease.leave", **names)
    return f"{answer['released']} messages returned"
