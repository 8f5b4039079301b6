# SPDX-License-Identifier: Apache-2.0
"""Backups: verified copies of a data directory, and restoring them.

A backup is a directory with the files of a data directory and ``backup.json``, written last: for
each file its size and the SHA-256 of its significant part. Unused parts are sparse. A file that
never changes again and is in an earlier backup is hard-linked instead of copied; so each backup is
complete, and deleting one does not affect another.
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
MANIFEST_BYTES_MAX = 1 << 30
CHUNK = 1 << 20  # Bytes read at a time.
ENDS = 64 << 10  # Bytes of head and tail compared to recognize a file.
DEFINITIONS = "definitions.db"
ZEROS = bytes(CHUNK)


@dataclass(frozen=True, slots=True)
class BackedUpFile:
    """A line of the manifest: the size and the hash of one file of a backup."""

    size: int  # Bytes of the file.
    octets: int  # Bytes of its significant part, from the start; the rest is zeros.
    sha256: str  # The hash of the significant bytes.
    whole: bool  # True if the file is final.


@dataclass(slots=True)
class Manifest:
    """The contents of a backup."""

    headrace: str  # The version that made it.
    identity: str  # The identity of the data directory.
    begun: str  # ISO 8601; everything confirmed before is in the backup.
    finished: str = ""
    vhosts: dict[str, str] = field(default_factory=dict)  # Name by number.
    files: dict[str, BackedUpFile] = field(default_factory=dict)  # Files by path.


class DamagedError(StoreError):
    """A file of a backup has changed since it was written."""


def is_backup(directory: Path) -> bool:
    """Return True if a directory has a complete backup."""
    return (directory / MANIFEST).exists()


def open_target(directory: Path) -> None:
    """Make the directory of a new backup or of a restored one.

    Raises:
        StoreError: the directory is not empty.
    """
    try:
        Disk().make_directory(str(directory.absolute()))
        if any(directory.iterdir()):
            raise StoreError(f"{directory} is not empty")
    except OSError as error:
        raise StoreError(f"{directory}: {error.strerror or error}") from error


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a backup.

    Raises:
        StoreError: the manifest is missing, incomplete, or of an unknown version.
    """
    path = directory / MANIFEST
    try:
        if path.stat().st_size > MANIFEST_BYTES_MAX:
            raise StoreError(f"{path} is too large")
        fields = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(f"{directory} is not a complete backup: it has no {MANIFEST}") from None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise StoreError(f"{path} has a format that this Headrace does not know")
    try:
        files = {str(name): BackedUpFile(**entry) for name, entry in fields.pop("files").items()}
        fields.pop("format")
        manifest = Manifest(**fields, files=files)
    except (TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    for name, entry in files.items():
        parts = Path(name).parts
        if name.startswith("/") or ".." in parts or not parts:
            raise StoreError(f"{path} is damaged: it names {name!r}")
        numbers: list[object] = [entry.size, entry.octets]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise StoreError(f"{path} is damaged: {name!r} has no size")
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest, which completes a backup."""
    fields = {"format": FORMAT, **asdict(manifest)}
    path = directory / f"{MANIFEST}.new"
    with path.open("w", encoding="utf-8") as file:
        json.dump(fields, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    path.rename(directory / MANIFEST)
    for folder in [directory, *(path for path in directory.rglob("*") if path.is_dir())]:
        sync_directory(folder)


def files_below(directory: Path) -> Iterator[str]:
    """Yield the path of each file below a directory, in order."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path.relative_to(directory))


def copy_file(
    source: Path, target: Path, significant_bytes: int | None = None
) -> tuple[int, int, str]:
    """Copy the significant part of a file durably; None: the whole file.

    Return the file's size, its significant bytes, and their SHA-256.
    """
    Disk().make_directory(str(target.parent.absolute()))
    digest = hashlib.sha256()
    with source.open("rb") as reading:
        size = os.fstat(reading.fileno()).st_size
        significant_bytes = size if significant_bytes is None else min(significant_bytes, size)
        left = significant_bytes
        with open(target, "wb", opener=open_private) as writing:
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
    return size, significant_bytes, digest.hexdigest()


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read and write."""
    return os.open(path, flags, 0o600)


def same_ends(first_path: Path, second_path: Path) -> bool:
    """Return True if two files of equal size have the same first and last bytes."""
    with first_path.open("rb") as first, second_path.open("rb") as second:
        size = os.fstat(first.fileno()).st_size
        if os.fstat(second.fileno()).st_size != size:
            return False
        for offset in (0, max(0, size - ENDS)):
            first.seek(offset)
            second.seek(offset)
            if first.read(ENDS) != second.read(ENDS):
                return False
    return True


def copy_definitions(source: Path, target: Path) -> None:
    """Copy a database that a broker may have open, by SQLite's online backup."""
    with (
        contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as reading,
        contextlib.closing(sqlite3.connect(target)) as writing,
    ):
        reading.backup(writing)
        writing.execute("PRAGMA journal_mode = DELETE")
    target.chmod(0o600)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def verify(directory: Path, report: Callable[[str], None] | None = None) -> Manifest:
    """Compare all files of a backup with its manifest; return the manifest.

    Raises:
        StoreError: a file is missing.
        DamagedError: a file has changed.
    """
    manifest = read_manifest(directory)
    for name, entry in manifest.files.items():
        if report is not None:
            report(name)
        digest = hashlib.sha256()
        try:
            with (directory / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                left = entry.octets
                while left and (chunk := file.read(min(CHUNK, left))):
                    left -= len(chunk)
                    digest.update(chunk)
        except OSError as error:
            raise StoreError(f"{directory / name}: {error.strerror or error}") from error
        if size != entry.size or left or digest.hexdigest() != entry.sha256:
            raise DamagedError(
                f"{directory / name} differs from the checksum in the manifest: it is damaged"
            )
    check_definitions(directory / DEFINITIONS)
    return manifest


def check_definitions(path: Path) -> None:
    """Raise StoreError if a file ``definitions.db`` is damaged."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            result = db.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error
    if result != "ok":
        raise StoreError(f"{path} is damaged: {result}")


def restore(backup: Path, data: Path, *, new_identity: bool = False) -> Manifest:
    """Make a data directory from a backup; verify every file. Return the manifest.

    With ``new_identity`` the directory gets another identity, so that clients do not mistake it
    for the original.

    Raises:
        StoreError: the backup is damaged or too new, or the directory is not empty. Restored files
            are removed again.
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
        for name, entry in manifest.files.items():
            if name == "identity" and new_identity:
                continue
            try:
                copied = copy_file(backup / name, data / name, entry.octets)
            except OSError as error:
                raise StoreError(f"{error.filename}: {error.strerror or error}") from error
            if copied != (entry.size, entry.octets, entry.sha256):
                raise StoreError(
                    f"{backup / name} differs from the checksum in the manifest: it is damaged"
                )
        check_definitions(data / DEFINITIONS)
        for folder in [data, *(path for path in data.rglob("*") if path.is_dir())]:
            sync_directory(folder)
    except BaseException:
        for child in list(data.iterdir()):
            shutil.rmtree(child) if child.is_dir() else child.unlink()
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
    """Return the times, identity and sizes of a backup, for reports."""
    return {
        "begun": manifest.begun,
        "finished": manifest.finished,
        "identity": manifest.identity,
        "vhosts": len(manifest.vhosts),
        "files": len(manifest.files),
        "octets": sum(entry.octets for entry in manifest.files.values()),
    }
