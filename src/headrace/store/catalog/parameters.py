# SPDX-License-Identifier: Apache-2.0
"""Parameters (:mod:`headrace.model.policy.parameters`) in SQLite, in the database of the users."""

import json
import sqlite3
from collections.abc import Iterable, Mapping

from headrace.model.policy.accounts import AccountError, check_name
from headrace.model.policy.parameters import EVERYWHERE, Json, Key
from headrace.store.catalog.change_notes import ChangeNotes
from headrace.store.catalog.database import transaction

VALUE_CHARACTERS_MAX = 1 << 20
CHARACTERS_MAX = 16 << 20  # Values and names of one virtual host.


class ParameterTable:
    """The parameters of one data directory; changes are durable when a method returns."""

    def __init__(self, db: sqlite3.Connection, notes: ChangeNotes) -> None:
        """``notes`` stores the change notes of commands."""
        self._db = db
        self._notes = notes

    def rows(self) -> dict[Key, Json]:
        """Read all parameters inside the caller's transaction.

        Raises:
            AccountError: a value is not JSON.
        """
        rows = self._db.execute(
            "SELECT vhost, component, name, value FROM parameters ORDER BY vhost, component, name"
        )
        values = {}
        for vhost, component, name, value in rows:
            try:
                values[Key(vhost, component, name)] = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise AccountError(f"{component} '{name}' is damaged: {error}") from None
        return values

    def all(self) -> dict[Key, Json]:
        """Read all parameters in one transaction.

        Raises:
            AccountError: the parameters cannot be read.
        """
        try:
            with transaction(self._db):
                return self.rows()
        except sqlite3.Error as error:
            raise AccountError(str(error)) from None

    def set(self, vhost: str, component: str, name: str, value: Json) -> None:
        """Set a parameter.

        Raises:
            AccountError: the virtual host does not exist, or the value is invalid.
        """
        self.change({Key(vhost, component, name): value})

    def clear(self, vhost: str, component: str, name: str) -> None:
        """Remove a parameter.

        Raises:
            AccountError: the parameter does not exist.
        """
        try:
            self._notes.begin()
            removed_count = self._db.execute(
                "DELETE FROM parameters WHERE vhost = ? AND component = ? AND name = ?",
                (vhost, component, name),
            ).rowcount
        except sqlite3.Error as error:
            raise AccountError(str(error)) from None
        if not removed_count:
            scope = f" in virtual host '{vhost}'" if vhost else ""
            raise AccountError(f"there is no {component} '{name}'{scope}")

    def change(self, values: Mapping[Key, Json], removed: Iterable[Key] = ()) -> None:
        """Set and remove parameters, all or none.

        Raises:
            AccountError: a virtual host does not exist, or a value is invalid.
        """
        rows = [(*key, _encode(key, value)) for key, value in values.items()]
        try:
            self._notes.begin()
            with transaction(self._db, "IMMEDIATE"):
                vhosts = {name for (name,) in self._db.execute("SELECT name FROM vhosts")}
                for key in values:
                    if key.vhost != EVERYWHERE and key.vhost not in vhosts:
                        raise AccountError(f"there is no virtual host '{key.vhost}'")
                self._db.executemany(
                    "DELETE FROM parameters WHERE vhost = ? AND component = ? AND name = ?", removed
                )
                self._db.executemany("INSERT OR REPLACE INTO parameters VALUES (?, ?, ?, ?)", rows)
                check_room(self._db)
        except sqlite3.Error as error:
            raise AccountError(str(error)) from None


def check_room(db: sqlite3.Connection) -> None:
    """Check the size of all parameters, inside the caller's transaction.

    Raises:
        AccountError: a virtual host has too many; the transaction must be rolled back.
    """
    rows = db.execute(
        "SELECT vhost, sum(length(component) + length(name) + length(value)) FROM parameters "
        "GROUP BY vhost"
    )
    for vhost, characters in rows:
        if characters > CHARACTERS_MAX:
            whose = f"virtual host '{vhost}'" if vhost else "the whole broker"
            raise AccountError(
                f"parameters of {whose} would have {characters} characters, more than "
                f"{CHARACTERS_MAX}"
            )


def _encode(key: Key, value: Json) -> str:
    """Return a value as JSON; AccountError if the name or the value is invalid."""
    check_name("component", key.component)
    check_name(key.component, key.name)
    try:
        text = json.dumps(value, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise AccountError(f"{key.component} '{key.name}' is not valid JSON: {error}") from None
    if len(text) > VALUE_CHARACTERS_MAX:
        raise AccountError(
            f"{key.component} '{key.name}' is longer than {VALUE_CHARACTERS_MAX} characters"
        )
    return text
