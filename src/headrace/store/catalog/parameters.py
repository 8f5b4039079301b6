# SPDX-License-Identifier: Apache-2.0
"""Parameters (:mod:`headrace.model.policy.parameters`) in SQLite, beside the users."""

import json
import sqlite3
from collections.abc import Iterable, Mapping

from headrace.model.policy.accounts import AccountError, check_name
from headrace.model.policy.parameters import EVERYWHERE, Json, Key
from headrace.store.catalog.change_notes import ChangeNotes
from headrace.store.catalog.database import transaction

VALUE_CHARACTERS_MAX = 1 << 20
CHARACTERS_MAX = 16 << 20  # Of all values and names of one virtual host.


class ParameterTable:
    """The parameters of one data directory; what changes them is durable when it returns."""

    def __init__(self, db: sqlite3.Connection, acts: ChangeNotes) -> None:
        """``acts`` notes who changes them."""
        self._db = db
        self._acts = acts

    def rows(self) -> dict[Key, Json]:
        """Read everything, within a transaction of the caller.

        Raises:
            AccountError: a value is not JSON.
        """
        rows = self._db.execute(
            "SELECT vhost, component, name, value FROM parameters ORDER BY vhost, component, name"
        )
        found = {}
        for vhost, component, name, value in rows:
            try:
                found[Key(vhost, component, name)] = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise AccountError(f"{component} '{name}' is damaged: {error}") from None
        return found

    def all(self) -> dict[Key, Json]:
        """Read everything, as of one moment.

        Raises:
            AccountError: it cannot be read.
        """
        try:
            with transaction(self._db):
                return self.rows()
        except sqlite3.Error as error:
            raise AccountError(str(error)) from None

    def set(self, vhost: str, component: str, name: str, value: Json) -> None:
        """Keep a value, in place of one that was there.

        Raises:
            AccountError: there is no such virtual host, or the value cannot be kept.
        """
        self.change({Key(vhost, component, name): value})

    def clear(self, vhost: str, component: str, name: str) -> None:
        """Forget a value.

        Raises:
            AccountError: there is none.
        """
        try:
            self._acts.begin()
            gone = self._db.execute(
                "DELETE FROM parameters WHERE vhost = ? AND component = ? AND name = ?",
                (vhost, component, name),
            ).rowcount
        except sqlite3.Error as error:
            raise AccountError(str(error)) from None
        if not gone:
            where = f" in virtual host '{vhost}'" if vhost else ""
            raise AccountError(f"there is no {component} '{name}'{where}")

    def change(self, values: Mapping[Key, Json], gone: Iterable[Key] = ()) -> None:
        """Keep and forget many at once: all, or none of them.

        Raises:
            AccountError: a virtual host does not exist, or a value cannot be kept.
        """
        rows = [(*key, _encoded(key, value)) for key, value in values.items()]
        try:
            self._acts.begin()
            with transaction(self._db, "IMMEDIATE"):
                known = {name for (name,) in self._db.execute("SELECT name FROM vhosts")}
                for key in values:
                    if key.vhost != EVERYWHERE and key.vhost not in known:
                        raise AccountError(f"there is no virtual host '{key.vhost}'")
                self._db.executemany(
                    "DELETE FROM parameters WHERE vhost = ? AND component = ? AND name = ?", gone
                )
                self._db.executemany("INSERT OR REPLACE INTO parameters VALUES (?, ?, ?, ?)", rows)
                check_room(self._db)
        except sqlite3.Error as error:
            raise AccountError(str(error)) from None


def check_room(db: sqlite3.Connection) -> None:
    """Refuse more parameters than a virtual host, or the whole broker, may have.

    Raises:
        AccountError: the transaction of the caller must not be.
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


def _encoded(key: Key, value: Json) -> str:
    """The text of a value, if name and value can be kept."""
    check_name("component", key.component)
    check_name(key.component, key.name)
    try:
        text = json.dumps(value, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise AccountError(f"{key.component} '{key.name}' is no JSON: {error}") from None
    if len(text) > VALUE_CHARACTERS_MAX:
        raise AccountError(
            f"{key.component} '{key.name}' is longer than {VALUE_CHARACTERS_MAX} characters"
        )
    return text
