# SPDX-License-Identifier: Apache-2.0
"""``headrace groups``: where the readers of streams stand, and setting it by hand."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime

import click

from headrace.cli.messages import broker_option
from headrace.client import ClientError
from headrace.client.blocking import connect
from headrace.client.blocking_pipeline import Groups, Requests, list_groups
from headrace.client.groups import GroupState, Position

ANSWER_S = 30.0


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
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_all(url: str, stream: str, as_json: bool) -> None:
    """Print stream, group, position, lag in messages and octets, owner, and pin.

    The owner is in brackets when its claim is over.
    """
    with open_requests(url) as requests:
        for state in list_groups(requests, stream):
            if as_json:
                click.echo(json.dumps(asdict(state)))
            else:
                click.echo("\t".join(fields_of(state)))


@groups.command()
@broker_option
@click.argument("stream")
@click.argument("group")
def show(url: str, stream: str, group: str) -> None:
    """Print all that is known of GROUP in STREAM."""
    with open_requests(url) as requests:
        state = Groups(requests, group).get([stream])[stream]
    for name, value in asdict(state).items():
        if name == "committed_ms":
            name, value = "committed_at", moment_of(state)
        click.echo(f"{name}\t{'-' if value is None else value}")


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
    click.echo("\t".join(fields_of(state)))


@groups.command()
@broker_option
@click.option("--force", is_flag=True, help="Even while somebody has it.")
@click.argument("stream")
@click.argument("group")
def delete(url: str, force: bool, stream: str, group: str) -> None:
    """Forget GROUP in STREAM: its readers begin anew, and it pins nothing any more."""
    with open_requests(url) as requests:
        Groups(requests, group).delete([stream], force=force)


def fields_of(state: GroupState) -> list[str]:
    """What a line of a list says."""
    owner = state.owner if state.claimed else f"({state.owner})" if state.owner else "-"
    pin = "pin" if state.pin else "-"
    numbers = (state.position, state.lag, state.lag_octets)
    return [state.stream, state.group, *map(str, numbers), owner, pin]


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
