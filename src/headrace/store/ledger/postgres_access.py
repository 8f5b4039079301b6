# SPDX-License-Identifier: Apache-2.0
"""Access to a ledger in PostgreSQL: its row, and a session that is opened again after an error.

An abandoned session may still wait for a standby with the ledger's row locked. The next session
ends it.
"""

import contextlib
from collections.abc import Iterator

from headrace.store.ledger.port import Fenced, Gap, LedgerLost, Position
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_schema import FENCED, GAP, LOCK
from headrace.store.ledger.postgres_session import PostgresSession, Row, StatementError

NEW_LOG = b"""insert into headrace.log (name, owner, taken, epoch, last, front)
    values ($1, '', '', 0, 0, 1) on conflict (name) do nothing"""
FIND_LOG = b"select id, epoch, last, front from headrace.log where name = $1"
LOCK_LOG = b"select pg_advisory_lock_shared($1, $2)"
END_LOCK_HOLDERS = b"""select pg_terminate_backend(pid) from pg_locks
    where locktype = 'advisory' and classid = $1 and objid = $2 and objsubid = 2
    and database = (select oid from pg_database where datname = current_database())
    and pid <> pg_backend_pid()
    and (pid = any($3::integer[]) or cardinality($3::integer[]) = 0)"""


class LedgerAccess:
    """Access of a ledger and its objects to one database, on one thread."""

    def __init__(self, cluster: Cluster, name: str, owner: str) -> None:
        self.cluster = cluster
        self.name = name
        self.owner = owner
        self.id = 0  # The id of the ledger's row; 0 while unknown.
        self.epoch = 0  # 0 while this broker does not own the ledger.
        self.owner_token = ""  # Random; names this epoch of this owner.
        self.durable = 0  # The number of the last entry that is known to be durable.
        self.segment = 0  # The segment of the next entry; 0 while unknown.
        self.open_session: PostgresSession | None = None
        self.abandoned: list[int] = []  # The server processes of abandoned sessions.

    def __repr__(self) -> str:
        return f"<ledger {self.name!r} in {self.cluster.address!r}>"

    @contextlib.contextmanager
    def session(self) -> Iterator[PostgresSession]:
        """Yield a session. After an error without an answer the next call opens a new session.

        Raises:
            Fenced: another broker owns the ledger.
            Gap: the server lacks an entry.
            OSError: the server did not answer, or refused a statement.
        """
        try:
            if self.open_session is None:
                self.open_session = self.cluster.session()
                self.segment = 0
                if self.id and self.epoch:
                    self.lock(self.open_session)
                    self.end_abandoned(self.open_session)
            yield self.open_session
        except StatementError as error:
            if error.sqlstate == FENCED:
                raise Fenced(f"ledger {self.name!r}: {error}") from None
            if error.sqlstate == GAP:
                raise Gap(f"ledger {self.name!r}: {error}") from None
            self.abandon()
            raise
        except LedgerLost:
            raise
        except BaseException:  # The session may still receive answers.
            self.abandon()
            raise

    def abandon(self) -> None:
        """Close the session; its server process may still wait for a standby."""
        if self.open_session is not None:
            self.abandoned.append(self.open_session.process)
            self.close()

    def end_abandoned(self, session: PostgresSession) -> None:
        """End the abandoned sessions, which may have the ledger's row locked."""
        if self.abandoned:
            session.query(
                END_LOCK_HOLDERS, LOCK, self.id, f"{{{','.join(map(str, self.abandoned))}}}"
            )
            self.abandoned.clear()

    def find_or_create(self, session: PostgresSession) -> Position:
        """Return the position of the ledger; create the ledger if it is missing.

        Raises:
            Gap: the ledger lacks entries that were durable.
        """
        while not (rows := session.query(FIND_LOG, self.name)):
            session.query(NEW_LOG, self.name)
        self.id = int(rows[0][0] or 0)
        position = self.parse_position(rows[0])
        if position.last < self.durable:
            raise Gap(
                f"ledger {self.name!r} ends at entry {position.last}, but entry {self.durable} was "
                "durable: a standby that lacked it was promoted, or an older database restored"
            )
        return position

    def lock(self, session: PostgresSession) -> None:
        """Mark the session as one that may lock the ledger's row; several sessions may."""
        session.query(LOCK_LOG, LOCK, self.id)

    def check_answer(self, session: PostgresSession) -> None:
        """Raise OSError unless a standby has the last commit of the session."""
        self.cluster.check_answer(session)

    def check_standbys(self, session: PostgresSession, row: Row) -> None:
        """Raise OSError after a warning, or if commits wait for no standby."""
        self.cluster.check_warnings(session, session.warnings)
        self.cluster.check_standbys(*row)

    def parse_position(self, row: Row) -> Position:
        """Return the position in a row of headrace.log."""
        _, epoch, last, front = (int(value or 0) for value in row)
        return Position(epoch, last, front)

    def close(self) -> None:
        """Release the connection; see `Ledger`."""
        if self.open_session is not None:
            self.open_session.close()
            self.open_session = None
