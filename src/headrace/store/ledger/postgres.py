# SPDX-License-Identifier: Apache-2.0
"""A ledger in PostgreSQL with a synchronous standby.

An append is one transaction, in one round trip: an update of the ledger's row that names the owner
and the number before, and the rows of the entry. PostgreSQL answers when the standby has the commit
on its disk. Three failures weaken that answer, and the ledger checks for each:

- A cancelled wait succeeds, with a warning. Any warning leaves the append in doubt.
- The standbys may be configured away while a commit waits. A second transaction of the same round
  trip reads the setting: the server reloads it for a session before it ends the session's wait.
- The connection may end or stop answering. Then the outcome of the commit is unknown.

An append in doubt is repeated, and only an answered commit after it proves that it is durable: a
restarted server shows entries that its standby lacks, so reading proves nothing. For the same
reason a node that is not an owner reads the last entry but one at most; the next append, or the
takeover, makes it durable.
"""

import logging
import secrets
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.store.ledger.port import BytesLike, Fenced, Gap, Position
from headrace.store.ledger.postgres_access import END_LOCK_HOLDERS, LedgerAccess
from headrace.store.ledger.postgres_cluster import STANDBY_SETTINGS, Cluster
from headrace.store.ledger.postgres_objects import PostgresObjects
from headrace.store.ledger.postgres_schema import (
    AGAIN,
    LOCK,
    ROW_BYTES,
    entries_table,
)
from headrace.store.ledger.postgres_session import (
    BYTEA,
    INT4,
    INT8,
    TEXT,
    PostgresSession,
    Row,
    StatementError,
)

if TYPE_CHECKING:
    from headrace.store.ledger.members import SilentBroker

log = logging.getLogger(__name__)

STATEMENT_ROWS = 128  # Rows of an entry that one statement inserts: about 1 MiB.
STATEMENT_BYTES = STATEMENT_ROWS * ROW_BYTES
READ_ROWS = 2048  # Rows of one read, about 16 MiB.
TAKEOVER_ATTEMPTS = 5
LOCK_NOT_AVAILABLE = "55P03"

ADVANCE = b"advance"
INSERT = b"insert"
CHECK_STANDBYS = b"promise"

# The lock orders this statement and a heartbeat of the previous owner. After that heartbeat the
# statement changes no row. Before it, the heartbeat finds another owner.
TAKE_OVER = b"""with silent as (
        select name from headrace.broker where name = $5 and seen = $6::bigint for update)
    update headrace.log set epoch = epoch + 1, owner = $2, taken = $3, wanted = ''
    where name = $1 and ($4 = '*' or taken = $4) and ($5 = '' or exists (select 1 from silent))
    returning id, epoch, last, front"""
ANY = "*"
REPEAT = b"""update headrace.log set last = last
    where id = $1 and taken = $2 and epoch = $3 and last = $4 returning last"""
SEGMENTS = b"select segment, first from headrace.segment where log = $1 order by segment"
ALL_HOLDERS = "{}"  # An empty array of process ids selects all processes that hold the lock.
INSERT_PART = b"""insert into %(table)b
    select $1, $2 + cut, substring($3 from cut * %(row)d + 1 for %(row)d)
    from generate_series(0, (length($3) - 1) / %(row)d) as cut"""
READ = b"""select number, part, octets from %(table)b
    where number > $1 and number <= $2 order by number, part limit %(limit)d"""


