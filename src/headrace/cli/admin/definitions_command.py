# SPDX-License-Identifier: Apache-2.0
"""``headrace definitions``: users, topology, policies and limits in RabbitMQ's JSON format.

A broker that runs is asked through its management socket; without one, the data directory itself is
opened, and locked meanwhile.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from headrace.cli.commands import Group
from headrace.cli.data_option import data_option
from headrace.cli.environment import FromEnvironment
from headrace.cli.output import text_option

RABBITMQ = ("rabbitmq", "rabbitmq-3.10")  # Readers other than ourselves.


@click.group(cls=Group)
def definitions() -> None:
    """Users, virtual hosts, topology, policies and limits, in RabbitMQ's JSON format."""


def where_option(function: Any) -> Any:
    """The options that say which broker or directory."""

    @data_option
    @click.option(
        "--socket",
        cls=FromEnvironment,
        envvar="HEADRACE_MANAGEMENT_SOCKET",
        type=click.Path(path_type=Path),
        help="The broker's management socket, if it is elsewhere; also HEADRACE_MANAGEMENT_SOCKET.",
    )
    @functools.wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    return command


@definitions.command("export")
@where_option
@click.option("--vhost", help="Only what is in this virtual host, without users. [all]")
@click.option(
    "--for",
    "reader",
    type=click.Choice(["headrace", *RABBITMQ]),
    default="headrace",
    show_default=True,
    help="Who is to read it. What RabbitMQ (a current one, or 3.10 without plugins) does not take "
    "is left out and named.",
)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export_file(data: Path, socket: Path | None, vhost: str | None, reader: str, file: str) -> None:
    """Write definitions to FILE, or to standard output.

    Exclusive queues are left out, and so are messages.
    """
    from headrace.cli.admin.definitions import export_to
    from headrace.server.definitions.rabbitmq import READERS

    export_to(file, data, socket, vhost, READERS.get(reader))


@definitions.command("import")
@where_option
@click.option("--vhost", help="Where elements go that do not say their virtual host.")
@click.option("--dry-run", is_flag=True, help="Say what would be made, and change nothing.")
@click.option(
    "--strict", is_flag=True, help="Change nothing when something differs or has no equivalent."
)
@text_option
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
def import_file(
    data: Path,
    socket: Path | None,
    vhost: str | None,
    dry_run: bool,
    strict: bool,
    form: str,
    file: str,
) -> None:
    """Take the definitions of FILE (`-`: standard input), all or nothing of them.

    What is there already stays. Users, permissions, parameters and policies of the same name are
    changed; exchanges and queues that differ are left as they are, and named in the report.
    """
    from headrace.cli.admin.definitions import print_report, read_file, take

    document = read_file(file)
    print_report(take(document, data, socket, vhost, dry_run=dry_run, strict=strict), form)
