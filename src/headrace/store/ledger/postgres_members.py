# SPDX-License-Identifier: Apache-2.0
"""The brokers of a cluster and the owners of its ledgers, in PostgreSQL.

Each broker has a row with a counter, ``seen``, that it advances at regular intervals. A broker
whose counter is unchanged for its lease, by the clock of the observing broker, may be replaced as
an owner. A broker writes its lease together with the counter. Clocks of brokers are never compared.
The epoch of a ledger fences an owner that was replaced too early.
"""

import contextlib
import logging
import os
import secrets
import time
from typing import NamedTuple

from headrace.store.ledger.members import (
    LEFT,
    BrokerRow,
    ClusterRows,
    LedgerRow,
    NameTakenError,
    StandbyRow,
)
from headrace.store.ledger.postgres_cluster import STANDBY_SETTINGS, Cluster, UnfitServerError
from headrace.store.ledger.postgres_session import PostgresSession, Row, StatementError

log = logging.getLogger(__name__)

LOCK = 1213354061  # First key of advisory locks: "HRPM".
TRY_NAME = b"select pg_try_advisory_lock($1, hashtext($2))"
WAIT_FOR_NAME = b"select pg_advisory_lock($1, hashtext($2))"  # For the lock_timeout at most.
END_HOLDERS = b"""select pg_terminate_backend(pid) from pg_locks
    where locktype = 'advisory' and classid = $1 and objsubid = 2
    and objid::bigint = (hashtext($2)::bigint & 4294967295)
    and database = (select oid from pg_database where datname = current_database())
    and pid <> pg_backend_pid()"""
SEEN = b"""select seen, state, coalesce(lease_s, 0)
    from headrace.broker left join headrace.lease using (name, incarnation) where name = $1"""
# One statement: no broker may see the new counter with the lease of the process before.
JOIN = b"""with leased as (
        insert into headrace.lease (name, incarnation, lease_s)
        values ($1, $2, $5::double precision)
        on conflict (name) do update set incarnation = excluded.incarnation,
        lease_s = excluded.lease_s)
    insert into headrace.broker (name, incarnation, seen, host, port, state)
    values ($1, $2, 0, $3, $4, 'running')
    on conflict (name) do update set incarnation = excluded.incarnation,
    seen = headrace.broker.seen + 1, host = excluded.host, port = excluded.port,
    state = excluded.state"""
BEAT = b"""update headrace.broker set seen = seen + 1, state = $3
    where name = $1 and incarnation = $2 returning seen"""
BROKERS = b"""select name, seen, host, port, state, coalesce(lease_s, 0)
    from headrace.broker left join headrace.lease using (name, incarnation) order by name"""
LEDGERS = b"select name, owner, taken, epoch, last, front, wanted from headrace.log order by name"
SET_PREFERRED_OWNER = b"update headrace.log set wanted = $2 where name = $1 returning name"
RELEASE = b"""update headrace.log set owner = '' where name = $1 and taken = $2
    returning name"""
DROP_LOG = b"select headrace.drop_log(id) from headrace.log where name = $1"
# The size of the tables alone would wait for the locks of tables that are dropped.
SIZE = b"select pg_database_size(current_database())"
SIZE_S = 2.0  # The interval between two reads of the size.
STANDBYS = b"""select application_name, state, sync_state,
    coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn), -1)::bigint
    from pg_stat_replication order by application_name"""


class Holder(NamedTuple):
    """The process that holds the name of a broker, from the broker's row."""

    counter: int  # -1 if there is no row, or the broker left.
    lease_s: float  # 0 if the broker's version writes no lease.


