# SPDX-License-Identifier: Apache-2.0
"""``headrace alarm``: which publishers are held and why, and holding them by hand."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.commands import Group
from headrace.cli.management import ask, listed, management_option
from headrace.cli.output import format_option, print_rows

COLUMNS = ("source", "vhost", "reason", "since")


@click.group(cls=Group)
def alarm() -> None:
    """Alarms: publishers wait, consumers go on."""


@alarm.command("list")
@management_option
@format_option
def list_alarms(socket: Path, form: str | None) -> None:
    """Print each alarm: what it comes from, the virtual host it is for, the reason, since when."""
    print_rows(listed(socket, "list alarms"), COLUMNS, form)


@alarm.command("set")
@management_option
@click.option("--vhost", help="Hold the publishers of this virtual host only. [all]")
@click.option("--reason", help="What clients are told. [set by an operator]")
def set_alarm(socket: Path, vhost: str | None, reason: str | None) -> None:
    """Hold publishers until the alarm is cleared, or the broker ends."""
    ask(socket, "set alarm", vhost=vhost, reason=reason)


@alarm.command("clear")
@management_option
@click.option("--vhost", help="The alarm of this virtual host. [the one of all]")
def clear_alarm(socket: Path, vhost: str | None) -> None:
    """Let publishers go on that `alarm set` holds; those of memory and disk end by themselves."""
    ask(socket, "clear alarm", vhost=vhost)
