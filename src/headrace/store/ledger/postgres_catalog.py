# SPDX-License-Identifier: Apache-2.0
"""The catalog of a cluster in PostgreSQL: one row."""

import secrets

from headrace.store.catalog_port import NONE, CatalogChangedError
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Session

VERSION = b"select version from headrace.catalog"
LOAD = b"select version, content from headrace.catalog"
FIRST = b"""insert into headrace.catalog (version, content) values ($1, $2)
    on conflict do nothing returning version"""
NEXT = b"""update headrace.catalog set version = $1, content = $2 where version = $3
    returning version"""


class PostgresCatalog:
    """See :class:`headrace.store.catalog_port.CatalogEngine`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.open_session: Session | None = None

    def session(self) -> Session:
        """Return the session; a new one after an error."""
        if self.open_session is None or self.open_session.closed:
            self.open_session = self.cluster.session()
        return self.open_session

    def version(self) -> str:
        """See `CatalogEngine`."""
        rows = self.session().query(VERSION)
        return (rows[0][0] or b"").decode() if rows else NONE

    def load(self) -> tuple[str, bytes]:
        """See `CatalogEngine`."""
        version, content = self.session().query(LOAD)[0]
        return (version or b"").decode(), bytes.fromhex((content or b"\\x")[2:].decode())

    def store(self, expected: str, value: bytes) -> str:
        """See `CatalogEngine`."""
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
        """See `CatalogEngine`."""
        if self.open_session is not None:
            self.open_session.close()
            self.open_session = None
