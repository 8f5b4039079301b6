# SPDX-License-Identifier: Apache-2.0
"""A backup of a running broker, with everything that was confirmed before it began.

1. All records appended so far are written and synced, and definitions are committed.
2. Between two groups of its journal, the files of each virtual host are hard-linked
   (:mod:`headrace.store.snapshot`). Staged file bodies are linked before and after that, so the
   backup has every body that a message refers to.
3. SQLite copies the definitions, then a thread copies the files from their links.

Clients are served meanwhile. A queue declared after its journal was linked is backed up without
messages; a queue deleted meanwhile is left out with its messages.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.server.data.storage import LINKS
from headrace.store.backup import backup
from headrace.store.backup.backup import BackedUpFile, Manifest
from headrace.store.disk import Disk
from headrace.store.errors import StoreError
from headrace.store.journal.journal import Journal
from headrace.store.snapshot import Snapshot, link_tree

if TYPE_CHECKING:
    from headrace.server.data.storage import Storage

log = logging.getLogger(__name__)

COPIED = ("schema", "identity")  # Files that are copied as a whole.
SNAPSHOT_S = 60.0  # The time that a journal has to finish its group of records.

Report = Callable[[dict[str, object]], Awaitable[None]]


def iso_now() -> str:
    """Return the present time in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


async def back_up(
    storage: Storage,
    directory: Path,
    base: Path | None,
    *,
    verify: bool,
    wait_for_disk: Callable[[], Awaitable[bool]],
    report: Report,
) -> dict[str, object]:
    """Make a backup in a new directory; return a summary of its contents.

    Args:
        storage: the data directory to back up.
        directory: the directory of the backup.
        base: an earlier backup; files that it has are linked instead of copied.
        verify: read the whole backup at the end.
        wait_for_disk: waits until all records are durable; returns False if the disk fails.
        report: called after each step.

    Raises:
        StoreError, OSError: the directory or the base cannot be used, or the disk fails.
    """
    if storage.data is None:
        raise StoreError("this broker keeps everything in memory")
    data = storage.data.path.absolute()
    if directory == data or data in directory.parents:
        raise StoreError(f"{directory} is in the data directory")
    base_manifest = None if base is None else await asyncio.to_thread(backup.read_manifest, base)
    await asyncio.to_thread(backup.open_target, directory)
    links = data / LINKS
    await asyncio.to_thread(shutil.rmtree, links, ignore_errors=True)
    manifest = Manifest(__version__, storage.identity, iso_now())
    cancelled = threading.Event()  # Set to stop the threads of this backup.
    manifest.vhosts = {str(number): name for name, number in storage.vhost_ids.items()}
    try:
        if not await wait_for_disk():
            raise StoreError("the backup cannot be written to the disk")
        lengths: dict[str, int] = {}
        for name, number in list(storage.vhost_ids.items()):
            lengths |= await link_vhost(storage, name, number, links)
            await report({"step": "linked", "vhost": name})
        await asyncio.to_thread(
            copy_all, data, links, directory, lengths, manifest, base, base_manifest, cancelled
        )
        await report({"step": "copied", "files": len(manifest.files)})
        manifest.finished = iso_now()
        await asyncio.to_thread(backup.write_manifest, directory, manifest)
        if verify:
            await asyncio.to_thread(backup.verify, directory, lambda _: check_running(cancelled))
            await report({"step": "verified"})
    finally:
        cancelled.set()
        await asyncio.to_thread(shutil.rmtree, links, ignore_errors=True)
    return backup.summary(manifest)


async def link_vhost(storage: Storage, name: str, number: int, links: Path) -> dict[str, int]:
    """Hard-link the files of a virtual host; return the lengths, in bytes, of growing files."""
    assert storage.data is not None
    store = storage.stores.get(name)
    if not isinstance(store, Journal):  # The virtual host was deleted meanwhile.
        return {}
    home, target = storage.data.vhost(number), links / "vhosts" / str(number)
    await asyncio.to_thread(link_tree, home / "staging", target / "staging")
    finished: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()

    def on_snapshot(snapshot: Snapshot) -> None:
        if not finished.done():
            finished.set_result(snapshot)

    snapshot = Snapshot(str(home), str(target), store.unfinished_files, on_snapshot)
    store.writer.submit(snapshot)
    try:
        await asyncio.wait_for(finished, SNAPSHOT_S)
    except TimeoutError:
        raise StoreError(
            f"the journal of vhost '{name}' made no snapshot within {SNAPSHOT_S:g} s"
        ) from None
    if snapshot.error is not None:
        raise snapshot.error
    await asyncio.to_thread(link_tree, home / "staging", target / "staging")
    return {f"vhosts/{number}/{path}": size for path, size in snapshot.extents.items()}


def copy_all(
    data: Path,
    links: Path,
    directory: Path,
    lengths: dict[str, int],
    manifest: Manifest,
    base: Path | None,
    base_manifest: Manifest | None,
    cancelled: threading.Event,
) -> None:
    """Copy the definitions and the linked files into a backup, and add them to its manifest.

    Args:
        data: the data directory.
        links: the directory of hard links.
        directory: the directory of the backup.
        lengths: the bytes to copy of files that grow.
        manifest: the manifest of the backup.
        base: an earlier backup; its unchanged files are linked.
        base_manifest: the manifest of ``base``.
        cancelled: set to stop the copying.

    Raises:
        StoreError: a file cannot be copied, or ``cancelled`` was set.
    """
    backup.copy_definitions(data / backup.DEFINITIONS, directory / backup.DEFINITIONS)
    path = directory / backup.DEFINITIONS
    size = path.stat().st_size
    manifest.files[backup.DEFINITIONS] = BackedUpFile(size, size, sha256_hex(path), False)
    for name in COPIED:
        add_file(manifest, name, backup.copy_file(data / name, directory / name), whole=False)
    for name in backup.files_below(links):
        check_running(cancelled)
        length = lengths.get(name)
        if length == 0:
            continue  # No record in it is durable yet.
        whole = length is None and not name.endswith(".part")
        base_file = base_manifest.files.get(name) if base_manifest is not None and whole else None
        if (
            base is not None
            and base_file is not None
            and base_manifest is not None
            and base_file.whole
            and base_manifest.identity == manifest.identity
            and link_from_base(links / name, base / name, directory / name)
        ):
            manifest.files[name] = base_file
            continue
        copied = backup.copy_file(links / name, directory / name, length)
        add_file(manifest, name, copied, whole=whole)


def check_running(cancelled: threading.Event) -> None:
    """Raise StoreError if the backup was cancelled."""
    if cancelled.is_set():
        raise StoreError("the backup was given up")


def link_from_base(source: Path, base: Path, target: Path) -> bool:
    """Link the same file of an earlier backup; return False if that has another file."""
    try:
        if not backup.same_ends(source, base):
            return False
        Disk().make_directory(str(target.parent.absolute()))
        os.link(base, target)
    except OSError:  # The file is missing, or is on another file system.
        return False
    return True


def add_file(manifest: Manifest, name: str, copied: tuple[int, int, str], *, whole: bool) -> None:
    """Add a copied file to the manifest."""
    manifest.files[name] = BackedUpFile(*copied, whole)


def sha256_hex(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
