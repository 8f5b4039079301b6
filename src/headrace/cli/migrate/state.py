# SPDX-License-Identifier: Apache-2.0
"""State of a migration in a file, so that it can be interrupted anywhere.

The new broker keeps the highest publishing id of each queue's migration, durably with the message.
This file has digests of the last messages sent, by which redelivered ones are recognised.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client import Message

DIGEST_SIZE = 16  # Bytes.
DIGESTS_MAX = 4096  # Recorded digests of each queue; more than can be unacked.

TABLES = """
CREATE TABLE IF NOT EXISTS queues (
    publisher TEXT PRIMARY KEY,
    base INTEGER NOT NULL,
    source_first INTEGER NOT NULL,
    target_first INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS sent (
    publisher TEXT NOT NULL,
    id INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (publisher, id)
) STRICT, WITHOUT ROWID;
"""


class StateError(Exception):
    """The file cannot be used; the text has the reason."""


@dataclass(frozen=True, slots=True)
class MigrationStart:
    """State of a queue when its migration began."""

    base: int  # The id of the first message.
    source_first: int  # Messages of the old queue at the beginning.
    target_first: int  # Messages of the new queue at the beginning.


class MigrationState:
    """The state file of a migration, locked for one process."""

    def __init__(self, path: Path) -> None:
        """Open the file; create it if it is missing.

        Raises:
            StateError: the file cannot be used.
        """
        self._path = path
        try:
            self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
        except sqlite3.Error as error:
            raise StateError(f"{path}: {error}") from None
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(f"BEGIN IMMEDIATE;{TABLES}COMMIT;")
        except sqlite3.Error as error:
            self._db.close()
            raise StateError(f"{path}: {error}") from None

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def start(self, publisher: str) -> MigrationStart | None:
        """Return the state of a queue when its migration began; None if it has not."""
        row = self._db.execute(
            "SELECT base, source_first, target_first FROM queues WHERE publisher = ?", (publisher,)
        ).fetchone()
        return None if row is None else MigrationStart(*row)

    def begin(self, publisher: str, start: MigrationStart) -> None:
        """Record the start of a migration."""
        self._db.execute(
            "INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?)",
            (publisher, start.base, start.source_first, start.target_first),
        )

    def finish(self, publisher: str) -> None:
        """Forget a complete migration, so that the next one starts from the beginning."""
        self._db.execute("DELETE FROM sent WHERE publisher = ?", (publisher,))
        self._db.execute("DELETE FROM queues WHERE publisher = ?", (publisher,))

    def record_sent(self, publisher: str, messages: Iterable[tuple[int, bytes]]) -> None:
        """Record ids and digests of the messages that are sent next."""
        rows = [(publisher, number, digest) for number, digest in messages]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO sent VALUES (?, ?, ?)", rows)
            self._db.execute(
                "DELETE FROM sent WHERE publisher = ? AND id < ?",
                (publisher, rows[-1][1] - DIGESTS_MAX),
            )
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StateError(f"{self._path}: {error}") from None

    def sent_digests(self, publisher: str, first: int, last: int) -> list[bytes]:
        """Return the known digests of the ids from ``first`` to ``last``."""
        rows = self._db.execute(
            "SELECT digest FROM sent WHERE publisher = ? AND id BETWEEN ? AND ? ORDER BY id",
            (publisher, first, last),
        )
        return [digest for (digest,) in rows]


def message_digest(message: Message) -> bytes:
    """Return a digest of body, properties and headers."""
    fields = (
        sorted((name, repr(value)) for name, value in message.headers.items()),
        message.persistent,
        message.content_type,
        message.content_encoding,
        message.priority,
        message.correlation_id,
        message.reply_to,
        message.expiration,
        message.message_id,
        message.timestamp,
        message.type,
        message.user_id,
        message.app_id,
        message.cluster_id,
    )
    digest = hashlib.blake2b(repr(fields).encode(), digest_size=DIGEST_SIZE)
    digest.update(message.body)
    return digest.digest()
