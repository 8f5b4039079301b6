# SPDX-License-Identifier: Apache-2.0
"""The file ``mark`` of a data directory: the versions of its other files.

A start compares the versions. An older copy of ``definitions.db`` would restore deleted users, and
an empty one would look like a new data directory. A missing ``identity`` or ``schema`` is written
again from the mark. The mark is a JSON object. An operator deletes it to make a start accept files
of other versions.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headrace.store.replacement import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.store.disk import Disk

log = logging.getLogger(__name__)

NAME = "mark"
OWNER = "name"  # The file with a virtual host's name, in its directory.
BYTES_MAX = 1 << 20  # Bytes of each of the two files.


@dataclass(frozen=True, slots=True)
class DirectoryMark:
    """The contents of the file ``mark``."""

    schema: int  # The version of the data directory.
    identity: str  # The identity of the data directory.
    catalog: str  # Id of ``definitions.db``.
    changes: int  # The minimum number of changes of the data.
    vhosts: tuple[int, ...] = ()  # The numbers of virtual hosts that had a directory.


@dataclass(frozen=True, slots=True)
class DirectoryOwner:
    """The virtual host that a directory of data belongs to."""

    vhost: str
    catalog: str = ""  # The id of the ``definitions.db`` with the virtual host; empty if unknown.


def read_mark(disk: Disk, path: Path) -> DirectoryMark | None:
    """Return the mark of a data directory; None if it is missing or damaged.

    Raises:
        OSError: the file cannot be read.
    """
    data = _read(disk, path, NAME)
    if not data:
        return None
    try:
        fields = json.loads(data)
        return DirectoryMark(
            int(fields["schema"]),
            str(fields["identity"]),
            str(fields["catalog"]),
            int(fields["changes"]),
            tuple(int(number) for number in fields.get("vhosts", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        log.warning("%s is damaged and is rewritten", path / NAME)
        return None


def write_mark(disk: Disk, path: Path, mark: DirectoryMark) -> None:
    """Write the mark of a data directory durably.

    Raises:
        OSError: the file cannot be written.
    """
    write_whole(disk, str(path / NAME), json.dumps(asdict(mark)).encode() + b"\n")


def read_owner(disk: Disk, directory: Path) -> DirectoryOwner | None:
    """Return the virtual host of a directory of data; None if unknown.

    Raises:
        OSError: the file cannot be read.
    """
    text = _read(disk, directory, OWNER).decode("utf-8", "replace").strip("\n")
    if not text:
        return None
    name, separator, catalog = text.rpartition("\n")
    return DirectoryOwner(name, catalog) if separator else DirectoryOwner(text)


def write_owner(disk: Disk, directory: Path, owner: DirectoryOwner) -> None:
    """Write the virtual host of a directory of data durably.

    Raises:
        OSError: the file cannot be written.
    """
    write_whole(disk, str(directory / OWNER), f"{owner.vhost}\n{owner.catalog}\n".encode())


def _read(disk: Disk, directory: Path, name: str) -> bytes:
    if name not in disk.names(str(directory)):
        return b""
    handle = disk.open(os.path.join(directory, name))
    try:
        return bytes(disk.read(handle, BYTES_MAX, 0))
    finally:
        disk.close(handle)
