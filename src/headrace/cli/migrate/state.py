# SPDX-License-Identifier: Apache-2.0
"""How far a migration is, in a file beside it, so that it can be interrupted anywhere.

What was taken over is the new broker's to say: it remembers the highest publishing id of each
queue's migration, durably with the message. This file only says what the last messages were that
were sent, by a digest, so that those which the old broker delivers once more are known again.
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

DIGEST_OCTETS = 16
KEPT = 4096  # Digests of each queue; more than can be under way.

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
    """The file cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a queue was when its migration began."""

    base: int  # The id of the first message.
    source_first: int  # How many messages the old queue had,
    target_first: int  # and how many the new one.


class State:
    """The file. Used by one program at a time."""

    def __init__(self, path: Path) -> None:
        """Open the file, made if need be.

        Raises:
            StateError: it cannot be used.
        """
        self._path = path
        try:
            self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(f"BEGIN IMMEDIATE;{TABLES}COMMIT;")
        except sqlite3.Error as error:
            raise StateError(f"{path}: {error}") from None

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def start(self, publisher: str) -> Start | None:
        """Return how a queue was when its migration began; None when it has not."""
        row = self._db.execute(
            "SELECT base, source_first, target_first FROM queues WHERE publisher = ?", (publisher,)
        ).fetchone()
        return None if row is None else Start(*row)

    def begin(self, publisher: str, start: Start) -> None:
        """Note that a migration begins."""
        self._db.execute(
            "INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?)",
            (publisher, start.base, start.source_first, start.target_first),
        )

    def finish(self, publisher: str) -> None:
        """Forget a migration that is complete: the next of this queue begins anew."""
        self._db.execute("DELETE FROM sent WHERE publisher = ?", (publisher,))
        self._db.execute("DELETE FROM queues WHERE publisher = ?", (publisher,))

    def sending(self, publisher: str, messages: Iterable[tuple[int, bytes]]) -> None:
        """Note ids and digests of messages that are about to be sent."""
        rows = [(publisher, number, digest) for number, digest in messages]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO sent VALUES (?, ?, ?)", rows)
            self._db.execute(
                "DELETE FROM sent WHERE publisher = ? AND id < ?", (publisher, rows[-1][1] - KEPT)
            )
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StateError(f"{self._path}: {error}") from None

    def sent(self, publisher: str, first: int, last: int) -> list[bytes]:
        """Return the digests of ids [first, last]; fewer when not all are known."""
        rows = self._db.execute(
            "SELECT digest FROM sent WHERE publisher = ? AND id BETWEEN ? AND ? ORDER BY id",
            (publisher, first, last),
        )
        return [digest for (digest,) in rows]


def digest_of(message: Message) -> bytes:
    """Return a digest of body, properties and headers."""
    facts = (
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
    state = hashlib.blake2b(repr(facts).encode(), digest_size=DIGEST_OCTETS)
    state.update(message.body)
    return state.digest()
