# SPDX-License-Identifier: Apache-2.0
"""Exchanges, queues and bindings of earlier versions, in tables of ``definitions.db``.

A start copies them to the journal of each virtual host; once the journal is durable, they are
deleted from the tables. If the start crashes in between, the next one repeats this, which is
harmless because no client was served.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

from headrace.model.vhost.definitions import (
    BindingRecord,
    ExchangeRecord,
    QueueRecord,
    SavedDefinitions,
)
from headrace.store.catalog.database import (
    DatabaseError,
    database_path,
    earlier_tables,
    open_database,
    transaction,
)
from headrace.store.errors import StoreError
from headrace.wire.errors import MalformedError
from headrace.wire.table import decode_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class EarlierDefinitions:
    """The tables of one data directory, if they exist."""

    def __init__(self, data: Path) -> None:
        """Open the file.

        Raises:
            StoreError: the file cannot be used.
        """
        self.path = database_path(data)
        try:
            self._db = open_database(self.path)
        except DatabaseError as error:
            raise StoreError(str(error)) from error
        with self._errors():
            self._tables = earlier_tables(self._db)

    def load(self, vhost: str) -> SavedDefinitions | None:
        """Return the definitions of a virtual host; None if its journal has them.

        Raises:
            StoreError: the file cannot be read.
        """
        if not self._tables:
            return None
        user = "user" if self._has_users() else "''"
        with self._errors():
            exchanges = [
                ExchangeRecord(name, kind, bool(auto), bool(internal), decode_table(arguments)[0])
                for name, kind, auto, internal, arguments in self._db.execute(
                    "SELECT name, type, auto_delete, internal, arguments FROM exchanges "
                    "WHERE vhost = ?",
                    (vhost,),
                )
            ]
            queues = [
                QueueRecord(number, name, bool(auto), decode_table(arguments)[0], declarer)
                for number, name, auto, arguments, declarer in self._db.execute(
                    f"SELECT id, name, auto_delete, arguments, {user} FROM queues "  # noqa: S608
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
        if not exchanges and not queues and not bindings:
            return None
        return SavedDefinitions(exchanges, queues, bindings)

    def ids_used(self) -> int:
        """Return the highest queue id ever used.

        Raises:
            StoreError: the file cannot be read.
        """
        if not self._tables:
            return 0
        with self._errors():
            query = "SELECT seq FROM sqlite_sequence WHERE name = 'queues'"
            row = self._db.execute(query).fetchone()
        return row[0] if row else 0

    def delete(self, vhost: str) -> None:
        """Delete the definitions of a virtual host that are durable in its journal.

        Raises:
            StoreError: the file cannot be written.
        """
        with self._errors(), transaction(self._db, "IMMEDIATE"):
            for table in self._tables:
                self._db.execute(f"DELETE FROM {table} WHERE vhost = ?", (vhost,))  # noqa: S608

    def finish(self) -> None:
        """Drop the tables, once all virtual hosts have taken over their definitions.

        Raises:
            StoreError: the file cannot be written.
        """
        if self._tables:
            with self._errors(), transaction(self._db, "IMMEDIATE"):
                for table in self._tables:
                    self._db.execute(f"DROP TABLE {table}")
            self._tables = []

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _has_users(self) -> bool:
        """Return True if the table has the users who declared queues (version 2)."""
        with self._errors():
            return any(row[1] == "user" for row in self._db.execute("PRAGMA table_info(queues)"))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, MalformedError) as error:
            raise StoreError(f"{self.path}: {error}") from error
