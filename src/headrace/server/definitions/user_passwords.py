# SPDX-License-Identifier: Apache-2.0
"""Passwords of users in definitions, which are hashed before a plan is made.

A hash takes some 25 ms of processor time, so a running broker makes it on a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.gateway.security.passwords import make_account, verify_password
from headrace.model.policy.accounts import AccountError
from headrace.server.definitions.document import DocumentError
from headrace.server.definitions.export import hash_fields

if TYPE_CHECKING:
    from headrace.model.policy.accounts import Account

SECTION, PASSWORD, PASSWORD_HASH = "users", "password", "password_hash"


class UserPasswords:
    """Replaces passwords of elements by hashes; one object serves one import."""

    def __init__(self, accounts: Mapping[str, Account]) -> None:
        """``accounts`` are the existing ones, which keep the hash of an unchanged password."""
        self._accounts = accounts
        self._hashed: dict[tuple[str, str], Account] = {}  # New accounts by name and password.

    @staticmethod
    def needs_hash(section: str, value: object) -> bool:
        """Return True for an element with a password and no hash."""
        return (
            section == SECTION
            and isinstance(value, dict)
            and bool(value.get(PASSWORD))
            and not value.get(PASSWORD_HASH)
        )

    def replace_password(self, section: str, index: int, value: object) -> object:
        """Return an element with a hash in place of its password; other elements unchanged.

        A malformed element is unchanged, too, as the plan reports it.

        Raises:
            DocumentError: the password is too long.
        """
        if not isinstance(value, dict) or not self.needs_hash(section, value):
            return value
        name, password = value.get("name"), value[PASSWORD]
        if not isinstance(name, str) or not isinstance(password, str):
            return value
        try:
            account = self._hash_password(name, password)
        except UnicodeEncodeError:
            return value
        except AccountError as error:
            raise DocumentError(f"$.{SECTION}[{index}].{PASSWORD}", str(error)) from None
        kept = {field: item for field, item in value.items() if field != PASSWORD}
        return {**kept, **hash_fields(account, False)}

    def _hash_password(self, name: str, password: str) -> Account:
        """Return an account with the hash of a password: an existing or a new one."""
        existing = self._accounts.get(name)
        if existing is not None and verify_password(existing.password_hash, password.encode()):
            return existing
        account = self._hashed.get((name, password))
        if account is None:
            account = self._hashed[name, password] = make_account(name, password)
        return account
