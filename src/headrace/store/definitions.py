# SPDX-License-Identifier: Apache-2.0
"""Durable exchanges, queues and bindings of all virtual hosts, in one SQLite file.

Changes gather in one transaction until :meth:`SqliteDefinitions.commit`; whoever answers clients
commits first, so an answered declaration is on disk, and a thousand that came together cost one
sync. Queues get ids that are never given again, for the journal knows queues by nothing else.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from headrace.model.definitions import BindingRecord, ExchangeRecord, QueueRecord, Saved
from headrace.wire.errors import MalformedError
from headrace.wire.table import decode_table, encode_table

FILE_NAME = "definitions.db"
SCHEMA_VERSION = 1
QUEUE_ID_MAX = 0xFFFFFFFF

_SCHEMA = """
CREATE TABLE exchanges (
    vhost TEXT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    auto_delete INTEGER NOT NULL,
    internal INTEGER NOT NULL,
    arguments BLOB NOT NULL,
    PRIMARY KEY (vhost, name)
) WITHOUT ROWID;
CREATE TABLE queues (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    vhost TEXT NOT NULL,
    name TEXT NOT NULL,
    auto_delete INTEGER NOT NULL,
    arguments BLOB NOT NULL,
    UNIQUE (vhost, name)
);
CREATE TABLE bindings (
    vhost TEXT NOT NULL,
    source TEXT NOT NULL,
    kind TEXT NOT NULL,
    destination TEXT NOT NULL,
    routing_key TEXT NOT NULL,
    arguments BLOB NOT NULL,
    PRIMARY KEY (vhost, source, kind, destination, routing_key, arguments)
) WITHOUT ROWID;
"""


class DefinitionsError(Exception):
    """The file of definitions cannot be used; the text says why."""


class SqliteDefinitions:
    """Implements :class:`headrace.model.definitions.Definitions`; used by one thread."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self.dirty = False  # Something waits for :meth:`commit`.
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._db.executescript(
                    f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
                )
        except sqlite3.Error as error:
            raise DefinitionsError(f"{self.path}: {error}") from error
        if version > SCHEMA_VERSION:
            self._db.close()
            raise DefinitionsError(
                f"{self.path} has schema {version}; this Headrace knows {SCHEMA_VERSION} at most"
            )

    def load(self, vhost: str) -> Saved:
        """Return what was kept."""
        try:
            exchanges = [
                ExchangeRecord(name, kind, bool(auto), bool(internal), decode_table(arguments)[0])
                for name, kind, auto, internal, arguments in self._db.execute(
                    "SELECT name, type, auto_delete, internal, arguments FROM exchanges "
                    "WHERE vhost = ?",
                    (vhost,),
                )
            ]
            queues = [
                QueueRecord(number, name, bool(auto), decode_table(arguments)[0])
                for number, name, auto, arguments in self._db.execute(
                    "SELECT id, name, auto_delete, arguments FROM queues WHERE vhost = ?", (vhost,)
                )
            ]
            bindings = [
                BindingRecord(source, kind, destination, key, decode_table(arguments)[0])
                for source, kind, destination, key, arguments in self._db.execute(
                    "SELECT source, kind, destination, routing_key, arguments FROM bindings "
                    "WHERE vhost = ?",
                    (vhost,),
                )
            ]
        except (sqlite3.Error, MalformedError) as error:
            raise DefinitionsError(f"{self.path} is damaged: {error}") from error
        return Saved(exchanges, queues, bindings)

    def save_exchange(self, vhost: str, record: ExchangeRecord) -> None:
        """Keep an exchange."""
        self._begin()
        self._db.execute(
            "INSERT OR REPLACE INTO exchanges VALUES (?, ?, ?, ?, ?, ?)",
            (
                vhost,
                record.name,
                record.type,
                record.auto_delete,
                record.internal,
                encode_table(record.arguments),
            ),
        )

    def delete_exchange(self, vhost: str, name: str) -> None:
        """Forget an exchange."""
        self._begin()
        self._db.execute("DELETE FROM exchanges WHERE vhost = ? AND name = ?", (vhost, name))

    def save_queue(self, vhost: str, record: QueueRecord) -> int:
        """Keep a queue under a fresh id, and return that."""
        self._begin()
        cursor = self._db.execute(
            "INSERT INTO queues (vhost, name, auto_delete, arguments) VALUES (?, ?, ?, ?)",
            (vhost, record.name, record.auto_delete, encode_table(record.arguments)),
        )
        number = cursor.lastrowid
        assert number is not None
        if number > QUEUE_ID_MAX:
            raise DefinitionsError(f"{self.path}: all {QUEUE_ID_MAX} queue ids are used up")
        return number

    def delete_queue(self, vhost: str, queue_id: int) -> None:
        """Forget a queue; its id is never given again."""
        self._begin()
        self._db.execute("DELETE FROM queues WHERE id = ? AND vhost = ?", (queue_id, vhost))

    def save_binding(self, vhost: str, record: BindingRecord) -> None:
        """Keep a binding."""
        self._begin()
        self._db.execute(
            "INSERT OR IGNORE INTO bindings VALUES (?, ?, ?, ?, ?, ?)", self._key(vhost, record)
        )

    def delete_binding(self, vhost: str, record: BindingRecord) -> None:
        """Forget a binding."""
        self._begin()
        self._db.execute(
            "DELETE FROM bindings WHERE vhost = ? AND source = ? AND kind = ? AND destination = ? "
            "AND routing_key = ? AND arguments = ?",
            self._key(vhost, record),
        )

    def delete_vhost(self, vhost: str) -> None:
        """Forget all of a virtual host."""
        self._begin()
        for table in ("exchanges", "queues", "bindings"):
            self._db.execute(f"DELETE FROM {table} WHERE vhost = ?", (vhost,))  # noqa: S608 - ours

    def commit(self) -> None:
        """Make everything so far durable."""
        if self.dirty:
            self.dirty = False
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Commit what is left and let go of the file."""
        self.commit()
        self._db.close()

    def _begin(self) -> None:
        if not self.dirty:
            self._db.execute("BEGIN IMMEDIATE")
            self.dirty = True

    @staticmethod
    def _key(vhost: str, record: BindingRecord) -> tuple[str, str, str, str, str, bytes]:
        arguments = dict(sorted(record.arguments.items()))
        return (
            vhost,
            record.source,
            record.kind,
            record.destination,
            record.routing_key,
            encode_table(arguments),
        )
