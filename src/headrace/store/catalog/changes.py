# SPDX-License-Identifier: Apache-2.0
"""A set of changes of users, virtual hosts, permissions and parameters: all or none."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.model.policy.accounts import AccountError
from headrace.store.catalog.database import transaction
from headrace.store.catalog.parameters import check_room as check_parameters

if TYPE_CHECKING:
    from headrace.model.policy.accounts import Account, Permission, TopicPermission
    from headrace.model.policy.parameters import Json, Key


@dataclass(slots=True)
class Changes:
    """The objects to add or replace, by name."""

    vhosts: dict[str, None] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    # Permissions by user and virtual host.
    permissions: dict[tuple[str, str], Permission] = field(default_factory=dict)
    parameters: dict[Key, Json] = field(default_factory=dict)
    # Topic permissions by user, virtual host and exchange.
    topic_permissions: dict[tuple[str, str, str], TopicPermission] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(
            (
                self.vhosts,
                self.accounts,
                self.permissions,
                self.parameters,
                self.topic_permissions,
            )
        )


def change(db: sqlite3.Connection, changes: Changes) -> None:
    """Make all changes in one transaction; the caller has checked the names.

    Raises:
        AccountError: the file cannot be written, or a change refers to something missing.
    """
    try:
        with transaction(db, "IMMEDIATE"):
            db.executemany(
                "INSERT OR IGNORE INTO vhosts (name) VALUES (?)",
                [(name,) for name in changes.vhosts],
            )
            db.executemany(
                "INSERT INTO users (name, password_hash, tags) VALUES (?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET password_hash = excluded.password_hash,"
                " tags = excluded.tags",
                [
                    (account.name, account.password_hash, " ".join(account.tags))
                    for account in changes.accounts.values()
                ],
            )
            db.executemany(
                "DELETE FROM scram_keys WHERE user = ?", [(name,) for name in changes.accounts]
            )
            db.executemany(
                "INSERT INTO scram_keys (user, iterations, salt, stored_key, server_key)"
                " VALUES (?, ?, ?, ?, ?)",
                [
                    (name, keys.iterations, keys.salt, keys.stored_key, keys.server_key)
                    for name, account in changes.accounts.items()
                    if (keys := account.scram) is not None
                ],
            )
            db.executemany(
                "INSERT OR REPLACE INTO permissions (user, vhost, configure, write, read)"
                " VALUES (?, ?, ?, ?, ?)",
                [
                    (*key, permission.configure, permission.write, permission.read)
                    for key, permission in changes.permissions.items()
                ],
            )
            db.executemany(
                "INSERT OR REPLACE INTO topic_permissions (user, vhost, exchange, write, read)"
                " VALUES (?, ?, ?, ?, ?)",
                [
                    (*key, permission.write, permission.read)
                    for key, permission in changes.topic_permissions.items()
                ],
            )
            db.executemany(
                "INSERT OR REPLACE INTO parameters VALUES (?, ?, ?, ?)",
                [
                    (*key, json.dumps(value, allow_nan=False, sort_keys=True))
                    for key, value in changes.parameters.items()
                ],
            )
            if changes.parameters:
                check_parameters(db)
    except sqlite3.Error as error:
        raise AccountError(f"definitions cannot be written: {error}") from None
