# SPDX-License-Identifier: Apache-2.0
"""The file ``definitions.db``: who opens it, and the tables that it has by version.

Several parts of a broker have it open at once, and so may commands of other processes; SQLite's own
locks keep them apart. Whoever opens it first brings it to our version.

Version 1: exchanges, queues, bindings, users, vhosts, permissions. Version 2: parameters, SCRAM
keys, topic permissions, who declared a queue, and notes of who changed what.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

FILE_NAME = "definitions.db"
SCHEMA_VERSION = 2
BUSY_S = 5.0  # How long to wait for another process that writes.

# What is missing of these is made when the file is opened, whatever version it comes from; a
# column that an older table lacks is named in COLUMNS.
TABLES = """
CREATE TABLE IF NOT EXISTS exchanges (
    vhost TEXT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    auto_delete INTEGER NOT NULL,
    internal INTEGER NOT NULL,
    arguments BLOB NOT NULL,
    PRIMARY KEY (vhost, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queues (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    vhost TEXT NOT NULL,
    name TEXT NOT NULL,
    auto_delete INTEGER NOT NULL,
    arguments BLOB NOT NULL,
    user TEXT NOT NULL DEFAULT '',
    UNIQUE (vhost, name)
);
CREATE TABLE IF NOT EXISTS bindings (
    vhost TEXT NOT NULL,
    source TEXT NOT NULL,
    kind TEXT NOT NULL,
    destination TEXT NOT NULL,
    routing_key TEXT NOT NULL,
    arguments BLOB NOT NULL,
    PRIMARY KEY (vhost, source, kind, destination, routing_key, arguments)
) WITHOUT ROWID;
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

#: Columns that tables of earlier versions lack.
COLUMNS = (("queues", "user", "TEXT NOT NULL DEFAULT ''"),)


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
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        if path != ":memory:":
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
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


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, kind: str = "DEFERRED") -> Iterator[None]:
    """One transaction: all of it happens, or nothing of it."""
    db.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def file_of(data: Path | None) -> str:
    """The path of the file in a data directory; without a directory it is kept in memory."""
    return ":memory:" if data is None else str(data / FILE_NAME)


def _is_complete(db: sqlite3.Connection) -> bool:
    """Tell whether no table is missing."""
    wanted = {line.split()[5] for line in TABLES.splitlines() if line.startswith("CREATE TABLE")}
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return wanted <= names and not list(_missing_columns(db))


def _missing_columns(db: sqlite3.Connection) -> Iterator[str]:
    """The statements that add what older tables lack."""
    for table, column, kind in COLUMNS:
        if column not in {row[1] for row in db.execute(f"PRAGMA table_info({table})")}:
            yield f"ALTER TABLE {table} ADD COLUMN {column} {kind}"


def _migrate(db: sqlite3.Connection) -> int:
    """Bring a file to our version, in one transaction; return the version that it has then."""
    with transaction(db, "IMMEDIATE"):
        version = int(db.execute("PRAGMA user_version").fetchone()[0])  # As it is under the lock.
        if version > SCHEMA_VERSION:
            return version
        for statement in TABLES.split(";"):
            db.execute(statement)
        for statement in list(_missing_columns(db)):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return SCHEMA_VERSION
