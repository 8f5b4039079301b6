# SPDX-License-Identifier: Apache-2.0
"""Events of changes by a command name its user, even when the note comes long before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from headrace.server.observe.account_events import AT_WORK_MS_MAX, Operator, Operators
from headrace.store.catalog.change_notes import ChangeNote
from headrace.store.catalog.users import UserDirectory

if TYPE_CHECKING:
    from pathlib import Path

ADA, BOB = Operator("ada", "process 1"), Operator("bob", "process 2")
GUEST = Operator("guest", "")


class Notes:
    """The notes of commands, and an audit log of those that were found."""

    active = True

    def __init__(self) -> None:
        self.left: list[ChangeNote] = []
        self.told: list[str] = []

    def pop_all(self) -> list[ChangeNote]:
        taken, self.left = self.left, []
        return taken

    def record(self, what: str, **facts: Any) -> None:
        self.told.append(f"{facts['user']} {facts['reason']}".strip())


@pytest.fixture
def notes() -> Notes:
    return Notes()


def look(
    operators: Operators, notes: Notes, *who: Operator, now: int = 0, reason: str = ""
) -> None:
    """Find a note of each of these."""
    notes.left = [ChangeNote(now, *one, "command", reason) for one in who]
    operators.record(notes.pop_all(), notes, now)  # type: ignore[arg-type]


def test_a_note_and_its_change_at_two_looks(notes: Notes) -> None:
    operators = Operators()
    look(operators, notes, ADA)
    look(operators, notes, now=1000)
    look(operators, notes, now=2000)
    assert operators.take_actor(None) == ADA
    assert operators.take_actor(None) is None  # It is told once.
    assert notes.told == ["ada"]


def test_who_made_a_note_at_this_look_comes_first(notes: Notes) -> None:
    operators = Operators()
    look(operators, notes, ADA)
    look(operators, notes, BOB)
    assert operators.take_actor(None) == BOB
    look(operators, notes)
    assert operators.take_actor(None) == ADA


def test_one_of_several_notes_is_ambiguous_and_a_known_user_is_asked_for(notes: Notes) -> None:
    operators = Operators()
    look(operators, notes, ADA, BOB)
    assert operators.take_actor(GUEST) == GUEST
    look(operators, notes, ADA)
    look(operators, notes, BOB)
    look(operators, notes)
    assert operators.take_actor(GUEST) == GUEST
    assert operators.take_actor(None) is None


def test_who_was_refused_or_takes_too_long_changes_nothing(notes: Notes) -> None:
    operators = Operators()
    look(operators, notes, ADA)
    look(operators, notes, ADA, reason="it exists")
    look(operators, notes, BOB)
    look(operators, notes, now=AT_WORK_MS_MAX)
    assert operators.take_actor(None) is None
    assert notes.told == ["ada", "ada it exists", "bob"]


def test_a_look_between_the_note_of_a_command_and_its_change(tmp_path: Path, notes: Notes) -> None:
    operators = Operators()
    mine = UserDirectory(tmp_path)
    command = UserDirectory(tmp_path, "vhost add name='lab'")
    command.begin()
    operators.record(mine.notes.pop_all(), notes, 0)  # type: ignore[arg-type]
    command.add_vhost("lab")
    operators.record(mine.notes.pop_all(), notes, 0)  # type: ignore[arg-type]
    assert operators.take_actor(None).name == f"system user {os.getuid()}"
    for one in (mine, command):
        one.close()
