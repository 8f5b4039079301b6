# SPDX-License-Identifier: Apache-2.0
"""A database that holds the ledgers of a cluster, and the checks of its durability.

Each new session is checked, since a failover may lead to another server. A server is refused if it
confirms commits without a standby, is read only, or belongs to another cluster.
"""

import contextlib
import secrets
from collections.abc import Iterator, Sequence

from headrace.store.ledger.postgres_schema import ADDITIONS, LOCK, STATEMENTS, VERSION
from headrace.store.ledger.postgres_session import (
    ANSWER_S,
    Address,
    PostgresSession,
    Row,
    StatementError,
)

SEGMENT_BYTES = 1 << 30  # Bytes of a table of entries, after which the next one begins.
SEGMENTS_OF_LIMIT = 16  # Smaller tables under a small limit: only whole ones are dropped.
OLDEST_SERVER = 140000  # PostgreSQL 14.
POOLER_ROUNDS = 3
INSUFFICIENT_PRIVILEGE = "42501"
ON = b"on"

# A role or a database may have other values for its sessions.
SETTINGS = {
    "client_min_messages": "warning",  # The warning of a cancelled wait must reach the client.
    "default_transaction_isolation": "read committed",  # A fence must see the present owner.
    "lock_timeout": "1s",
    "statement_timeout": "30s",
    "synchronous_commit": "on",
}
SERVER_FACTS = b"""select current_setting('server_version_num'), pg_is_in_recovery(),
    current_setting('transaction_read_only'), current_setting('fsync'),
    current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
    to_regclass('headrace.cluster') is not null"""
SET = b"select set_config($1, $2, false)"
STANDBY_SETTINGS = b"""select current_setting('synchronous_standby_names'),
    current_setting('synchronous_commit')"""


class UnfitServerError(OSError):
    """A server that must not hold a ledger; the text has the reason and a remedy."""


