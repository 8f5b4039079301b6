# SPDX-License-Identifier: Apache-2.0
"""The file ``definitions.db``: users, virtual hosts, permissions and parameters, by version.

Several parts of a broker have it open at once, and so may commands of other processes; SQLite's own
locks keep them apart. Whoever opens it first brings it to our version.

Version 1: exchanges, queues, bindings, users, vhosts, permissions. Version 2: parameters, SCRAM
keys, topic permissions, who declared a queue, and notes of who changed what. Version 3: exchanges,
queues and bindings are in the journals; the tables of them go once these have taken them over
(:mod:`headrace.store.catalog.earlier_definitions`).
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

FILE_NAME = "definitions.db"
SCHEMA_VERSION = 3
BUSY_S = 5.0  # How long to wait for another process that writes.

EARLIER_TABLES = ("exchanges", "queues", "bindings")  # Of versions 1 and 2.

# What is missing of these is made when the file is opened, whatever version it comes from.
TABLES = """
CREATE TABLE IF NOT EXISTS users (
    name TEXT PRIMARY KEY,
    password_hash TEXT NOT NULL,
    tags TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS vhosts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE IF NOT EXISTS permissions (
    user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
    vhost TEXT NOT NULL REFERENCES vhosts (name) ON DELETE CASCADE,
    configure TEXT NOT NULL,
    write TEXT NOT NULL,
    read TEXT NOT NULL,
    PRIMARY KEY (user, vhost)
) STRICT;
CREATE TABLE IF NOT EXISTS scram_keys (
    user TEXT PRIMARY KEY REFERENCES users (name) ON DELETE CASCADE,
    iterations INTEGER NOT NULL,
    salt BLOB NOT NULL,
    stored_key BLOB NOT NULL,
    server_key BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS topic_permissions (
    user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
    vhost TEXT NOT NULL REFERENCES vhosts (name) ON DELETE CASCADE,
    exchange TEXT NOT NULL,
    write TEXT NOT NULL,
    read TEXT NOT NULL,
    PRIMARY KEY (user, vhost, exchange)
) STRICT;
CREATE TABLE IF NOT EXISTS parameters (
    vhost TEXT NOT NULL,
    component TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (vhost, component, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS acts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    who TEXT NOT NULL,
    place TEXT NOT NULL,
    what TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;
"""


class DatabaseError(Exception):
    """The file cannot be used; the text says why."""


def open_database(path: str) -> sqlite3.Connection:
    """Open the file, or ``:memory:``, and bring it to our version.

    Raises:
        DatabaseError: it is no database, newer than we are, or cannot be read or written.
    """
    db: sqlite3.Connection | None = None
    try:
        if path != ":memory:":
            make_private(path)
        # Whoever uses it sees to it that one thread does at a time.
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        if path != ":memory:":
            # No write-ahead log: SQLite stops at its first bad frame, and says nothing.
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("PRAGMA synchronous = EXTRA")
        db.execute("PRAGMA foreign_keys = ON")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version < SCHEMA_VERSION or not _is_complete(db):
            version = _migrate(db)
    except sqlite3.Error as error:
        if db is not None:
            db.close()
        raise DatabaseError(f"{path}: {error}") from error
    if version > SCHEMA_VERSION:
        db.close()
        raise DatabaseError(
            f"{path} has schema {version}; this Headrace knows {SCHEMA_VERSION} at most"
        )
    return db


def make_private(path: str) -> None:
    """Make the file, if it is not there, for our own user alone: hashes of passwords come into it.

    The directory may be open to others, as systemd makes it. What SQLite puts beside the file gets
    the same mode.
    """
    with contextlib.suppress(OSError):  # It is there, or SQLite says what is wrong.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def check(db: sqlite3.Connection, path: str) -> None:
    """Read all of the file.

    Raises:
        DatabaseError: it is damaged.
    """
    try:
        found = str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        found = str(error)
    if found != "ok":
        raise DatabaseError(f"{path} is damaged: {found}")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, kind: str = "DEFERRED") -> Iterator[None]:
    """One transaction: all of it happens, or nothing of it."""
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")  # It is still open when this fails for somebody who reads.
    except BaseException:
        if db.in_transaction:  # After some errors SQLite has ended it by itself.
            db.execute("ROLLBACK")
        raise


def file_of(data: Path | None) -> str:
    """The path of the file in a data directory; without a directory it is kept in memory."""
    return ":memory:" if data is None else str(data / FILE_NAME)


def _is_complete(db: sqlite3.Connection) -> bool:
    """Tell whether no table is missing."""
    wanted = {line.split()[5] for line in TABLES.splitlines() if line.startswith("CREATE TABLE")}
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return wanted <= names


def earlier_tables(db: sqlite3.Connection) -> list[str]:
    """Return the tables of earlier versions that are there still."""
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [name for name in EARLIER_TABLES if name in names]


def _migrate(db: sqlite3.Connection) -> int:
    """Bring a file to our version, in one transaction; return the version that it has then."""
    with transaction(db, "IMMEDIATE"):
        version = int(db.execute("PRAGMA user_version").fetchone()[0])  # As it is under the lock.
        if version > SCHEMA_VERSION:
            return version
        for statement in TABLES.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return SCHEMA_VERSION
