# SPDX-License-Identifier: Apache-2.0
"""Change notes: which command changed users, permissions or parameters.

Commands such as ``headrace user add`` change the data directory whether or not a broker runs on it.
Before the first change of a command a note of the user and the command is stored, and afterwards
whether it was refused. The broker removes the notes for its audit log when it sees the changes, or
at its next start. Their number is bounded; the oldest are dropped.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import NamedTuple

ACTS_MAX = 10_000
TEXT_CHARACTERS_MAX = 1024


class ChangeNote(NamedTuple):
    """A command that changed something, or was refused."""

    at_ms: int  # Wall clock.
    who: str  # The system user.
    place: str  # The process.
    what: str  # The command.
    reason: str  # Why it was refused; empty if it was not.


class ChangeNotes:
    """The notes in one file."""

    def __init__(self, db: sqlite3.Connection, command: str = "") -> None:
        """``command`` is the present command; a broker has none."""
        self._db = db
        self._command = command
        self._noted = False

    def begin(self) -> None:
        """Note the command, if there is one, before its first change.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        if self._command and not self._noted:
            self._noted = True
            self._note("")

    def refuse(self, reason: str) -> None:
        """Note that the command was refused; ignores errors."""
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
