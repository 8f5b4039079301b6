# SPDX-License-Identifier: Apache-2.0
"""Data without a record, and records without data, at the start of a broker.

A virtual host's data is deleted only if ``definitions.db`` has certainly recorded its deletion: the
file belongs to this data directory, is not an older copy, and has assigned a higher number since.
Other unrecorded data is set aside, or the start is refused.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

from headrace.store.catalog.database import FILE_NAME
from headrace.store.errors import StoreError
from headrace.store.mark import NAME as MARK_FILE
from headrace.store.mark import OWNER, DirectoryOwner, read_owner, write_owner

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.store.catalog.users import UserDirectory
    from headrace.store.data_directory import DataDirectory

log = logging.getLogger(__name__)

#: The directory of data that is set aside. It is not in ``vhosts``, where earlier versions delete
#: unknown directories.
ASIDE = "unrecorded"


def is_new(data: DataDirectory) -> bool:
    """Return True if no broker has ever started on the data directory."""
    return data.mark is None and not data.has_journals()


def check_catalog_file(data: DataDirectory) -> None:
    """Check that ``definitions.db`` is not missing, before a new one is created.

    Raises:
        StoreError: the data directory had the file, and does not have it now.
    """
    path = data.path / FILE_NAME
    if path.exists() and path.stat().st_size:
        return
    state = "is empty" if path.exists() else "is missing"
    if data.mark is not None:
        raise StoreError(_refusal(data, state))
    if data.has_journals():
        raise StoreError(_nameless(data, state))


def check_catalog(data: DataDirectory, users: UserDirectory) -> None:
    """Check that ``definitions.db`` belongs to the data directory and is not an older copy.

    Raises:
        StoreError: it is another file, or an older copy.
    """
    catalog, changes = users.lineage()
    mark = data.mark
    if mark is None:
        if users.is_empty() and data.has_journals():
            raise StoreError(_nameless(data, "has no users and virtual hosts"))
    elif mark.catalog and catalog != mark.catalog:  # The file of a cluster may have no id.
        raise StoreError(_refusal(data, "is not the file of these data"))
    elif changes < mark.changes:
        state = f"is an older copy, {mark.changes - changes} changes behind"
        raise StoreError(_refusal(data, state))


def _refusal(data: DataDirectory, state: str) -> str:
    """Return the error for a wrong ``definitions.db``, with the remedies."""
    return (
        f"{data.path / FILE_NAME} {state}: put back the newest copy. To start with the present "
        f"file, delete {data.path / MARK_FILE}; users, permissions and policies are then those "
        "of that file, and virtual hosts that it lacks are set aside"
    )


def _nameless(data: DataDirectory, state: str) -> str:
    """Return the error for data of virtual hosts whose names are lost, with the remedies."""
    return (
        f"{data.path / FILE_NAME} {state}, and {data.path / 'vhosts'} has data: put it back. To "
        f"start without it, add users and virtual hosts: headrace user add NAME --data {data.path},"
        f" headrace vhost add NAME --data {data.path}"
    )


def settle_leftovers(data: DataDirectory, users: UserDirectory, *, is_shared: bool) -> None:
    """Delete the data of deleted virtual hosts, and set aside unrecorded data.

    ``is_shared`` is True if the users are those of a cluster, which has no other record.

    Raises:
        StoreError: a directory has the data of another virtual host than recorded, is missing, or
            cannot be moved.
    """
    home = data.path / "vhosts"
    names = {number: name for name, number in users.snapshot().vhosts.items()}
    if data.mark is not None and not is_shared:
        for number in data.mark.vhosts:
            if number in names and not data.vhost(number).exists():
                raise StoreError(
                    f"vhost '{names[number]}': {data.vhost(number)} is missing: put it back, or "
                    "make an empty directory of that name to continue without its messages"
                )
    try:
        for directory in _subdirectories(home):
            if directory.name.isdigit():
                _settle(data, users, directory, names, is_shared=is_shared)
        if not is_shared:
            for directory in _subdirectories(data.path / ASIDE):
                _restore(data, directory, names)
    except OSError as error:
        raise StoreError(f"{home}: {error.strerror or error}") from error


def _subdirectories(home: Path) -> list[Path]:
    return sorted(path for path in home.iterdir() if path.is_dir()) if home.is_dir() else []


def _settle(
    data: DataDirectory,
    users: UserDirectory,
    directory: Path,
    names: dict[int, str],
    *,
    is_shared: bool,
) -> None:
    """Keep, set aside or delete the directory of one virtual host; ``names`` are by number."""
    number = int(directory.name)
    owner = read_owner(data.disk, directory)
    # Without a mark, the operator accepts the present definitions.db: either has the operator
    # removed the mark, or an earlier version wrote none.
    is_accepted = data.mark is None and not is_shared
    if number in names:
        if owner is None or owner.vhost == names[number] or is_shared:
            return
        if not is_accepted:
            raise StoreError(
                f"{directory / OWNER} says vhost '{owner.vhost}', and {data.path / FILE_NAME} says "
                f"vhost '{names[number]}': put back the right directory or the right {FILE_NAME}"
            )
        set_aside(data, directory)
        return
    catalog, _ = users.lineage()
    is_ours = is_shared or (not is_accepted and owner is not None and owner.catalog == catalog)
    if not any(directory.iterdir()) or (is_ours and number <= users.last_vhost_id()):
        remove_tree(directory)
    else:
        set_aside(data, directory)


def set_aside_behind(data: DataDirectory, last_id: int) -> None:
    """Set aside the data of virtual hosts with higher numbers than ``last_id``.

    Raises:
        OSError: a directory cannot be moved.
    """
    for directory in _subdirectories(data.path / "vhosts"):
        if directory.name.isdigit() and int(directory.name) > last_id:
            set_aside(data, directory)


def set_aside(data: DataDirectory, directory: Path) -> None:
    """Move an unrecorded directory away, so that no new virtual host gets its data.

    Raises:
        OSError: the directory cannot be moved.
    """
    owner = read_owner(data.disk, directory)
    home = data.path / ASIDE
    data.disk.make_directory(str(home))
    aside = home / directory.name
    count = 1
    while aside.exists():
        count += 1
        aside = home / f"{directory.name}-{count}"
    _move(data, directory, aside)
    first = "" if owner else f"write its name into {aside / OWNER}, "
    log.error(
        "%s has the data of %s, which %s does not record: it is set aside as %s. To bring it back, "
        "stop the broker, %srun headrace vhost add %s --data %s, and start it",
        *(directory, f"vhost '{owner.vhost}'" if owner else "a virtual host"),
        *(FILE_NAME, aside, first, repr(owner.vhost) if owner else "NAME", data.path),
    )


def _restore(data: DataDirectory, directory: Path, names: dict[int, str]) -> None:
    """Move a directory back to its virtual host, if that is recorded again without data."""
    owner = read_owner(data.disk, directory)
    numbers = [number for number, name in names.items() if owner and owner.vhost == name]
    for number in numbers:
        target = data.vhost(number)
        if target.exists() and any(target.iterdir()):
            log.warning("%s stays: vhost %r has data of its own", directory, names[number])
            continue
        if target.exists():
            target.rmdir()
        data.disk.make_directory(str(target.parent))
        _move(data, directory, target)
        log.warning("%s is the data of vhost %r again: %s", directory, names[number], target)


def _move(data: DataDirectory, source: Path, target: Path) -> None:
    data.disk.rename(str(source), str(target))
    data.disk.sync_directory(str(target.parent))
    data.disk.sync_directory(str(source.parent))


def remove_tree(directory: Path) -> None:
    """Delete the data of a deleted virtual host."""
    log.warning("deleting %s: its virtual host was deleted", directory)
    try:
        shutil.rmtree(directory)
    except OSError as error:
        log.error("cannot delete %s: %s", directory, error)


def check_journal(data: DataDirectory, vhost: str, number: int) -> None:
    """Check that the journal of a virtual host is not missing.

    Raises:
        StoreError: the virtual host had a journal, and its directory is missing.
    """
    home = data.vhost(number)
    journal = home / "journal"
    if (home / OWNER).exists() and not journal.is_dir():
        raise StoreError(
            f"vhost '{vhost}': {journal} is missing: put it back, or make an empty directory of "
            "that name to continue without its messages"
        )


def record_owner(data: DataDirectory, number: int, owner: DirectoryOwner) -> None:
    """Record in the directory of a virtual host whose data it has."""
    home = data.vhost(number)
    try:
        if read_owner(data.disk, home) != owner:
            write_owner(data.disk, home, owner)
    except OSError as error:  # Without the record, the data is set aside instead of deleted.
        log.warning("cannot write %s: %s", home / OWNER, error)


def highest_stream(home: Path) -> int:
    """Return the highest queue id among the directories of streams, which no new queue may get."""
    streams = home / "streams"
    names = (path.name for path in streams.iterdir()) if streams.is_dir() else ()
    return max((int(name) for name in names if name.isdigit()), default=0)