class Cluster:
    """The database of one cluster: opens sessions, and checks the server of each session."""

    def __init__(
        self,
        address: Address,
        *,
        standbys: bool = True,
        size_max: int = 0,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Set the database; nothing is opened.

        Args:
            address: the servers of the database.
            standbys: False if the server's storage is replicated, so that it needs no synchronous
                standby.
            size_max: bytes of the database above which publishers wait; 0 for no limit.
            answer_s: seconds without an answer after which a statement is in doubt.
        """
        self.address = address
        self.standbys = standbys
        self.size_max = size_max
        self.answer_s = answer_s
        self.id: str | None = None  # The cluster's id once known; others are refused.

    @property
    def segment_bytes(self) -> int:
        """The bytes of a ledger's segment, after which the next segment begins."""
        if not self.size_max:
            return SEGMENT_BYTES
        return min(SEGMENT_BYTES, self.size_max // SEGMENTS_OF_LIMIT)

    def prepare(self) -> str:
        """Make the schema if there is none; return the id of the cluster.

        Raises:
            UnfitServerError: the database cannot be used as it is.
            OSError: the database does not answer.
        """
        with contextlib.closing(self.connect()) as session:
            self.check_no_pooler(session)
            try:
                if not self.has_schema(session):
                    self.make_schema(session)
                self.check_schema(session)
                self.extend_schema(session)
            except StatementError as error:
                if error.sqlstate == INSUFFICIENT_PRIVILEGE:
                    raise self.unfit_error(
                        f"the role lacks rights ({error}): make it the owner of the schema, "
                        "create schema headrace authorization ROLE"
                    ) from None
                raise
        assert self.id is not None
        return self.id

    def session(self) -> PostgresSession:
        """Open a session in which a commit is on the disks of a standby.

        Raises:
            UnfitServerError: the server that takes writes must not hold a ledger.
            OSError: no server answers.
        """
        session = self.connect()
        try:
            if not self.has_schema(session):
                raise self.unfit_error(
                    "the database has no schema headrace: it is not part of this cluster"
                )
            self.check_schema(session)
            self.extend_schema(session)
        except BaseException:
            session.close()
            raise
        return session

    def connect(self) -> PostgresSession:
        """Open a session; check everything but the schema."""
        session = self.address.connect(self.answer_s)
        try:
            for name, value in SETTINGS.items():
                session.query(SET, name, value)
            self.check(session.query(SERVER_FACTS)[0])
        except BaseException:
            session.close()
            raise
        return session

    def check(self, facts: Row) -> None:
        """Refuse a server that would lose confirmed commits."""
        version, recovery, read_only, fsync, names, commit, _ = facts
        if int(version or 0) < OLDEST_SERVER:
            raise self.unfit_error("the server is older than PostgreSQL 14")
        if recovery == b"t" or read_only == ON:
            raise self.unfit_error("the server is read only: name the primary, or all servers")
        if fsync != ON:
            raise self.unfit_error(
                "fsync is off: a power cut loses what it confirmed; set fsync = on"
            )
        self.check_standbys(names, commit)

    def check_answer(self, session: PostgresSession) -> None:
        """Raise OSError unless a standby has the last commit of a session.

        A warning reports that no standby has it. Standbys may be configured away while a commit
        waits: the server reloads the setting for a session before it ends the session's wait.
        """
        warnings = list(session.warnings)
        (row,) = session.query(STANDBY_SETTINGS)
        self.check_warnings(session, [*warnings, *session.warnings])
        self.check_standbys(*row)

    def check_warnings(self, session: PostgresSession, warnings: Sequence[str]) -> None:
        """Raise OSError if an answer came with a warning."""
        if warnings:
            raise ConnectionError(f"PostgreSQL at {session.address}: {warnings[0]}")

    def check_standbys(self, names: bytes | None, commit: bytes | None) -> None:
        """Refuse a server whose commits wait for no standby."""
        if commit not in (ON, b"remote_apply"):
            raise self.unfit_error("a proxy changed synchronous_commit: connect without it")
        if self.standbys and not names:
            raise self.unfit_error(
                "synchronous_standby_names is empty, so its commits wait for no standby: set it, "
                "as in ANY 1 (standby1, standby2); with Patroni, synchronous_mode and "
                "synchronous_mode_strict"
            )

    def has_schema(self, session: PostgresSession) -> bool:
        """Return True if the database has the schema of clusters."""
        return session.query(SERVER_FACTS)[0][-1] == b"t"

    def make_schema(self, session: PostgresSession) -> None:
        """Make the schema, unless another broker just did."""
        with self.changing_schema(session):
            if self.has_schema(session):
                return
            for statement in STATEMENTS:
                session.send_text(statement.encode())
            made = b"insert into headrace.cluster values ($1, $2)"
            session.send_text(made, secrets.token_hex(16), VERSION)
            session.sync()
            session.answer()

    def extend_schema(self, session: PostgresSession) -> None:
        """Add the parts of the schema that an older broker did not create."""
        if not self.missing_additions(session):
            return
        with self.changing_schema(session):
            for statement in self.missing_additions(session):
                session.query(statement.encode())

    def missing_additions(self, session: PostgresSession) -> list[str]:
        """Return the statements of the additions that the schema lacks."""
        (row,) = session.query(f"select {', '.join(ADDITIONS)}".encode())
        additions = zip(row, ADDITIONS.values(), strict=True)
        return [statement for value, statement in additions if value is None]

    @contextlib.contextmanager
    def changing_schema(self, session: PostgresSession) -> Iterator[None]:
        """Lock the schema against changes by other brokers."""
        session.query(b"select pg_advisory_lock($1, 0)", LOCK)
        try:
            yield
        finally:
            if not session.closed:
                session.query(b"select pg_advisory_unlock($1, 0)", LOCK)

    def check_schema(self, session: PostgresSession) -> None:
        """Raise UnfitServerError if the schema has a later version or is of another cluster."""
        rows = session.query(
            b"select id, version, pg_has_role(relowner, 'USAGE'), relowner::regrole, current_user "
            b"from headrace.cluster, pg_class where pg_class.oid = 'headrace.log'::regclass"
        )
        if len(rows) != 1:
            raise self.unfit_error("headrace.cluster has not one row: restore the database")
        id, version, owns, owner, role = (str(value or b"", "utf-8") for value in rows[0])
        if int(version) > VERSION:
            raise self.unfit_error(
                f"its schema has version {version}, this Headrace knows {VERSION}: upgrade Headrace"
            )
        if owns != "t":
            raise self.unfit_error(
                f"role {role} does not own the schema headrace: log in as {owner}, "
                f"or grant {owner} to {role}"
            )
        if self.id is not None and id != self.id:
            raise self.unfit_error(f"it holds cluster {id}, this broker is of cluster {self.id}")
        self.id = id

    def check_no_pooler(self, session: PostgresSession) -> None:
        """Refuse a proxy that runs the transactions of a session in several server sessions.

        A second session keeps a transaction open. A proxy that pools transactions gives it the
        server session of the first one, or has to find another server session for the first.
        """
        with contextlib.closing(self.address.connect(self.answer_s)) as second:
            for _ in range(POOLER_ROUNDS):
                mine = session.query(b"select pg_backend_pid()")
                second.query(b"begin")
                theirs = second.query(b"select pg_backend_pid()")
                if mine == theirs or mine != session.query(b"select pg_backend_pid()"):
                    raise self.unfit_error(
                        "a proxy before it pools transactions: connect without it, or let it "
                        "pool sessions"
                    )
                second.query(b"commit")

    def unfit_error(self, text: str) -> UnfitServerError:
        """Return the error about the server."""
        return UnfitServerError(f"PostgreSQL at {self.address.text} may not hold a cluster: {text}")
