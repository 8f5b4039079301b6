# SPDX-License-Identifier: Apache-2.0
"""Backups: copies of a data directory that are checked, and what is made of them again.

A backup is a directory with the files of a data directory, and ``backup.json``, which is written
last: for each file its size and the SHA-256 of what counts in it. Files are sparse where they hold
nothing. A file that is never changed any more, and that an earlier backup has, is not copied again
but linked to that one, so each backup is whole, and deleting another takes nothing from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.store.data_directory import SCHEMA_VERSION
from headrace.store.disk import Disk
from headrace.store.errors import StoreError

MANIFEST = "backup.json"
FORMAT = 1
MANIFEST_OCTETS_MAX = 1 << 30
CHUNK = 1 << 20  # Octets that are read at a time.
ENDS = 64 << 10  # What is compared of the head and the tail of a file, to know it again.
DEFINITIONS = "definitions.db"
ZEROS = bytes(CHUNK)


@dataclass(frozen=True, slots=True)
class BackedUpFile:
    """One file of a backup."""

    size: int  # Octets of the file,
    octets: int  # and how many of them count; the rest is zeros.
    sha256: str  # Of those.
    whole: bool  # It will never change.


@dataclass(slots=True)
class Manifest:
    """What a backup holds."""

    headrace: str  # The version that made it.
    identity: str  # Of the data.
    begun: str  # ISO 8601: everything that was confirmed before is in it.
    finished: str = ""
    vhosts: dict[str, str] = field(default_factory=dict)  # Name by number.
    files: dict[str, BackedUpFile] = field(default_factory=dict)  # By path.


class DamagedError(StoreError):
    """A file of a backup is not what was written there."""


def is_backup(directory: Path) -> bool:
    """Tell whether a directory holds a complete backup."""
    return (directory / MANIFEST).exists()


def open_target(directory: Path) -> None:
    """Make the directory of a new backup, or of a restored one.

    Raises:
        StoreError: there is something in it.
    """
    try:
        Disk().make_directory(str(directory.absolute()))
        if any(directory.iterdir()):
            raise StoreError(f"{directory} is not empty")
    except OSError as error:
        raise StoreError(f"{directory}: {error.strerror or error}") from error


def read_manifest(directory: Path) -> Manifest:
    """Read what a backup holds.

    Raises:
        StoreError: it is no backup, not a complete one, or one that we do not understand.
    """
    path = directory / MANIFEST
    try:
        if path.stat().st_size > MANIFEST_OCTETS_MAX:
            raise StoreError(f"{path} is too large")
        told = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(f"{directory} is no complete backup: it has no {MANIFEST}") from None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise StoreError(f"{path} has a format that this Headrace does not know")
    try:
        files = {str(name): BackedUpFile(**kept) for name, kept in told.pop("files").items()}
        told.pop("format")
        manifest = Manifest(**told, files=files)
    except (TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    for name, kept in files.items():
        parts = Path(name).parts
        if name.startswith("/") or ".." in parts or not parts:
            raise StoreError(f"{path} is damaged: it names {name!r}")
        numbers: list[object] = [kept.size, kept.octets]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise StoreError(f"{path} is damaged: {name!r} has no size")
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Complete a backup."""
    told = {"format": FORMAT, **asdict(manifest)}
    path = directory / f"{MANIFEST}.new"
    with path.open("w", encoding="utf-8") as file:
        json.dump(told, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    path.rename(directory / MANIFEST)
    for place in [directory, *(one for one in directory.rglob("*") if one.is_dir())]:
        sync_directory(place)


def files_below(directory: Path) -> Iterator[str]:
    """Give the path of each file below a directory, in order."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path.relative_to(directory))


def copy_file(source: Path, target: Path, octets: int | None = None) -> tuple[int, int, str]:
    """Copy what counts of a file, durably; return size, octets and SHA-256 of that."""
    Disk().make_directory(str(target.parent.absolute()))
    digest = hashlib.sha256()
    with source.open("rb") as reading:
        size = os.fstat(reading.fileno()).st_size
        left = size if octets is None else min(octets, size)
        counted = left
        with open(target, "wb", opener=private) as writing:
            while left and (chunk := reading.read(min(CHUNK, left))):
                left -= len(chunk)
                digest.update(chunk)
                if chunk == ZEROS[: len(chunk)]:
                    writing.seek(len(chunk), os.SEEK_CUR)
                else:
                    writing.write(chunk)
            writing.truncate(size)
            writing.flush()
            os.fsync(writing.fileno())
    if left:
        raise StoreError(f"{source} became shorter while it was copied")
    return size, counted, digest.hexdigest()


def private(path: str, flags: int) -> int:
    """Open a file that the owner alone may read."""
    return os.open(path, flags, 0o600)


def same_ends(one: Path, other: Path) -> bool:
    """Tell whether two files of one size begin and end with the same octets."""
    with one.open("rb") as first, other.open("rb") as second:
        size = os.fstat(first.fileno()).st_size
        if os.fstat(second.fileno()).st_size != size:
            return False
        for at in (0, max(0, size - ENDS)):
            first.seek(at)
            second.seek(at)
            if first.read(ENDS) != second.read(ENDS):
                return False
    return True


def copy_definitions(source: Path, target: Path) -> None:
    """Copy a database that a broker has open, as of one moment; SQLite sees to that."""
    with (
        contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as reading,
        contextlib.closing(sqlite3.connect(target)) as writing,
    ):
        reading.backup(writing)
        writing.execute("PRAGMA journal_mode = DELETE")
    target.chmod(0o600)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def verify(directory: Path, tell: Callable[[str], None] | None = None) -> Manifest:
    """Read all of a backup and compare; return what it holds.

    Raises:
        StoreError: something is missing.
        DamagedError: something is different from what it was.
    """
    manifest = read_manifest(directory)
    for name, kept in manifest.files.items():
        if tell is not None:
            tell(name)
        digest = hashlib.sha256()
        try:
            with (directory / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                left = kept.octets
                while left and (chunk := file.read(min(CHUNK, left))):
                    left -= len(chunk)
                    digest.update(chunk)
        except OSError as error:
            raise StoreError(f"{directory / name}: {error.strerror or error}") from error
        if size != kept.size or left or digest.hexdigest() != kept.sha256:
            raise DamagedError(f"{directory / name} is not what was written there: it is damaged")
    check_definitions(directory / DEFINITIONS)
    return manifest


def check_definitions(path: Path) -> None:
    """Raise StoreError when a file of definitions is damaged."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            found = db.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error
    if found != "ok":
        raise StoreError(f"{path} is damaged: {found}")


def restore(backup: Path, data: Path, *, new_identity: bool = False) -> Manifest:
    """Make a data directory of a backup; every octet is compared on the way.

    With ``new_identity`` they are no longer the same data to those who remember them.

    Raises:
        StoreError: the backup is damaged or too new, or the directory is not empty; what was made
            of the directory is removed again.
    """
    manifest = read_manifest(backup)
    schema = backup / "schema"
    version = schema.read_text().strip() if schema.exists() else ""
    if not version.isdigit() or int(version) > SCHEMA_VERSION:
        raise StoreError(
            f"{backup} has schema {version or 'none'}; this Headrace knows {SCHEMA_VERSION} at most"
        )
    open_target(data)
    try:
        for name, kept in manifest.files.items():
            if name == "identity" and new_identity:
                continue
            try:
                made = copy_file(backup / name, data / name, kept.octets)
            except OSError as error:
                raise StoreError(f"{error.filename}: {error.strerror or error}") from error
            if made != (kept.size, kept.octets, kept.sha256):
                raise StoreError(f"{backup / name} is not what was written there: it is damaged")
        check_definitions(data / DEFINITIONS)
        for place in [data, *(one for one in data.rglob("*") if one.is_dir())]:
            sync_directory(place)
    except BaseException:
        for entry in list(data.iterdir()):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        raise
    return manifest


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def summary(manifest: Manifest) -> dict[str, object]:
    """Return what is told of a backup."""
    return {
        "begun": manifest.begun,
        "finished": manifest.finished,
        "identity": manifest.identity,
        "vhosts": len(manifest.vhosts),
        "files": len(manifest.files),
        "octets": sum(kept.octets for kept in manifest.files.values()),
    }
