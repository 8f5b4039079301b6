# SPDX-License-Identifier: Apache-2.0
"""Users, virtual hosts, permissions and parameters in SQLite.

Commands such as ``headrace user`` and ``permission`` may change the file while a broker has it
open. SQLite's locks order the changes, and the broker calls :meth:`UserDirectory.changed` every
second.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from headrace.model.policy.accounts import (
    Account,
    AccountError,
    Permission,
    ScramKeys,
    Snapshot,
    TopicPermission,
    check_name,
)
from headrace.model.policy.parameters import EVERYWHERE
from headrace.model.policy.rules import USER_LIMITS
from headrace.store.catalog.change_notes import ChangeNotes
from headrace.store.catalog.changes import Changes, change
from headrace.store.catalog.database import (
    DatabaseError,
    check,
    database_path,
    earlier_tables,
    open_database,
    transaction,
)
from headrace.store.catalog.parameters import ParameterTable
from headrace.store.catalog.replica import CatalogReplica
from headrace.store.catalog_port import NONE
from headrace.store.errors import StoreError

Row = TypeVar("Row")
Item = TypeVar("Item")
AccountRow = tuple[str, str, str, int | None, bytes, bytes, bytes]
PermissionRow = tuple[str, str, str, str, str]
TopicPermissionRow = tuple[str, str, str, str, str]
SERVING_BUSY_MS = 1000  # Wait of a broker's thread for another process that writes.


class _Table(Generic[Row, Item]):
    """Objects made from the rows of a large table, reused for unchanged rows."""

    def __init__(self, make: Callable[[Row], Item]) -> None:
        self._make = make
        self._rows: list[Row] = []
        self._items: list[Item] = []

    def update(self, rows: list[Row]) -> list[Item]:
        """Return the objects of the rows, in the order of the rows.

        Only the objects between the first and the last changed row are new.
        """
        before = self._rows
        shorter = min(len(rows), len(before))
        first = next((n for n in range(shorter) if rows[n] != before[n]), shorter)
        last = next((n for n in range(shorter - first) if rows[~n] != before[~n]), shorter - first)
        end, end_before = len(rows) - last, len(before) - last
        self._rows = before[:first] + rows[first:end] + before[end_before:]
        new = [self._make(row) for row in rows[first:end]]
        self._items = self._items[:first] + new + self._items[end_before:]
        return self._items


def _account(row: AccountRow) -> Account:
    name, password_hash, tags, iterations, *keys = row
    scram = None if iterations is None else ScramKeys(iterations, *keys)
    return Account(name, password_hash, tuple(tags.split()), scram)


def _permission(row: PermissionRow) -> tuple[tuple[str, str], Permission]:
    user, vhost, *patterns = row
    return (user, vhost), Permission(*patterns)


def _topic_permission(row: TopicPermissionRow) -> tuple[tuple[str, str, str], TopicPermission]:
    user, vhost, exchange, *patterns = row
    return (user, vhost, exchange), TopicPermission(*patterns)


class UserDirectory:
    """The users of one data directory, or of one process without a directory.

    A change is durable when the method returns: methods wait for the disk. They may be called on
    any thread, one at a time.
    """

    def __init__(self, data: Path | None = None, command: str = "") -> None:
        """Open the file in the directory `data`, and create missing tables.

        ``command`` is recorded before its first change (`headrace.store.catalog.change_notes`).

        Raises:
            AccountError: the file cannot be opened.
        """
        self.path = database_path(data)
        try:
            self._db = open_database(self.path)
        except DatabaseError as error:
            raise AccountError(str(error)) from None
        self.notes = ChangeNotes(self._db, command)
        self.parameters = ParameterTable(self._db, self.notes)
        self._accounts = _Table(_account)
        self._permissions = _Table(_permission)
        self._topics = _Table(_topic_permission)
        self._version = self._data_version()
        self.on_written: Callable[[], None] = lambda: None  # Called after changes were read.

    def replicate(self, replica: CatalogReplica) -> None:
        """Replicate the users with a cluster from now on; the first broker's users initialize it.

        Raises:
            AccountError: the cluster's engine does not answer, or the file cannot be written.
        """
        with self._errors():
            try:
                if not replica.refresh(self._db) and replica.version == NONE:
                    replica.store(self._db)
            except (OSError, StoreError) as error:
                raise AccountError(str(error)) from None
        self._db.replica = replica
        self.wrote()

    def refresh(self) -> None:
        """Install the changes of other brokers of the cluster.

        Raises:
            AccountError: the file cannot be written, or the engine's value is damaged.
            OSError: the engine does not answer.
        """
        replica = self._db.replica
        with self._errors():
            try:
                if replica is not None and replica.refresh(self._db):
                    self.wrote()
            except StoreError as error:
                raise AccountError(str(error)) from None

    def serve(self) -> None:
        """Check the whole file; later calls wait for locks at most ``SERVING_BUSY_MS``.

        Raises:
            AccountError: the file is damaged.
        """
        try:
            check(self._db, self.path)
        except DatabaseError as error:
            raise AccountError(str(error)) from None
        self._db.execute(f"PRAGMA busy_timeout = {SERVING_BUSY_MS}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def changed(self) -> bool:
        """Return True if another connection wrote since the last call or snapshot.

        Raises:
            AccountError: the file is locked, or cannot be read.
        """
        with self._errors():
            version = self._data_version()
        if version == self._version:
            return False
        self._version = version
        return True

    def snapshot(self) -> Snapshot:
        """Read all users, virtual hosts, permissions and parameters in one transaction.

        Unchanged accounts and permissions are the same objects as before, so that a snapshot after
        one change in a large file is cheap.
        """
        self._version = -1  # -1 until the catalog is read.
        with self._transaction():
            version = self._data_version()
            rows = self._db.execute(
                "SELECT name, password_hash, tags, iterations, salt, stored_key, server_key"
                " FROM users LEFT JOIN scram_keys ON user = name ORDER BY name"
            )
            accounts = {account.name: account for account in self._accounts.update(rows.fetchall())}
            vhosts = dict(self._db.execute("SELECT name, id FROM vhosts ORDER BY name").fetchall())
            rows = self._db.execute(
                "SELECT user, vhost, configure, write, read FROM permissions ORDER BY user, vhost"
            )
            permissions = dict(self._permissions.update(rows.fetchall()))
            parameters = self.parameters.rows()
            rows = self._db.execute(
                "SELECT user, vhost, exchange, write, read FROM topic_permissions"
                " ORDER BY user, vhost, exchange"
            )
            topics = dict(self._topics.update(rows.fetchall()))
        self._version = version
        return Snapshot(accounts, vhosts, permissions, parameters, topics)

    def change(self, changes: Changes) -> None:
        """Make a set of changes; see `headrace.store.catalog.changes`.

        Raises:
            AccountError: nothing was changed.
        """
        self.begin()
        change(self._db, changes)
        self.wrote()

    def wrote(self) -> None:
        """Make :meth:`changed` also report the changes made by this object."""
        self._version = -1

    def begin(self) -> None:
        """Store a note of the command before its first change.

        Raises:
            AccountError: the file cannot be written.
        """
        with self._errors():
            self.notes.begin()

    def is_empty(self) -> bool:
        """Return True if there are no users and no virtual hosts, as in a new data directory."""
        query = "SELECT NOT EXISTS (SELECT 1 FROM users) AND NOT EXISTS (SELECT 1 FROM vhosts)"
        return bool(self._db.execute(query).fetchone()[0])

    def lineage(self) -> tuple[str, int]:
        """Return the id of the file, and the number of its changes; ("", 0) if it has no id.

        Raises:
            AccountError: the file is locked, or cannot be read.
        """
        with self._errors():
            tables = "SELECT 1 FROM sqlite_master WHERE name = 'lineage'"  # A cluster may lack it.
            row = None
            if self._db.execute(tables).fetchone():
                row = self._db.execute("SELECT id, changes FROM lineage").fetchone()
        return ("", 0) if row is None else (str(row[0]), int(row[1]))

    def last_vhost_id(self) -> int:
        """Return the highest number that a virtual host ever had; 0 if there was none.

        Raises:
            AccountError: the file is locked, or cannot be read.
        """
        with self._errors():
            query = "SELECT seq FROM sqlite_sequence WHERE name = 'vhosts'"
            row = self._db.execute(query).fetchone()
        return 0 if row is None else int(row[0])

    def add_user(self, account: Account) -> None:
        """Add a user; AccountError if the name exists."""
        check_name("user", account.name)
        with self._transaction("IMMEDIATE"):
            self._insert(
                "INSERT INTO users (name, password_hash, tags) VALUES (?, ?, ?)",
                (account.name, account.password_hash, " ".join(account.tags)),
                f"user '{account.name}' exists already",
            )
            self._set_keys(account.name, account.scram)

    def set_password(self, name: str, password_hash: str, scram: ScramKeys | None = None) -> None:
        """Replace a user's password and SCRAM keys."""
        with self._transaction("IMMEDIATE"):
            query = "UPDATE users SET password_hash = ? WHERE name = ?"
            self._change(query, (password_hash, name), f"there is no user '{name}'")
            self._set_keys(name, scram)

    def improve_password(self, before: str, account: Account) -> bool:
        """Replace a password's hash by a stronger one, unless it is no longer `before`."""
        with self._transaction("IMMEDIATE"):
            query = "UPDATE users SET password_hash = ? WHERE name = ? AND password_hash = ?"
            values = (account.password_hash, account.name, before)
            if not self._db.execute(query, values).rowcount:
                return False
            self._set_keys(account.name, account.scram)
        return True

    def _set_keys(self, name: str, scram: ScramKeys | None) -> None:
        self._db.execute("DELETE FROM scram_keys WHERE user = ?", (name,))
        if scram is not None:
            self._db.execute(
                "INSERT INTO scram_keys (user, iterations, salt, stored_key, server_key)"
                " VALUES (?, ?, ?, ?, ?)",
                (name, scram.iterations, scram.salt, scram.stored_key, scram.server_key),
            )

    def delete_user(self, name: str) -> None:
        """Delete a user with its permissions and limits."""
        with self._transaction("IMMEDIATE"):
            self._change("DELETE FROM users WHERE name = ?", (name,), f"there is no user '{name}'")
            self._db.execute(
                "DELETE FROM parameters WHERE vhost = ? AND component = ? AND name = ?",
                (EVERYWHERE, USER_LIMITS, name),
            )

    def add_vhost(self, name: str) -> None:
        """Add a virtual host; AccountError if the name exists."""
        check_name("virtual host", name)
        self._insert(
            "INSERT INTO vhosts (name) VALUES (?)",
            (name,),
            f"virtual host '{name}' exists already",
        )

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with its permissions and definitions."""
        with self._transaction("IMMEDIATE"):
            query = "DELETE FROM vhosts WHERE name = ?"
            self._change(query, (name,), f"there is no virtual host '{name}'")
            for table in (*earlier_tables(self._db), "parameters"):
                self._db.execute(f"DELETE FROM {table} WHERE vhost = ?", (name,))  # noqa: S608 - ours

    def set_permission(self, user: str, vhost: str, permission: Permission) -> None:
        """Set a user's permissions in a virtual host."""
        query = (
            "INSERT INTO permissions (user, vhost, configure, write, read) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (user, vhost) DO UPDATE SET configure = excluded.configure,"
            " write = excluded.write, read = excluded.read"
        )
        self._insert(
            query,
            (user, vhost, permission.configure, permission.write, permission.read),
            f"there is no user '{user}' or no virtual host '{vhost}'",
        )

    def clear_permission(self, user: str, vhost: str) -> None:
        """Remove a user's permissions in a virtual host."""
        self._change(
            "DELETE FROM permissions WHERE user = ? AND vhost = ?",
            (user, vhost),
            f"user '{user}' has no permissions in virtual host '{vhost}'",
        )

    def set_topic_permission(
        self, user: str, vhost: str, exchange: str, permission: TopicPermission
    ) -> None:
        """Set a user's topic permission for an exchange."""
        query = (
            "INSERT INTO topic_permissions (user, vhost, exchange, write, read)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT (user, vhost, exchange) DO UPDATE SET"
            " write = excluded.write, read = excluded.read"
        )
        self._insert(
            query,
            (user, vhost, exchange, permission.write, permission.read),
            f"there is no user '{user}' or no virtual host '{vhost}'",
        )

    def clear_topic_permission(self, user: str, vhost: str, exchange: str | None = None) -> None:
        """Remove a user's topic permission for an exchange, or all in a virtual host."""
        condition = "" if exchange is None else " AND exchange = ?"
        values = (user, vhost) if exchange is None else (user, vhost, exchange)
        self._change(
            f"DELETE FROM topic_permissions WHERE user = ? AND vhost = ?{condition}",  # noqa: S608 - ours
            values,
            f"user '{user}' has no topic permissions in virtual host '{vhost}'",
        )

    def _data_version(self) -> int:
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    @contextlib.contextmanager
    def _transaction(self, kind: str = "DEFERRED") -> Iterator[None]:
        with self._errors():
            if kind != "DEFERRED":
                self.notes.begin()
            with transaction(self._db, kind):
                yield

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise AccountError(f"{self.path}: {error}") from None

    def _insert(self, query: str, values: tuple[str, ...], conflict: str) -> None:
        try:
            self.notes.begin()
            self._db.execute(query, values)
        except sqlite3.IntegrityError:
            raise AccountError(conflict) from None
        except sqlite3.Error as error:
            raise AccountError(f"{self.path}: {error}") from None

    def _change(self, query: str, values: tuple[str, ...], missing: str) -> None:
        try:
            self.notes.begin()
            changed = self._db.execute(query, values).rowcount
        except sqlite3.Error as error:
            raise AccountError(f"{self.path}: {error}") from None
        if not changed:
            raise AccountError(missing)
