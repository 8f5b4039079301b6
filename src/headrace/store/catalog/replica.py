# SPDX-License-Identifier: Apache-2.0
"""The catalog of a cluster: users, virtual hosts, permissions and parameters of all its brokers.

The whole file ``definitions.db`` is one value in the cluster's engine, with the identity and the
secret of the data. Before a transaction commits locally, the changed file replaces the value in the
engine by compare and set: this fails if another broker has replaced the value. So a broker's file
has no change that the engine lacks, and a change is durable in the engine before it is answered.
Every second each broker reads the version, and installs a newer value.

A value begins with "HRC1" and a CRC-32 of the rest: the identity as text (36), the secret (32), and
the database file, compressed by zlib.
"""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.catalog_port import NONE, CatalogChangedError, CatalogEngine
from headrace.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = b"HRC1"
IDENTITY, SECRET = 36, 32  # Bytes.
CATALOG_BYTES_MAX = 16 << 20  # Bytes of a value.
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


class Value(NamedTuple):
    """A decoded value of the catalog."""

    identity: str
    secret: bytes
    database: bytes


def pack(value: Value) -> bytes:
    """Encode a value of the catalog for the engine."""
    body = value.identity.encode() + value.secret + zlib.compress(value.database)
    return MAGIC + zlib.crc32(body).to_bytes(4, "big") + body


def unpack(data: bytes) -> Value:
    """Decode a value of the catalog.

    Raises:
        StoreError: the value is damaged.
    """
    body = data[8:]
    if data[:4] != MAGIC or zlib.crc32(body) != int.from_bytes(data[4:8], "big"):
        raise StoreError("the catalog of the cluster is damaged: restore the database")
    database = zlib.decompress(body[IDENTITY + SECRET :])
    return Value(body[:IDENTITY].decode(), body[IDENTITY : IDENTITY + SECRET], database)


def read_vhost_numbers(data: bytes) -> dict[str, int]:
    """Return the numbers of the virtual hosts in an encoded value, by name.

    Raises:
        StoreError: the value is damaged.
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(unpack(data).database)
        return dict(db.execute("SELECT name, id FROM vhosts").fetchall())


class CatalogReplica:
    """One broker's copy of the catalog; see the module."""

    def __init__(self, engine: CatalogEngine) -> None:
        self.engine = engine
        self.version = NONE  # The version of the local file; NONE while unknown.
        self.identity = ""
        self.secret = b""

    def load(self) -> Value | None:
        """Return the value of the engine; None if it has no value.

        Raises:
            OSError: the engine does not answer.
            StoreError: the value is damaged.
        """
        if self.engine.version() == NONE:
            return None
        value = unpack(self.engine.load()[1])
        self.identity, self.secret = value.identity, value.secret
        return value

    def refresh(self, db: sqlite3.Connection) -> bool:
        """Install the engine's value in the local file; return False if the file is up to date.

        Raises:
            OSError: the engine does not answer.
            StoreError: the value is damaged.
            sqlite3.Error: the file cannot be written.
        """
        version = self.engine.version()
        if version in (NONE, self.version):
            return False
        version, data = self.engine.load()
        value = unpack(data)
        with contextlib.closing(sqlite3.connect(":memory:")) as loaded:
            loaded.deserialize(value.database)
            loaded.backup(db)
        self.version = version
        self.identity, self.secret = value.identity, value.secret
        return True

    def store(self, db: sqlite3.Connection) -> None:
        """Store the local file, with the changes of its open transaction, in the engine.

        Raises:
            sqlite3.OperationalError: the transaction must not be committed.
        """
        value = pack(Value(self.identity, self.secret, db.serialize()))
        if len(value) > CATALOG_BYTES_MAX:
            raise sqlite3.OperationalError(
                f"users and rules would take {len(value)} bytes, more than {CATALOG_BYTES_MAX}"
            )
        expected, self.version = self.version, NONE
        try:
            self.version = self.engine.store(expected, value)
        except CatalogChangedError:
            raise sqlite3.OperationalError(
                "another broker of the cluster changed users or rules at the same time: try again"
            ) from None
        except OSError as error:
            raise sqlite3.OperationalError(
                f"the database of the cluster does not answer, so this may be changed or not: "
                f"{error}"
            ) from None


class CatalogConnection(sqlite3.Connection):
    """A connection to the local file that stores each commit in the cluster first.

    Without a ``replica`` it is an ordinary connection.
    """

    replica: CatalogReplica | None = None
    _changes_before = 0

    def execute(self, sql: str, parameters: Sequence[object] = (), /) -> sqlite3.Cursor:  # type: ignore[override]  # It has wider types.
        if self.replica is None:
            return super().execute(sql, parameters)
        word = sql.split(None, 1)[0].upper()
        if word == "BEGIN":
            if "IMMEDIATE" in sql:
                self._refresh(self.replica)
            self._changes_before = self.total_changes
        elif word == "COMMIT":
            if self.total_changes != self._changes_before:
                self.replica.store(self)
        elif word in WRITES and not self.in_transaction:
            return self._execute_in_transaction(sql, parameters)
        return super().execute(sql, parameters)

    def _refresh(self, replica: CatalogReplica) -> None:
        try:
            replica.refresh(self)
        except (OSError, StoreError) as error:
            raise sqlite3.OperationalError(
                f"nothing was changed: the database of the cluster does not answer: {error}"
            ) from None

    def _execute_in_transaction(self, sql: str, parameters: Sequence[object]) -> sqlite3.Cursor:
        """Run a statement in a transaction of its own."""
        self.execute("BEGIN IMMEDIATE")
        try:
            cursor = super().execute(sql, parameters)
            self.execute("COMMIT")
        except BaseException:
            if self.in_transaction:
                super().execute("ROLLBACK")
            raise
        return cursor
