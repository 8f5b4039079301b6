# SPDX-License-Identifier: Apache-2.0
"""``headrace status``, ``health``, ``drain``, ``resume``, ``reload`` and ``logs``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from headrace.cli.commands import Group
from headrace.cli.management import BY_SOCKET, ask, exchange, management_option
from headrace.cli.output import Answer, format_option, json_flag, print_facts

CHECKS = ("ready", "listeners", "alarms", "store", "cluster")
CLOSING_S = 60.0  # How long draining may take after the grace period.


@BY_SOCKET.command(None, "status", facts=True)
def status(socket: Path) -> Answer:
    """Print version, addresses, and counts of the broker."""
    return ask(socket, "status")


@click.command()
@management_option
@click.option(
    "--check", "checks", multiple=True, type=click.Choice(CHECKS), help="Run only this check. [all]"
)
@click.option(
    "--vhost", metavar="NAME", help="Also check that this broker serves the virtual host NAME."
)
@click.option("--timeout-s", type=click.FloatRange(0.1), default=5.0, show_default=True)
@format_option
def health(
    socket: Path, checks: tuple[str, ...], vhost: str | None, timeout_s: float, form: str | None
) -> None:
    """Check the broker; exit with 0 if all checks pass, else with 1.

    ready: the broker accepts clients. listeners: its ports are open. alarms: no publisher is
    blocked. store: its files can be written. cluster: its database answers, and its virtual hosts
    are served. A broker that does not answer fails.
    """
    answer = ask(socket, "health", checks=list(checks) or None, vhost=vhost, timeout_s=timeout_s)
    if form == "json":
        click.echo(json.dumps(answer))
    else:
        print_facts({name: wrong or "ok" for name, wrong in answer["checks"].items()}, form)
    if not answer["healthy"]:
        sys.exit(1)


@click.command()
@management_option
@click.option(
    "--grace-s",
    type=click.IntRange(0, 3600),
    default=0,
    show_default=True,
    help="Grace period for clients to disconnect, in seconds.",
)
@click.option("--reason", help="The reason that the remaining clients get.")
@json_flag
def drain(socket: Path, grace_s: int, reason: str | None, as_json: bool) -> None:
    """Take the broker out of service: accept no clients, and close the connected ones.

    The ports are closed. After the grace period the broker stops reading from the remaining
    clients, confirms their published messages, and closes their connections with code 320.
    `headrace resume` opens the ports again.
    """
    fields = {"grace_s": grace_s, "reason": reason}
    for line in exchange(socket, "drain", fields, timeout_s=grace_s + CLOSING_S):
        if as_json:
            click.echo(json.dumps(line.get("item") or line["done"]))
        elif "item" in line:
            click.echo(f"ports are closed; {line['item']['connections']} connections")
        else:
            done = line["done"]
            click.echo(f"{done['left']} left by themselves, {done['closed']} were closed")
            if done["open"]:
                click.echo(f"{done['open']} have not answered the close")
        if "done" in line and not line["done"]["all_kept"]:
            raise click.ClickException("published messages could not be written to the disk")


@click.command()
@management_option
@json_flag
def resume(socket: Path, as_json: bool) -> None:
    """Take the broker back into service after `headrace drain`.

    Prints the addresses of its ports, always as JSON.
    """
    answer = ask(socket, "resume")
    click.echo(json.dumps(answer if as_json else answer["listens"]))


@click.command()
@management_option
@json_flag
def reload(socket: Path, as_json: bool) -> None:
    """Make the broker read its settings again: flags, variables, and the file of --config.

    Prints the changed settings, and those that need a restart, with the reason. Connections stay
    open.
    """
    answer = ask(socket, "reload")
    if as_json:
        click.echo(json.dumps(answer))
        return
    for change in answer["changed"]:
        values = f"\t{change['before']}\t{change['after']}" if "after" in change else ""
        click.echo(f"changed\t{change['name']}{values}")
    if answer["certificates"]:
        click.echo("certificates were read again")
    for name, why in answer["restart"].items():
        click.echo(f"needs a restart\t{name}\t{why}")


@click.group(cls=Group)
def logs() -> None:
    """Rotate or reopen the broker's log file (setting log_file)."""


@BY_SOCKET.command(logs, "rotate")
@click.option("--keep", type=click.IntRange(1, 100), default=7, show_default=True)
def rotate(socket: Path, keep: int) -> str:
    """Rename the log file to ….1 and older ones one number up, and begin a new file."""
    return str(ask(socket, "rotate logs", keep=keep)["renamed"])


@BY_SOCKET.command(logs, "reopen")
def reopen(socket: Path) -> None:
    """Reopen the log file by its name, for programs that rename it themselves."""
    ask(socket, "reopen logs")
