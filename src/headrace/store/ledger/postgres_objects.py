# SPDX-License-Identifier: Apache-2.0
"""Objects of a ledger in PostgreSQL: rows of parts, and one more row once all parts are stored.

The last statement of a change locks the row of the ledger, so it fails for an earlier owner, and
its commit waits for a standby even when it repeats an earlier change.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from headrace.store.ledger.port import Fenced
from headrace.store.ledger.postgres_session import BYTEA, INT4, TEXT

if TYPE_CHECKING:
    from headrace.store.ledger.port import BytesLike
    from headrace.store.ledger.postgres_access import LedgerAccess

PUT = b"object_part"  # Name of the statement.
PUT_PART = b"select headrace.put_part($1, $2, $3, $4, $5)"
COMPLETE = b"select headrace.complete_object($1, $2, $3, $4)"
REMOVE = b"select headrace.remove_object($1, $2, $3)"
SWEEP = b"select headrace.sweep_objects($1, $2)"
SIZES = b"select name, size from headrace.object where log = $1"
PART = b"select octets from headrace.object_part where log = $1 and name = $2 and part = $3"


class PostgresObjects:
    """The objects of one ledger (see `Objects`).

    Calls come from the ledger's thread, because they use its session.
    """

    def __init__(self, ledger: LedgerAccess) -> None:
        self.ledger = ledger

    def sizes(self) -> dict[str, int]:
        """Return the complete objects; see `Objects`."""
        with self.ledger.session() as session:
            if self.ledger.id == 0:
                self.ledger.find_or_create(session)
            rows = session.query(SIZES, self.ledger.id)
        return {str(name or b"", "utf-8"): int(size or 0) for name, size in rows}

    def part(self, name: str, number: int) -> bytes | None:
        """Return a part of an object; see `Objects`."""
        with self.ledger.session() as session:
            rows = session.query_binary(PART, self.ledger.id, name, number)
        return (rows[0][0] or b"") if rows else None

    def put(self, name: str, number: int, data: BytesLike) -> None:
        """Add a part; see `Objects`."""
        ledger = self.ledger
        self.check_owner()
        with ledger.session() as session:
            session.prepare(PUT, PUT_PART, [INT4, TEXT, TEXT, INT4, BYTEA])
            session.warnings.clear()
            key = [struct.pack(">i", ledger.id), ledger.owner_token.encode(), name.encode()]
            session.send(PUT, [*key, struct.pack(">i", number), data])
            session.sync()
            session.answer()
            ledger.check_answer(session)

    def complete(self, name: str, size: int) -> None:
        """Make the stored parts an object; see `Objects`."""
        self.change(COMPLETE, name, size)

    def remove(self, name: str) -> None:
        """Remove an object; see `Objects`."""
        self.change(REMOVE, name)

    def sweep(self) -> None:
        """Remove the parts that belong to no object; see `Objects`."""
        self.change(SWEEP)

    def close(self) -> None:
        """Release the connection."""
        self.ledger.close()

    def change(self, statement: bytes, *values: str | int) -> None:
        """Run a statement that only the owner may run; return when a standby has its commit."""
        self.check_owner()
        with self.ledger.session() as session:
            session.query(statement, self.ledger.id, self.ledger.owner_token, *values)
            self.ledger.check_answer(session)

    def check_owner(self) -> None:
        """Raise Fenced if this broker does not own the ledger."""
        if self.ledger.epoch == 0:
            raise Fenced(f"ledger {self.ledger.name!r} was not taken by {self.ledger.owner!r}")
