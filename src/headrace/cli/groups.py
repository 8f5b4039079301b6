# SPDX-License-Identifier: Apache-2.0
"""``headrace groups``: where the readers of streams stand, and setting it by hand."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from headrace.cli.messages import broker_option
from headrace.cli.output import format_option, print_facts, print_rows
from headrace.client import ClientError
from headrace.client.blocking import connect
from headrace.client.blocking_pipeline import Groups, Requests, list_groups
from headrace.client.groups import GroupState, Position

ANSWER_S = 30.0
LISTED = ("stream", "group", "position", "lag", "lag_octets", "owner", "pin")


@contextlib.contextmanager
def open_requests(url: str) -> Iterator[Requests]:
    """Requests to a broker; what goes wrong ends the command with one sentence."""
    try:
        with (
            connect(url, timeout_s=ANSWER_S, reconnect=None, name="headrace cli") as connection,
            Requests(connection) as requests,
        ):
            yield requests
    except (ClientError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None


@click.group()
def groups() -> None:
    """Groups of readers: where they stand in streams."""


@groups.command("list")
@broker_option
@click.option("--stream", default="", help="Only the groups of this stream.")
@format_option
def list_all(url: str, stream: str, form: str | None) -> None:
    """Print stream, group, position, lag in messages and octets, owner, and pin.

    The owner is in brackets when its claim is over.
    """
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
@click.argument("stream")
@click.argument("group")
def show(url: str, form: str | None, stream: str, group: str) -> None:
    """Print all that is known of GROUP in STREAM."""
    with open_requests(url) as requests:
        state = Groups(requests, group).get([stream])[stream]
    facts = asdict(state)
    del facts["committed_ms"]
    print_facts({**facts, "committed_at": moment_of(state)}, form)


@groups.command("set")
@broker_option
@click.option("--pin/--no-pin", default=None, help="Whether retention leaves what it has not read.")
@click.argument("stream")
@click.argument("group")
@click.argument("position", required=False)
def set_position(url: str, pin: bool | None, stream: str, group: str, position: str | None) -> None:
    """Have GROUP go on in STREAM at POSITION: an offset, first, last, next, or a time (ISO 8601).

    It is set whoever owns the group; readers that run do not notice. The group is made if it is not
    there.
    """
    if position is None and pin is None:
        raise click.UsageError("give POSITION, --pin or --no-pin")
    with open_requests(url) as requests:
        made = Groups(requests, group)
        if pin is not None:
            made.begin({stream: "first" if position is None else position_of(position)}, pin=pin)
        if position is not None:
            made.commit({stream: position_of(position)}, force=True)
        state = made.get([stream])[stream]
    click.echo("\t".join(map(str, fields_of(state))))


@groups.command()
@broker_option
@click.option("--force", is_flag=True, help="Even while somebody has it.")
@click.argument("stream")
@click.argument("group")
def delete(url: str, force: bool, stream: str, group: str) -> None:
    """Forget GROUP in STREAM: its readers begin anew, and it pins nothing any more."""
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


def position_of(text: str) -> Position:
    """Read a position."""
    if text in ("first", "last", "next"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{text!r} is no offset, none of first, last and next, and no time"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
