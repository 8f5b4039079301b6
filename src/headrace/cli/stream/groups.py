# SPDX-License-Identifier: Apache-2.0
"""``headrace groups``: where the readers of streams stand, and setting it by hand."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.broker_url import NAMED, broker_option, open_requests, read_place
from headrace.cli.commands import Group
from headrace.cli.output import format_option, print_facts, print_rows

if TYPE_CHECKING:
    from headrace.client.groups import GroupState

LISTED = ("stream", "group", "position", "lag", "lag_bytes", "owner", "pin")


@click.group(cls=Group)
def groups() -> None:
    """Groups of readers: where they stand in streams."""


@groups.command("list")
@broker_option
@click.option("--stream", default="", help="Only the groups of this stream.")
@format_option
def list_all(url: str, stream: str, form: str | None) -> None:
    """Print stream, group, position, lag in messages and bytes, owner, and pin.

    The owner is in brackets when its claim is over.
    """
    from headrace.client.blocking_pipeline import list_groups

    with open_requests(url) as requests:
        states = list_groups(requests, stream)
        if form == "json":
            print_rows(map(asdict, states), (), form, wide=True)
        else:
            rows = (dict(zip(LISTED, fields_of(state), strict=True)) for state in states)
            print_rows(rows, LISTED, form)


@groups.command()
@broker_option
@format_option
@click.argument("stream", type=NAMED)
@click.argument("group", type=NAMED)
def show(url: str, form: str | None, stream: str, group: str) -> None:
    """Print all that is known of GROUP in STREAM."""
    from headrace.client.blocking_pipeline import Groups

    with open_requests(url) as requests:
        state = Groups(requests, group).get([stream])[stream]
    facts = asdict(state)
    del facts["committed_ms"]
    print_facts({**facts, "committed_at": moment_of(state)}, form)


@groups.command("set")
@broker_option
@click.option("--pin/--no-pin", default=None, help="Whether retention leaves what it has not read.")
@click.argument("stream", type=NAMED)
@click.argument("group", type=NAMED)
@click.argument("position", required=False)
def set_position(url: str, pin: bool | None, stream: str, group: str, position: str | None) -> None:
    """Have GROUP go on in STREAM at POSITION: an offset, first, last, next, or a time (ISO 8601).

    It is set whoever owns the group; readers that run do not notice. The group is made if it is not
    there.
    """
    from headrace.client.blocking_pipeline import Groups

    if position is None and pin is None:
        raise click.UsageError("give POSITION, --pin or --no-pin")
    place = None if position is None else read_place(position, "POSITION")
    with open_requests(url) as requests:
        made = Groups(requests, group)
        if pin is not None:
            made.begin({stream: "first" if place is None else place}, pin=pin)
        if place is not None:
            made.commit({stream: place}, force=True)
        state = made.get([stream])[stream]
    click.echo("\t".join(map(str, fields_of(state))))


@groups.command()
@broker_option
@click.option("--force", is_flag=True, help="Even while somebody has it.")
@click.argument("stream", type=NAMED)
@click.argument("group", type=NAMED)
def delete(url: str, force: bool, stream: str, group: str) -> None:
    """Forget GROUP in STREAM: its readers begin anew, and it pins nothing any more."""
    from headrace.client.blocking_pipeline import Groups

    with open_requests(url) as requests:
        Groups(requests, group).delete([stream], force=force)


def fields_of(state: GroupState) -> list[Any]:
    """What a line of a list says."""
    owner = state.owner if state.claimed else f"({state.owner})" if state.owner else "-"
    pin = "pin" if state.pin else "-"
    numbers = (state.position, state.lag, state.lag_octets)
    return [state.stream, state.group, *numbers, owner, pin]


def moment_of(state: GroupState) -> str | None:
    """When the position was committed."""
    if not state.committed_ms:
        return None
    return datetime.fromtimestamp(state.committed_ms / 1000, UTC).isoformat(timespec="seconds")
