# SPDX-License-Identifier: Apache-2.0
"""The operations on backups (:mod:`headrace.server.data.backup`).

The system user may name any directory. Other users only name backups in the directory of the
setting ``backup_directory``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.server.data.backup import back_up
from headrace.server.management.operation_table import OperationTable
from headrace.store.backup import backup
from headrace.store.errors import StoreError
from headrace.user_tags import ADMINISTER

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from headrace.management_rows import BackupRow
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
BUSY_S = 10.0  # The time without output after which a busy line is sent.
LISTED_MAX = 1000  # Backups of a list, which has the last ones by name.
NO_ROOT = "the setting backup_directory is empty: backups have no names here"


@operation("back up", ADMINISTER, fields="`directory` or `name`, `base`, `verify` (true)")
async def make_backup(call: Call) -> JsonLine:
    """Make a backup in ``directory``, or of a ``name``; link the files that ``base`` has."""
    directory, base = read_directories(call)
    broker = call.broker
    if broker.backing_up:
        call.refuse("conflict", "another backup is being made")
    call.log(f"makes a backup in {directory}")
    broker.backing_up = True
    try:
        return await run_busy(
            call,
            back_up(
                broker.storage,
                directory,
                base,
                verify=call.flag("verify", True),
                wait_for_disk=broker.drain.wait_for_disk,
                report=call.send,
            ),
        )
    finally:
        broker.backing_up = False


async def run_busy(call: Call, work: Coroutine[None, None, JsonLine]) -> JsonLine:
    """Run work, and return its result; send a busy line every ``BUSY_S`` until then."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait((task,), timeout=BUSY_S))[0]:
            await call.busy()
        return task.result()
    finally:
        if not task.done():  # The operator has disconnected.
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def read_directories(call: Call) -> tuple[Path, Path | None]:
    """Return the directory of a new backup, and that of its base, if it has one."""
    name = call.text("name", "")
    if name:
        if call.request.get("directory") is not None:
            call.refuse("bad-request", "a backup must have a 'name' or a 'directory', not both")
        base = call.text("base", "")
        directory = named_directory(call, "name", name)
        return directory, named_directory(call, "base", base) if base else None
    if call.user is not None:
        call.refuse("bad-request", "'name' is missing: users name no directories")
    directory, base = Path(call.text("directory")), call.text("base", "")
    if not directory.is_absolute() or (base and not Path(base).is_absolute()):
        call.refuse("bad-request", "'directory' and 'base' must be absolute paths")
    return directory, Path(base) if base else None


def named_directory(call: Call, field: str, name: str) -> Path:
    """Return the directory of the backup that a field names.

    Raises:
        OperationRefused: the name is invalid, or is that of a symbolic link.
    """
    root = backups_root(call)
    if root is None:
        call.refuse("precondition", NO_ROOT)
    if not NAME.fullmatch(name):
        call.refuse(
            "bad-request",
            f"'{field}' has 1 to 64 letters, digits, dots, hyphens and underscores; a letter or a "
            "digit is first",
        )
    if (root / name).is_symlink():
        call.refuse("precondition", f"'{name}' is a link, not a backup")
    return root / name


def backups_root(call: Call) -> Path | None:
    """Return the absolute path of ``backup_directory``; None if it is not set."""
    root = call.broker.settings.backup_directory
    return None if root is None else root.absolute()


@operation("list backups", ADMINISTER, reads=True)
async def list_backups(call: Call) -> Steps:
    """List the backups in ``backup_directory``; none if it is not set."""
    root = backups_root(call)
    rows = [] if root is None else await asyncio.to_thread(read_backups, root)
    return yield_rows(rows)


def yield_rows(rows: list[BackupRow]) -> Steps:
    """Yield the rows of a list; return its last line."""
    yield from rows
    return {"items": len(rows)}


def read_backups(root: Path) -> list[BackupRow]:
    """Return rows of the backups in a directory, sorted by name.

    Raises:
        StoreError: the directory cannot be read.
    """
    try:
        paths = [path for path in root.iterdir() if NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return []  # The first backup creates the directory.
    except OSError as error:
        raise StoreError(f"{root}: {error.strerror or error}") from error
    directories = sorted(path for path in paths if path.is_dir() and not path.is_symlink())
    return [describe_backup(directory) for directory in directories[-LISTED_MAX:]]


def describe_backup(directory: Path) -> BackupRow:
    """Return a backup as a row of a list; an incomplete one has no ``finished``."""
    row: BackupRow = {
        "name": directory.name,
        "begun": None,
        "finished": None,
        "bytes": None,
        "files": None,
        "vhosts": None,
        "identity": None,
        "error": "",
    }
    try:
        manifest = backup.read_manifest(directory)
    except StoreError as error:
        row["error"] = str(error)
        return row
    row["begun"] = manifest.begun
    row["finished"] = manifest.finished
    row["bytes"] = sum(entry.octets for entry in manifest.files.values())
    row["files"] = len(manifest.files)
    row["vhosts"] = len(manifest.vhosts)
    row["identity"] = manifest.identity
    return row
