# SPDX-License-Identifier: Apache-2.0
"""``headrace backup``, ``verify-data`` and ``restore``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from headrace.cli.data_option import data_option
from headrace.cli.management import BY_SOCKET, ask
from headrace.cli.output import Answer, format_option, print_facts

DIRECTORY = click.Path(file_okay=False, path_type=Path)


@BY_SOCKET.command(None, "backup", facts=True)
@click.option(
    "--base", type=DIRECTORY, help="An earlier backup; unchanged files become hard links to it."
)
@click.option("--verify/--no-verify", default=True, help="Read the backup again and compare it.")
@click.argument("directory", type=DIRECTORY)
def backup(socket: Path, base: Path | None, verify: bool, directory: Path) -> Answer:
    """Make a backup of a running broker in DIRECTORY, which must be new or empty.

    It has everything that was confirmed before. The broker writes it, so its system user needs
    write access.
    """
    return ask(
        socket,
        "back up",
        timeout_s=None,
        directory=str(directory.absolute()),
        base=None if base is None else str(base.absolute()),
        verify=verify,
    )


@click.command("verify-data")
@format_option
@click.argument("directory", type=DIRECTORY)
def verify_data(form: str | None, directory: Path) -> None:
    """Verify the checksums of the backup in DIRECTORY, and print what a broker would find in it.

    DIRECTORY may also be a data directory on which no broker runs. Nothing is changed.
    """
    from headrace.store.backup import backup as backups
    from headrace.store.backup.dry_run import examine
    from headrace.store.errors import StoreError

    facts: Answer = {}
    wrong = ""
    try:
        if backups.is_backup(directory) or not (directory / "lock").exists():
            try:
                facts = backups.summary(backups.verify(directory))
            except backups.DamagedError as error:
                wrong = str(error)
        examination = asdict(examine(directory))
    except StoreError as error:
        raise click.ClickException("\n".join(filter(None, (wrong, str(error))))) from None
    if not wrong and not examination["damaged"]:
        print_facts(facts | examination, form)
        return
    if form == "json":
        click.echo(json.dumps({**facts, **examination, "wrong": wrong}))
    lines = [wrong or f"{directory} is damaged"]
    held = f"{examination['messages']} messages in {examination['queues']} queues"
    lines.append(f"a start would find {held}, and")
    lines += [f"  {line}" for line in (*examination["findings"], *examination["changes"])]
    raise click.ClickException("\n".join(lines))


@click.command()
@data_option
@click.option(
    "--new-identity",
    is_flag=True,
    help="Give the data a new id, so that it differs from the backed-up data.",
)
@format_option
@click.argument("directory", type=DIRECTORY)
def restore(data: Path, new_identity: bool, form: str | None, directory: Path) -> None:
    """Restore the backup in DIRECTORY to a data directory, which must be new or empty.

    Checksums are verified. Then start a broker on it.
    """
    from headrace.store.backup import backup as backups
    from headrace.store.errors import StoreError

    try:
        manifest = backups.restore(directory, data, new_identity=new_identity)
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    print_facts(backups.summary(manifest), form)
