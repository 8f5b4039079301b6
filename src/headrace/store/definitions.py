# SPDX-License-Identifier: Apache-2.0
"""Durable exchanges, queues and bindings of all virtual hosts, in one SQLite file.

Changes gather until :meth:`SqliteDefinitions.commit`; whoever answers clients commits first, so an
answered declaration is on disk, and a thousand that came together cost one sync. What cannot be
written is kept and tried again, and nothing new is taken until it is. Queues get ids that are never
given again, for the journal knows queues by nothing else.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from headrace.model.definitions import BindingRecord, ExchangeRecord, QueueRecord, Saved
from headrace.model.errors import ResourceError
from headrace.store.database import DatabaseError, file_of, open_database
from headrace.wire.errors import MalformedError
from headrace.wire.table import decode_table, encode_table

QUEUE_ID_MAX = 0xFFFFFFFF
RETRY_S = 1.0  # How long a commit that failed is left alone.

log = logging.getLogger(__name__)


class DefinitionsError(Exception):
    """The file of definitions cannot be used; the text says why."""


class SqliteDefinitions:
    """Implements :class:`headrace.model.definitions.Definitions`; used by one thread."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = file_of(directory)
        self.failing = False  # The last commit did not succeed.
        self._clock = clock
        self._retry_at_s = 0.0
        self._changes: list[tuple[str, tuple[object, ...]]] = []
        try:
            self._db = open_database(self.path)
        except DatabaseError as error:
            raise DefinitionsError(str(error)) from error
        given = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'queues'").fetchone()
        self._next_id = 1 + (given[0] if given else 0)

    def load(self, vhost: str) -> Saved:
        """Return what was kept."""
        self.commit()
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
                QueueRecord(number, name, bool(auto), decode_table(arguments)[0], user)
                for number, name, auto, arguments, user in self._db.execute(
                    "SELECT id, name, auto_delete, arguments, user FROM queues "
                    "WHERE vhost = ? ORDER BY id",
                    (vhost,),
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
        self._refuse_if_failing()
        self._later(
            "INSERT OR REPLACE INTO exchanges VALUES (?, ?, ?, ?, ?, ?)",
            vhost,
            record.name,
            record.type,
            record.auto_delete,
            record.internal,
            encode_table(record.arguments),
        )

    def delete_exchange(self, vhost: str, name: str) -> None:
        """Forget an exchange."""
        self._later("DELETE FROM exchanges WHERE vhost = ? AND name = ?", vhost, name)

    def save_queue(self, vhost: str, record: QueueRecord) -> int:
        """Keep a queue under a fresh id, and return that."""
        self._refuse_if_failing()
        number = self._next_id
        if number > QUEUE_ID_MAX:
            raise ResourceError(f"all {QUEUE_ID_MAX} queue ids are used up")
        self._next_id = number + 1
        self._later(
            "INSERT INTO queues VALUES (?, ?, ?, ?, ?, ?)",
            number,
            vhost,
            record.name,
            record.auto_delete,
            encode_table(record.arguments),
            record.user,
        )
        return number

    def delete_queue(self, vhost: str, queue_id: int) -> None:
        """Forget a queue; its id is never given again."""
        self._later("DELETE FROM queues WHERE id = ? AND vhost = ?", queue_id, vhost)

    def save_binding(self, vhost: str, record: BindingRecord) -> None:
        """Keep a binding."""
        self._refuse_if_failing()
        self._later(
            "INSERT OR IGNORE INTO bindings VALUES (?, ?, ?, ?, ?, ?)", *self._key(vhost, record)
        )

    def delete_binding(self, vhost: str, record: BindingRecord) -> None:
        """Forget a binding."""
        self._later(
            "DELETE FROM bindings WHERE vhost = ? AND source = ? AND kind = ? AND destination = ? "
            "AND routing_key = ? AND arguments = ?",
            *self._key(vhost, record),
        )

    def delete_vhost(self, vhost: str) -> None:
        """Forget all of a virtual host."""
        self._later("DELETE FROM exchanges WHERE vhost = ?", vhost)
        self._later("DELETE FROM queues WHERE vhost = ?", vhost)
        self._later("DELETE FROM bindings WHERE vhost = ?", vhost)

    def commit(self) -> None:
        """Make everything so far durable, or try again later if the disk does not take it."""
        if not self._changes or (self.failing and self._clock() < self._retry_at_s):
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for statement, values in self._changes:
                self._db.execute(statement, values)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if not self.failing:
                log.error("%s cannot be written, and definitions are refused: %s", self.path, error)
            self.failing = True
            self._retry_at_s = self._clock() + RETRY_S
            return
        if self.failing:
            log.warning("%s can be written again", self.path)
        self.failing = False
        self._changes.clear()

    def forget(self) -> None:
        """Drop what waits for :meth:`commit`."""
        self._changes.clear()

    def close(self) -> None:
        """Commit what is left and let go of the file."""
        self._retry_at_s = 0.0
        self.commit()
        self._db.close()

    @property
    def dirty(self) -> bool:
        """Whether something waits for :meth:`commit`."""
        return bool(self._changes)

    def _later(self, statement: str, *values: object) -> None:
        self._changes.append((statement, values))

    def _refuse_if_failing(self) -> None:
        """Take nothing new while the disk does not take what is here already."""
        if self.failing:
            self.commit()
            if self.failing:
                raise ResourceError("definitions cannot be written to disk")

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
