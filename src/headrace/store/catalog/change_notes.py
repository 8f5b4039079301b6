# SPDX-License-Identifier: Apache-2.0
"""Change notes: which command changed users, permissions or parameters.

Commands such as ``headrace user add`` change the data directory whether or not a broker runs on it.
Before the first change a command stores a note of the user and the command, and another note if the
change is refused. The broker moves the notes to its audit log when it sees the changes, or at its
next start. The number of notes is bounded; the oldest are deleted first.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import NamedTuple

ACTS_MAX = 10_000
TEXT_CHARACTERS_MAX = 1024


class ChangeNote(NamedTuple):
    """A command that changed a definition, or was refused."""

    at_ms: int  # Wall clock.
    who: str  # The system user.
    place: str  # The process.
    what: str  # The command.
    reason: str  # Why the command was refused; empty if it succeeded.


class ChangeNotes:
    """The notes in one file."""

    def __init__(self, db: sqlite3.Connection, command: str = "") -> None:
        """``command`` is the running command; empty for a broker."""
        self._db = db
        self._command = command
        self._noted = False

    def begin(self) -> None:
        """Store a note of the command, if there is one, before its first change.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        if self._command and not self._noted:
            self._noted = True
            self._note("")

    def refuse(self, reason: str) -> None:
        """Store a note that the command was refused; database errors are ignored."""
        if self._noted:
            try:
                self._note(reason)
            except sqlite3.Error:
                return  # The command itself reports its failure.

    def _note(self, reason: str) -> None:
        self._db.execute(
            "INSERT INTO acts (at_ms, who, place, what, reason) VALUES (?, ?, ?, ?, ?)",
            (
                time.time_ns() // 1_000_000,
                f"system user {os.getuid()}",
                f"process {os.getpid()}",
                self._command[:TEXT_CHARACTERS_MAX],
                reason[:TEXT_CHARACTERS_MAX],
            ),
        )
        self._db.execute("DELETE FROM acts WHERE id <= (SELECT max(id) FROM acts) - ?", (ACTS_MAX,))

    def pop_all(self) -> list[ChangeNote]:
        """Remove and return all notes in order.

        Raises:
            sqlite3.Error: the file cannot be read or written.
        """
        rows = self._db.execute(
            "SELECT id, at_ms, who, place, what, reason FROM acts ORDER BY id"
        ).fetchall()
        if rows:
            self._db.execute("DELETE FROM acts WHERE id <= ?", (rows[-1][0],))
        return [ChangeNote(*row[1:]) for row in rows]
