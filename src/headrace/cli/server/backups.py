# SPDX-License-Identifier: Apache-2.0
"""``headrace backup``, ``verify-data`` and ``restore``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from headrace.cli.data_option import data_option
from headrace.cli.management import exchange, management_option
from headrace.cli.output import format_option, print_facts

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
    """Read all of the backup in DIRECTORY, compare it with what was written, and tell what a broker
    would find in it.

    DIRECTORY may also be a data directory on which no broker runs. Nothing is changed.
    """
    from headrace.store.backup import backup as backups
    from headrace.store.backup.dry_run import examine
    from headrace.store.errors import StoreError

    facts: dict[str, Any] = {}
    wrong = ""
    try:
        if backups.is_backup(directory) or not (directory / "lock").exists():
            try:
                facts = backups.summary(backups.verify(directory))
            except backups.DamagedError as error:
                wrong = str(error)
        found = asdict(examine(directory))
    except StoreError as error:
        raise click.ClickException("\n".join(filter(None, (wrong, str(error))))) from None
    if not wrong and not found["damaged"]:
        print_facts(facts | found, form)
        return
    if form == "json":
        click.echo(json.dumps({**facts, **found, "wrong": wrong}))
    lines = [wrong or f"{directory} is damaged"]
    held = f"{found['messages']} messages in {found['queues']} queues"
    lines.append(f"a start would find {held}, and")
    lines += [f"  {line}" for line in (*found["findings"], *found["changes"])]
    raise click.ClickException("\n".join(lines))


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
    from headrace.store.backup import backup as backups
    from headrace.store.errors import StoreError

    try:
        manifest = backups.restore(directory, data, new_identity=new_identity)
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    print_facts(backups.summary(manifest), form)
