# SPDX-License-Identifier: Apache-2.0
"""``headrace groups``: positions of stream readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headrace.cli.broker_url import BY_REQUEST, NAMED, broker_option, open_requests, parse_position
from headrace.cli.commands import Group
from headrace.cli.output import Row, iso_time

if TYPE_CHECKING:
    from headrace.client.blocking_pipeline import Requests

LISTED = ("stream", "group", "position", "lag", "lag_bytes", "owner", "pin")
STREAM = click.argument("stream", type=NAMED)
GROUP = click.argument("group", type=NAMED)


@click.group(cls=Group)
def groups() -> None:
    """List, show and set the positions of stream readers."""


def group_row(state: Row) -> Row:
    """Return a group as a line of the list."""
    owner = state["owner"] or "-"
    owner = owner if state["claimed"] or not state["owner"] else f"({owner})"
    pin = "pin" if state["pin"] else "-"
    return {**state, "lag_bytes": state["lag_octets"], "owner": owner, "pin": pin}


@BY_REQUEST.command(groups, "list", columns=LISTED, convert_row=group_row)
@click.option("--stream", default="", help="Only the groups of this stream.")
def list_all(requests: Requests, stream: str) -> Iterator[Row]:
    """Print stream, group, position, lag in messages and bytes, owner, and pin.

    An owner whose claim has expired is in brackets.
    """
    from headrace.client.blocking_pipeline import list_groups

    return map(asdict, list_groups(requests, stream))


@BY_REQUEST.command(groups, "show", facts=True)
@STREAM
@GROUP
def show(requests: Requests, stream: str, group: str) -> Row:
    """Print the details of GROUP in STREAM."""
    from headrace.client.blocking_pipeline import Groups

    facts = asdict(Groups(requests, group).get([stream])[stream])
    committed_ms = facts.pop("committed_ms")
    return {**facts, "committed_at": iso_time(committed_ms)}


@groups.command("set")
@broker_option
@click.option("--pin/--no-pin", default=None, help="Make retention keep unread records.")
@STREAM
@GROUP
@click.argument("position", required=False)
def set_position(url: str, pin: bool | None, stream: str, group: str, position: str | None) -> None:
    """Set the position of GROUP in STREAM: an offset, first, last, next, or a time (ISO 8601).

    Ownership is not checked, and running readers are not affected. A missing group is created.
    """
    from headrace.client.blocking_pipeline import Groups

    if position is None and pin is None:
        raise click.UsageError("give POSITION, --pin or --no-pin")
    start = None if position is None else parse_position(position, "POSITION")
    with open_requests(url) as requests:
        readers = Groups(requests, group)
        if pin is not None:
            readers.begin({stream: "first" if start is None else start}, pin=pin)
        if start is not None:
            readers.commit({stream: start}, force=True)
        row = group_row(asdict(readers.get([stream])[stream]))
    click.echo("\t".join(str(row[name]) for name in LISTED))


@BY_REQUEST.command(groups, "delete")
@click.option("--force", is_flag=True, help="Delete the group even if a reader owns it.")
@STREAM
@GROUP
def delete(requests: Requests, force: bool, stream: str, group: str) -> None:
    """Delete GROUP in STREAM with its positions and its pin."""
    from headrace.client.blocking_pipeline import Groups

    Groups(requests, group).delete([stream], force=force)
