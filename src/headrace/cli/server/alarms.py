# SPDX-License-Identifier: Apache-2.0
"""``headrace alarm``: alarms that block publishers, and setting one by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.commands import Group
from headrace.cli.management import BY_SOCKET, ask, list_items

if TYPE_CHECKING:
    from headrace.cli.output import Row


@click.group(cls=Group)
def alarm() -> None:
    """List, set and clear alarms, which block publishers but not consumers."""


@BY_SOCKET.command(alarm, "list", columns=("source", "vhost", "reason", "since"))
def list_alarms(socket: Path) -> Iterator[Row]:
    """Print source, virtual host, reason and start time of each alarm."""
    return list_items(socket, "list alarms")


@BY_SOCKET.command(alarm, "set")
@click.option("--vhost", help="Block the publishers of this virtual host only. [all]")
@click.option("--reason", help="The reason that clients get. [set by an operator]")
def set_alarm(socket: Path, vhost: str | None, reason: str | None) -> None:
    """Block publishers until the alarm is cleared, or the broker ends."""
    ask(socket, "set alarm", vhost=vhost, reason=reason)


@BY_SOCKET.command(alarm, "clear")
@click.option("--vhost", help="Clear the alarm of this virtual host. [the alarm of all]")
def clear_alarm(socket: Path, vhost: str | None) -> None:
    """Clear an alarm of `alarm set`; alarms of memory and disk clear themselves."""
    ask(socket, "clear alarm", vhost=vhost)
