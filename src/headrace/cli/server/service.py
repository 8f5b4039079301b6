# SPDX-License-Identifier: Apache-2.0
"""``headrace status``, ``health``, ``drain``, ``resume``, ``reload`` and ``logs``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from headrace.cli.commands import Group
from headrace.cli.management import ask, exchange, management_option
from headrace.cli.output import format_option, json_flag, print_facts

CHECKS = ("ready", "listeners", "alarms", "store")
CLOSING_S = 60.0  # What draining takes beside the grace.


@click.command()
@management_option
@format_option
def status(socket: Path, form: str | None) -> None:
    """Print what the broker is, where it listens, and how much it holds."""
    print_facts(ask(socket, "status"), form)


@click.command()
@management_option
@click.option(
    "--check", "checks", multiple=True, type=click.Choice(CHECKS), help="Only this. [all]"
)
@click.option("--timeout-s", type=click.FloatRange(0.1), default=5.0, show_default=True)
@format_option
def health(socket: Path, checks: tuple[str, ...], timeout_s: float, form: str | None) -> None:
    """Print how the broker is; exit with 0 when all is well, else with 1.

    ready: it takes clients. listeners: its ports are open. alarms: no publisher has to wait. store:
    what is to be kept can be written. A broker that does not answer is not well.
    """
    answer = ask(socket, "health", checks=list(checks) or None, timeout_s=timeout_s)
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
    help="How long clients may take to go by themselves.",
)
@click.option("--reason", help="What the others are told.")
@json_flag
def drain(socket: Path, grace_s: int, reason: str | None, as_json: bool) -> None:
    """Take the broker out of service: no new clients, and those who are here go.

    The ports are closed. After the grace nothing more is read from who is left, what they published
    is confirmed, and they are closed with code 320. `headrace resume` opens the ports again.
    """
    most_s = grace_s + CLOSING_S
    for line in exchange(socket, "drain", timeout_s=most_s, grace_s=grace_s, reason=reason):
        if as_json:
            click.echo(json.dumps(line.get("item") or line["done"]))
        elif "item" in line:
            click.echo(f"ports are closed; {line['item']['connections']} connections")
        else:
            done = line["done"]
            click.echo(f"{done['left']} left by themselves, {done['closed']} were closed")
            if done["open"]:
                click.echo(f"{done['open']} do not answer their close")
        if "done" in line and not line["done"]["all_kept"]:
            raise click.ClickException("the disk does not take what was published")


@click.command()
@management_option
@json_flag
def resume(socket: Path, as_json: bool) -> None:
    """Take the broker back into service after `headrace drain`.

    Prints the addresses of its ports, as JSON in any case.
    """
    answer = ask(socket, "resume")
    click.echo(json.dumps(answer if as_json else answer["listens"]))


@click.command()
@management_option
@json_flag
def reload(socket: Path, as_json: bool) -> None:
    """Have the broker read its settings again: flags, variables, and the file of --config.

    Prints what changed, and what waits for a restart, with the reason. Connections stay.
    """
    answer = ask(socket, "reload")
    if as_json:
        click.echo(json.dumps(answer))
        return
    for one in answer["changed"]:
        values = f"\t{one['before']}\t{one['after']}" if "after" in one else ""
        click.echo(f"changed\t{one['name']}{values}")
    if answer["certificates"]:
        click.echo("certificates were read again")
    for name, why in answer["restart"].items():
        click.echo(f"needs a restart\t{name}\t{why}")


@click.group(cls=Group)
def logs() -> None:
    """The log file of the broker (log_file)."""


@logs.command()
@management_option
@click.option("--keep", type=click.IntRange(1, 100), default=7, show_default=True)
def rotate(socket: Path, keep: int) -> None:
    """Rename the log file to ….1, older ones one further, and begin a new one."""
    click.echo(ask(socket, "rotate logs", keep=keep)["renamed"])


@logs.command()
@management_option
def reopen(socket: Path) -> None:
    """Have the broker go on in the file of that name, for programs that rename it themselves."""
    ask(socket, "reopen logs")
