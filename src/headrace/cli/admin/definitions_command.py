# SPDX-License-Identifier: Apache-2.0
"""``headrace definitions``: users, topology, policies and limits in RabbitMQ's JSON format.

A running broker exports and imports through its management socket. If no broker runs, the command
opens and locks the data directory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from headrace.cli.commands import Group
from headrace.cli.data_option import data_option
from headrace.cli.environment import FromEnvironment
from headrace.cli.output import text_option

RABBITMQ = ("rabbitmq", "rabbitmq-3.10")  # Readers other than Headrace.
Function = TypeVar("Function", bound=Callable[..., object])


@click.group(cls=Group)
def definitions() -> None:
    """Export or import users, topology, policies and limits in RabbitMQ's JSON format."""


def where_option(function: Function) -> Function:
    """Add the options for the broker or its data directory, as ``socket`` and ``data``."""
    socket = click.option(
        "--socket",
        cls=FromEnvironment,
        envvar="HEADRACE_MANAGEMENT_SOCKET",
        type=click.Path(path_type=Path),
        help="The broker's management socket, if it is not in --data; also "
        "HEADRACE_MANAGEMENT_SOCKET.",
    )
    return data_option(socket(function))


@definitions.command("export")
@where_option
@click.option("--vhost", help="Only objects of this virtual host, without users. [all]")
@click.option(
    "--for",
    "reader",
    type=click.Choice(["headrace", *RABBITMQ]),
    default="headrace",
    show_default=True,
    help="The broker that will import the file. Elements that RabbitMQ (a current one, or "
    "3.10 without plugins) does not support are omitted and listed.",
)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export_file(data: Path, socket: Path | None, vhost: str | None, reader: str, file: str) -> None:
    """Write definitions to FILE, or to standard output.

    Exclusive queues and messages are left out.
    """
    from headrace.cli.admin.definitions import export_to
    from headrace.server.definitions.rabbitmq import READERS

    export_to(file, data, socket, vhost, READERS.get(reader))


@definitions.command("import")
@where_option
@click.option("--vhost", help="The virtual host of elements without one.")
@click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
@click.option(
    "--strict", is_flag=True, help="Change nothing if an element differs or has no equivalent."
)
@click.option("--known", is_flag=True, help="Change nothing if an element has no equivalent.")
@text_option
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
def import_file(
    data: Path,
    socket: Path | None,
    vhost: str | None,
    dry_run: bool,
    strict: bool,
    known: bool,
    form: str,
    file: str,
) -> None:
    """Import the definitions of FILE (`-`: standard input), all of them or none.

    Existing objects stay. Users, permissions, parameters and policies of the same name are changed;
    exchanges and queues that differ are not changed, and the report lists them.
    """
    from headrace.cli.admin.definitions import import_definitions, print_report, read_file

    document = read_file(file)
    report = import_definitions(
        document, data, socket, vhost, dry_run=dry_run, strict=strict, known=known
    )
    print_report(report, form)