class PostgresLedger(LedgerAccess):
    """The ledger of one virtual host; see the module and `Ledger`."""

    def __init__(self, cluster: Cluster, name: str, owner: str) -> None:
        """Set the ledger; nothing is opened.

        Args:
            cluster: the database.
            name: the name of the ledger's virtual host.
            owner: the name of this broker, which operators and errors of other brokers show.
        """
        super().__init__(cluster, name, owner)
        self.segment_bytes: int | None = None  # Replaces the segment size of the cluster.
        self.token_to_end = ANY  # The owner token of the only epoch that open() may end.
        # open() ends an epoch only while this owner sends no heartbeat; None skips the check.
        self.silent_owner: SilentBroker | None = None
        self.front = 1
        self.filled = 0  # Bytes of the segment.

    # --- The port ---------------------------------------------------------------------------

    def open(self) -> Position:
        """Become the owner of the ledger; see `Ledger`."""
        self.epoch = 0
        with self.session() as session:
            self.find_or_create(session)
            self.lock(session)
            owner_token = secrets.token_hex(16)
            position = self.parse_position(self.take_over(session, owner_token))
            self.check_answer(session)
            self.epoch, self.owner_token = position.epoch, owner_token
            self.durable, self.front = position.last, position.front
            self.begin_append(session)
        return position

    def read_position(self) -> Position:
        """Return the position of the ledger; see `Ledger`.

        The last entry of the position is durable. The owner may have added a later one.
        """
        with self.session() as session:
            position = self.find_or_create(session)
            self.durable = max(position.last - 1, position.front - 1, self.durable)
            return position._replace(last=self.durable)

    def append(self, number: int, entry: Sequence[BytesLike]) -> None:
        """Add an entry; see `Ledger`."""
        if self.epoch == 0:
            raise Fenced(f"ledger {self.name!r} was not taken by {self.owner!r}")
        with self.session() as session:
            if self.segment == 0:
                self.begin_append(session)
            if self.filled >= (self.segment_bytes or self.cluster.segment_bytes):
                self.add_segment(session, number)
            data = b"".join(entry)
            try:
                self.send_append(session, number, data)
            except StatementError as error:
                if error.sqlstate != AGAIN:
                    raise
                self.repeat_append(session, number)
            self.filled += len(data)
            self.durable = number

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Yield the entries after a number; see `Ledger`."""
        last = self.durable if self.epoch else self.read_position().last
        number = after
        while number < last:
            with self.session() as session:
                entries = self.read_entries(session, number, last)
            for number, data in entries:
                yield number, data

    def trim(self, before: int) -> None:
        """Drop the tables whose entries all have a lower number; see `Ledger`."""
        with self.session() as session:
            query = b"select headrace.trim($1, $2, $3)"
            rows = session.query(query, self.id, self.owner_token, before)
            self.check_answer(session)
            self.front = int(rows[0][0] or 0)

    def interrupt(self) -> None:
        """End the call of another thread with an error, because another broker owns the ledger."""
        session = self.open_session
        if session is not None and not session.closed:
            session.interrupt()

    def objects(self) -> PostgresObjects:
        """Return the ledger's objects; see `Ledger`."""
        return PostgresObjects(self)

    def second_connection(self) -> "PostgresLedger":
        """Return a ledger of the same epoch with a connection of its own; see `Ledger`."""
        other = PostgresLedger(self.cluster, self.name, self.owner)
        other.id, other.epoch, other.owner_token = self.id, self.epoch, self.owner_token
        other.durable, other.front = self.durable, self.front
        return other

    # --- Taking the ledger ------------------------------------------------------------------

    def take_over(self, session: PostgresSession, owner_token: str) -> Row:
        """Become the owner; return the ledger's row.

        If an owner without heartbeats holds the row locked, its sessions are ended.

        Raises:
            Fenced: another broker was first, or the owner is back.
            TimeoutError: the row stayed locked.
        """
        broker, seen = self.silent_owner or ("", 0)
        for _ in range(TAKEOVER_ATTEMPTS):
            try:
                rows = session.query(
                    TAKE_OVER, self.name, self.owner, owner_token, self.token_to_end, broker, seen
                )
                if not rows:
                    raise Fenced(
                        f"ledger {self.name!r}: another broker was first, or its owner is back"
                    )
                return rows[0]
            except StatementError as error:
                if error.sqlstate != LOCK_NOT_AVAILABLE:
                    raise
            log.warning("ledger %r is locked by its owner: its sessions are ended", self.name)
            session.query(END_LOCK_HOLDERS, LOCK, self.id, ALL_HOLDERS)
        raise TimeoutError(f"ledger {self.name!r} stayed locked by another session")

    # --- Appending --------------------------------------------------------------------------

    def begin_append(self, session: PostgresSession) -> None:
        """Find the table of the next entry; prepare the statements of an append."""
        segments = session.query(SEGMENTS, self.id)
        if segments:
            self.segment = int(segments[-1][0] or 0)
            size = session.query(
                b"select pg_relation_size($1)", entries_table(self.id, self.segment).decode()
            )
            self.filled = int(size[0][0] or 0)
        advance = b"select headrace.advance($1, $2, $3, $4)"
        session.prepare(ADVANCE, advance, [INT4, TEXT, INT8, INT8])
        session.prepare(CHECK_STANDBYS, STANDBY_SETTINGS, [])
        if segments:
            self.prepare_insert(session)
        else:
            self.add_segment(session, self.durable + 1)

    def prepare_insert(self, session: PostgresSession) -> None:
        """Prepare the statement that cuts a part of an entry into rows."""
        statement = INSERT_PART % {
            b"table": entries_table(self.id, self.segment),
            b"row": ROW_BYTES,
        }
        session.prepare(self.insert_name(), statement, [INT8, INT4, BYTEA])

    def insert_name(self) -> bytes:
        """Return the name of the statement that inserts into the segment."""
        return INSERT + b"%d" % self.segment

    def add_segment(self, session: PostgresSession, number: int) -> None:
        """Create the segment that begins with the entry `number`."""
        query = b"select headrace.add_segment($1, $2, $3)"
        rows = session.query(query, self.id, self.owner_token, number)
        self.check_answer(session)
        self.segment, self.filled = int(rows[0][0] or 0), 0
        self.prepare_insert(session)

    def send_append(self, session: PostgresSession, number: int, data: bytes) -> None:
        """Send an append and the check of the standbys; wait for both answers."""
        session.warnings.clear()
        key = struct.pack(">q", number)
        fence = [
            struct.pack(">i", self.id),
            self.owner_token.encode(),
            struct.pack(">q", self.epoch),
            key,
        ]
        session.send(ADVANCE, fence)
        insert, view = self.insert_name(), memoryview(data)
        for offset in range(0, max(len(data), 1), STATEMENT_BYTES):
            row = struct.pack(">i", offset // ROW_BYTES)
            session.send(insert, [key, row, view[offset : offset + STATEMENT_BYTES]])
        session.sync()
        session.send(CHECK_STANDBYS, [])
        session.sync()
        try:
            session.answer()
        except StatementError:
            if not session.closed:
                session.answer()
            raise
        self.check_standbys(session, session.answer()[0])

    def repeat_append(self, session: PostgresSession, number: int) -> None:
        """Prove that an entry that the server has is durable, by a later commit.

        Raises:
            Fenced: another owner came in between.
            OSError: the entry may still be lost.
        """
        if not session.query(REPEAT, self.id, self.owner_token, self.epoch, number):
            raise Fenced(f"ledger {self.name!r}: another broker took it")
        self.check_answer(session)

    # --- Reading ----------------------------------------------------------------------------

    def read_entries(
        self, session: PostgresSession, after: int, last: int
    ) -> Sequence[tuple[int, bytes]]:
        """Return the next entries after a number: at least one, at most up to `last`.

        Raises:
            Gap: the server lacks the next entry.
        """
        if self.id == 0:
            self.find_or_create(session)
        segments = [
            (int(row[0] or 0), int(row[1] or 0)) for row in session.query(SEGMENTS, self.id)
        ]
        # The first entry of a segment may be in the previous segment: its append was in doubt.
        for segment in reversed([segment for segment, first in segments if first <= after + 1]):
            entries = self.read_segment(session, segment, after, last)
            if not entries or entries[0][0] != after + 1:
                continue
            for expected_number, (number, _) in enumerate(entries, after + 1):
                if number != expected_number:
                    raise Gap(
                        f"ledger {self.name!r} has no entry {expected_number}, but entry {number}"
                    )
            return entries
        raise Gap(f"ledger {self.name!r} has no entry {after + 1}, though its last is {last}")

    def read_segment(
        self, session: PostgresSession, segment: int, after: int, last: int
    ) -> Sequence[tuple[int, bytes]]:
        """Return the next entries of a segment after a number; none if it has no later entry."""
        limit = READ_ROWS
        while True:
            table = entries_table(self.id, segment)
            query = READ % {b"table": table, b"limit": limit}
            rows = session.query_binary(query, after, last)
            entries = list(join_entries(rows, cut=len(rows) == limit))
            if entries or len(rows) < limit:
                return entries
            limit *= 2  # The entry has more rows.


def join_entries(rows: Sequence[Row], *, cut: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the entries that rows make up; the last one only if the rows were not cut off.

    Raises:
        Gap: a row of an entry is missing.
    """
    number = 0
    parts: list[bytes] = []
    for row in rows:
        (entry_number,) = struct.unpack(">q", row[0] or b"")
        (part,) = struct.unpack(">i", row[1] or b"")
        if entry_number != number:
            if parts:
                yield number, b"".join(parts)
            number, parts = entry_number, []
        if part != len(parts):
            raise Gap(f"row {len(parts)} of entry {entry_number} of the ledger is missing")
        parts.append(row[2] or b"")
    if parts and not cut:
        yield number, b"".join(parts)
