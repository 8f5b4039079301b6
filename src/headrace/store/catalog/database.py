# SPDX-License-Identifier: Apache-2.0
"""The file ``definitions.db``: users, virtual hosts, permissions and parameters, by version.

Several parts of a broker and commands in other processes may have the file open; SQLite's locks
order their changes. The first one to open it migrates it to the present version.

Version 1: exchanges, queues, bindings, users, vhosts, permissions. Version 2: parameters, SCRAM
keys, topic permissions, users who declared queues, change notes. Version 3: exchanges, queues and
bindings are in the journals; their tables are dropped once the journals have them
(:mod:`headrace.store.catalog.earlier_definitions`).

The file has an id and counts its changes, so that a start recognizes an older copy of it
(:mod:`headrace.store.mark`).
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from headrace.store.catalog.replica import CatalogConnection

FILE_NAME = "definitions.db"
SCHEMA_VERSION = 3
BUSY_S = 5.0  # Wait for another process that writes.

EARLIER_TABLES = ("exchanges", "queues", "bindings")  # Tables of versions 1 and 2.

# Missing tables are created when the file is opened, whatever its version.
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
CREATE TABLE IF NOT EXISTS lineage (
    id TEXT NOT NULL,
    changes INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS acts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    who TEXT NOT NULL,
    place TEXT NOT NULL,
    what TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;
"""

#: ``lineage`` counts the changes of these tables by triggers, whichever program makes them.
COUNTED = ("users", "vhosts", "permissions", "scram_keys", "topic_permissions", "parameters")
COUNT = """
CREATE TRIGGER IF NOT EXISTS {table}_{kind} AFTER {kind} ON {table}
BEGIN UPDATE lineage SET changes = changes + 1; END
"""
BEGIN_LINEAGE = """
INSERT INTO lineage (id, changes)
SELECT lower(hex(randomblob(16))), 0 WHERE NOT EXISTS (SELECT 1 FROM lineage)
"""


class DatabaseError(Exception):
    """The file is unusable; the text is the reason."""


def open_database(path: str) -> CatalogConnection:
    """Open the file, or ``:memory:``, and migrate it.

    Raises:
        DatabaseError: the file is not a database, is newer, or cannot be read or written.
    """
    db: CatalogConnection | None = None
    try:
        if path != ":memory:":
            make_private(path)
        # The caller uses it on one thread at a time.
        db = sqlite3.connect(
            path,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
            factory=CatalogConnection,
        )
        if path != ":memory:":
            # No write-ahead log: SQLite silently stops at its first invalid frame.
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
    """Create the file, if missing, readable by its owner only: it has password hashes.

    Other users may have access to the directory, as systemd creates it. SQLite gives its other
    files the same mode.
    """
    with contextlib.suppress(OSError):  # The file exists, or SQLite reports the error.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def check(db: sqlite3.Connection, path: str) -> None:
    """Check the integrity of the whole file.

    Raises:
        DatabaseError: the file is damaged.
    """
    try:
        result = str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        result = str(error)
    if result != "ok":
        raise DatabaseError(f"{path} is damaged: {result}")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, kind: str = "DEFERRED") -> Iterator[None]:
    """Run a transaction: commit, or roll back on an exception."""
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")  # Fails if another process reads; the transaction is still open then.
    except BaseException:
        if db.in_transaction:  # SQLite ends it by itself after some errors.
            db.execute("ROLLBACK")
        raise


def database_path(data: Path | None) -> str:
    """Return the path of ``definitions.db``; ``:memory:`` if there is no data directory."""
    return ":memory:" if data is None else str(data / FILE_NAME)


def _is_complete(db: sqlite3.Connection) -> bool:
    """Return True if no table is missing."""
    required = {line.split()[5] for line in TABLES.splitlines() if line.startswith("CREATE TABLE")}
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return required <= names


def earlier_tables(db: sqlite3.Connection) -> list[str]:
    """Return the tables of earlier versions that still exist."""
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [name for name in EARLIER_TABLES if name in names]


def _migrate(db: sqlite3.Connection) -> int:
    """Migrate a file in one transaction; return its version."""
    with transaction(db, "IMMEDIATE"):
        version = int(db.execute("PRAGMA user_version").fetchone()[0])  # Read under the lock.
        if version > SCHEMA_VERSION:
            return version
        for statement in TABLES.split(";"):
            db.execute(statement)
        db.execute(BEGIN_LINEAGE)
        for table in COUNTED:
            for kind in ("INSERT", "UPDATE", "DELETE"):
                db.execute(COUNT.format(table=table, kind=kind))
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return SCHEMA_VERSION
