# SPDX-License-Identifier: Apache-2.0
"""The catalog of a cluster, one row in PostgreSQL, and the removal of ledgers missing in it."""

import secrets
import threading
from collections.abc import Callable, Collection, Iterable

from headrace.store.catalog_port import NONE, CatalogChangedError
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_schema import CHANGED
from headrace.store.ledger.postgres_session import PostgresSession, StatementError

VERSION = b"select version from headrace.catalog"
LOAD = b"select version, content from headrace.catalog"
FIRST = b"""insert into headrace.catalog (version, content) values ($1, $2)
    on conflict do nothing returning version"""
NEXT = b"""update headrace.catalog set version = $1, content = $2 where version = $3
    returning version"""
PART_ROWS = 256  # Rows of objects that one step removes, about 256 MiB.
STEPS = 64  # Steps of one call; the next heartbeat continues.
STEP = b"select headrace.drop_some($1, $2, $3)"


class PostgresCatalog:
    """See :class:`headrace.store.catalog_port.CatalogEngine`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.open_session: PostgresSession | None = None

    def session(self) -> PostgresSession:
        """Return the session; a new one after an error."""
        if self.open_session is None or self.open_session.closed:
            self.open_session = self.cluster.session()
        return self.open_session

    def version(self) -> str:
        rows = self.session().query(VERSION)
        return (rows[0][0] or b"").decode() if rows else NONE

    def load(self) -> tuple[str, bytes]:
        version, content = self.session().query(LOAD)[0]
        return (version or b"").decode(), bytes.fromhex((content or b"\\x")[2:].decode())

    def store(self, expected: str, value: bytes) -> str:
        session = self.session()
        version = secrets.token_hex(16)
        content = f"\\x{value.hex()}"
        if expected == NONE:
            rows = session.query(FIRST, version, content)
        else:
            rows = session.query(NEXT, version, content, expected)
        if not rows:
            raise CatalogChangedError
        self.cluster.check_answer(session)
        return version

    def close(self) -> None:
        if self.open_session is not None:
            self.open_session.close()
            self.open_session = None


class LedgerRemoval:
    """Removes the ledgers that the catalog lacks, in bounded steps.

    Such a ledger belongs to a deleted virtual host, whose number is never used again. Each step
    names the version of the catalog that was read, and fails if the database has another version:
    this broker's copy may be older than a new virtual host, and newer than a restored database.

    A step removes one segment, or some rows, so that each statement is short and takes few locks.
    The first step fences the owner. The catalog still lacks a partly removed ledger, so any broker
    can continue its removal. Calls block, and come from one thread at a time.
    """

    def __init__(
        self, cluster: Cluster, read_ledger_names: Callable[[bytes], Collection[str]]
    ) -> None:
        """``read_ledger_names`` returns the names of the ledgers in a value of the catalog."""
        self.read_ledger_names = read_ledger_names
        self.catalog = PostgresCatalog(cluster)

    def remove(self, ledgers: Iterable[str], stopped: threading.Event) -> list[str]:
        """Remove ledgers that the catalog lacks; return the names of the fully removed ledgers.

        Args:
            ledgers: names of ledgers; those that the catalog has stay.
            stopped: if set, the call returns after the present step.

        Raises:
            CatalogChangedError: the catalog was changed since it was read; call again.
            StoreError: the catalog is damaged.
            OSError: the engine does not answer, or it is in doubt what was removed.
        """
        if self.catalog.version() == NONE:
            return []
        version, octets = self.catalog.load()
        kept = self.read_ledger_names(octets)
        removed = []
        steps = 0
        for name in ledgers:
            if name in kept:
                continue
            is_removed = False
            while steps < STEPS and not is_removed and not stopped.is_set():
                is_removed = self.step(name, version)
                steps += 1
            if is_removed:
                removed.append(name)
        return removed

    def step(self, name: str, version: str) -> bool:
        """Remove a part of a ledger durably; return True if nothing is left.

        Args:
            name: the ledger's name.
            version: the version of the catalog that lacks the ledger.

        Raises:
            CatalogChangedError: the catalog has another version.
            OSError: see :meth:`remove`.
        """
        session = self.catalog.session()
        try:
            rows = session.query(STEP, name, version, PART_ROWS)
        except StatementError as error:
            if error.sqlstate == CHANGED:
                raise CatalogChangedError from None
            raise
        self.catalog.cluster.check_answer(session)
        return rows[0][0] == b"t"

    def close(self) -> None:
        """Release the connection."""
        self.catalog.close()