class Members:
    """The rows of this broker and of the others; calls block, from one thread at a time."""

    def __init__(self, cluster: Cluster, name: str, host: str, port: int, lease_s: float) -> None:
        """Set the name and the address of this broker; nothing is opened.

        Args:
            cluster: the database.
            name: the broker's name.
            host: the host at which other brokers and clients reach it.
            port: the port at which other brokers and clients reach it.
            lease_s: seconds without a heartbeat after which others may replace it.
        """
        self.cluster = cluster
        self.name = name
        self.host = host
        self.port = port
        self.lease_s = lease_s
        self.incarnation = f"{os.getpid()}-{secrets.token_hex(8)}"
        self.open_session: PostgresSession | None = None
        self.size = 0  # The bytes of the database; read if it has a limit.
        self.size_read_s = -SIZE_S  # When the size was read, on the monotonic clock.

    def session(self) -> PostgresSession:
        """Return the session; a new one after an error."""
        if self.open_session is None or self.open_session.closed:
            self.open_session = self.cluster.session()
            self.open_session.query(TRY_NAME, LOCK, self.name)
        return self.open_session

    def is_free(self) -> bool:
        """Return True if no session of another broker holds the name.

        Raises:
            OSError: the engine does not answer.
        """
        return self.session().query(TRY_NAME, LOCK, self.name)[0][0] == b"t"

    def seize_name(self) -> None:
        """End the session that holds the name of this broker, and lock the name here.

        Raises:
            OSError: the engine does not answer.
        """
        session = self.session()
        session.query(END_HOLDERS, LOCK, self.name)
        with contextlib.suppress(StatementError):  # The other broker may take longer to end.
            session.query(WAIT_FOR_NAME, LOCK, self.name)

    def read_holder(self) -> Holder:
        """Return the counter and the lease of the broker with this name.

        Raises:
            OSError: the engine does not answer.
        """
        rows = self.session().query(SEEN, self.name)
        if not rows or rows[0][1] == LEFT.encode():
            return Holder(-1, 0.0)
        seen, _, lease_s = map(text, rows[0])
        return Holder(int(seen), float(lease_s))

    def join(self) -> None:
        """Write the row of this broker.

        Raises:
            OSError: the engine does not answer.
        """
        session = self.session()
        self.write_row(session)
        self.check_answer(session)

    def write_row(self, session: PostgresSession) -> None:
        """Write the row of this broker, and its lease."""
        values = self.name, self.incarnation, self.host, self.port
        session.query(JOIN, *values, str(self.lease_s))

    def beat(self, state: str) -> ClusterRows:
        """Advance the counter durably; return the brokers and the ledgers.

        A broker without a row in the engine is entered again, unless another one has its name.

        Raises:
            NameTakenError: another broker has taken the name.
            OSError: the engine does not answer, or no standby has the commit.
        """
        session = self.session()
        if not session.query(BEAT, self.name, self.incarnation, state):
            if not self.is_free():
                raise NameTakenError(f"another broker is {self.name!r} in the cluster now")
            log.warning("the database does not know this broker: an older one was restored")
            self.write_row(session)
        self.check_answer(session)
        brokers = [parse_broker_row(row) for row in session.query(BROKERS)]
        ledgers = [parse_ledger_row(row) for row in session.query(LEDGERS)]
        unfit = self.unfit_reason(session)
        self.read_size(session)
        return ClusterRows(brokers, ledgers, unfit, self.size)

    def read_size(self, session: PostgresSession) -> None:
        """Read the size of the database, at intervals; a refusal ends no heartbeat."""
        now_s = time.monotonic()
        if not self.cluster.size_max or now_s - self.size_read_s < SIZE_S:
            return
        self.size_read_s = now_s
        try:
            self.size = int(session.query(SIZE)[0][0] or 0)
        except StatementError as error:
            log.warning("the size of the database is not known: %s", error)

    def unfit_reason(self, session: PostgresSession) -> str:
        """Return why commits wait for no standby; empty if they wait for one."""
        try:
            self.cluster.check_standbys(*session.query(STANDBY_SETTINGS)[0])
        except UnfitServerError as error:
            return str(error)
        return ""

    def set_preferred_owner(self, ledger: str, broker: str) -> bool:
        """Set the broker that shall own a ledger; return False if there is no such ledger.

        Raises:
            OSError: the engine does not answer.
        """
        session = self.session()
        rows = session.query(SET_PREFERRED_OWNER, ledger, broker)
        self.check_answer(session)
        return bool(rows)

    def release(self, ledger: str, owner_token: str) -> None:
        """Give up a ledger, so that another broker can take it over at once.

        Args:
            ledger: the ledger's name.
            owner_token: names the epoch of this broker; an epoch of another owner stays.

        Raises:
            OSError: the engine does not answer.
        """
        session = self.session()
        session.query(RELEASE, ledger, owner_token)
        self.check_answer(session)

    def delete_ledger(self, ledger: str) -> None:
        """Delete a ledger with its entries.

        Raises:
            OSError: the engine does not answer.
        """
        session = self.session()
        session.query(DROP_LOG, ledger)
        self.check_answer(session)

    def standbys(self) -> list[StandbyRow]:
        """Return the standbys of the database, as far as the role may see them.

        Raises:
            OSError: the engine does not answer.
        """
        rows = self.session().query(STANDBYS)
        return [
            StandbyRow(text(row[0]), text(row[1]), text(row[2]), int(row[3] or 0)) for row in rows
        ]

    def check_answer(self, session: PostgresSession) -> None:
        """Raise OSError if the last answer came with a warning that no standby has the commit."""
        self.cluster.check_warnings(session, session.warnings)

    def close(self) -> None:
        """Release the connection."""
        if self.open_session is not None:
            self.open_session.close()
            self.open_session = None


def text(value: bytes | None) -> str:
    """Return a value of a row as text."""
    return (value or b"").decode()


def parse_broker_row(row: Row) -> BrokerRow:
    """Return the broker in a row of `BROKERS`."""
    name, seen, host, port, state, lease_s = map(text, row)
    return BrokerRow(name, int(seen), host, int(port), state, float(lease_s))


def parse_ledger_row(row: Row) -> LedgerRow:
    """Return the ledger in a row of `LEDGERS`."""
    name, owner, owner_token, epoch, last, front, preferred_owner = map(text, row)
    return LedgerRow(name, owner, owner_token, int(epoch), int(last), int(front), preferred_owner)
