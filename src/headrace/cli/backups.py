# SPDX-License-Identifier: Apache-2.0
"""``headrace backup``, ``verify-data`` and ``restore``."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.accounts import data_option
from headrace.cli.management import exchange, management_option
from headrace.cli.output import format_option, print_facts
from headrace.store import backup as backups
from headrace.store.errors import StoreError

DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.command()
@management_option
@click.option(
    "--base", type=DIRECTORY, help="An earlier backup: what it has is linked, not copied."
)
@click.option("--verify/--no-verify", default=True, help="Read all of it again, and compare.")
@format_option
@click.argument("directory", type=DIRECTORY)
def backup(
    socket: Path, base: Path | None, verify: bool, form: str | None, directory: Path
) -> None:
    """Make a backup of a running broker in DIRECTORY, which must be new or empty.

    Everything that was confirmed before is in it. The broker writes it, so its system user needs
    the right to.
    """
    for line in exchange(
        socket,
        "back up",
        timeout_s=None,
        directory=str(directory.absolute()),
        base=None if base is None else str(base.absolute()),
        verify=verify,
    ):
        if "done" in line:
            print_facts(line["done"], form)


@click.command("verify-data")
@format_option
@click.argument("directory", type=DIRECTORY)
def verify_data(form: str | None, directory: Path) -> None:
    """Read all of the backup in DIRECTORY, and compare it with what was written."""
    try:
        manifest = backups.verify(directory)
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    print_facts(backups.summary(manifest), form)


@click.command()
@data_option
@click.option(
    "--new-identity", is_flag=True, help="Let clients that remember these data not know them."
)
@format_option
@click.argument("directory", type=DIRECTORY)
def restore(data: Path, new_identity: bool, form: str | None, directory: Path) -> None:
    """Make a data directory, which must be new or empty, of the backup in DIRECTORY.

    Each octet is compared on the way. Then start a broker on it.
    """
    try:
        manifest = backups.restore(directory, data, new_identity=new_identity)
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    print_facts(backups.summary(manifest), form)
