# SPDX-License-Identifier: Apache-2.0
"""Users who have logged in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.gateway.security.remote_peer import RemotePeer
    from headrace.model.policy.accounts import Account


class Accounts(Protocol):
    """Port of the accounts, for users; see `headrace.gateway.security.access.Access`."""

    def account(self, name: str) -> Account | None:
        """Return the account of that name, if there is one."""

    def user_may_open(self, user: User, vhost: str) -> bool:
        """Return True if a logged-in user has any permission in the virtual host."""


class Grants(Protocol):
    """Permissions that a login has in place of its account's, such as a token's."""

    def may_open(self, vhost: str) -> bool:
        """Return True if there is any right in the virtual host."""

    def allowed(self, vhost: str, permission: str, name: str) -> bool:
        """As `Access.allowed`."""

    def topic_allowed(self, vhost: str, permission: str, exchange: str, routing_key: str) -> bool:
        """As `Access.topic_allowed`."""

    def every_topic_allowed(self, vhost: str, permission: str, exchange: str) -> bool:
        """As `Access.every_topic_allowed`."""


class User:
    """A logged-in user. Permissions are looked up at each use, so changes take effect."""

    __slots__ = ("_accounts", "expires_s", "grants", "name", "peer", "source", "tags")

    def __init__(
        self,
        accounts: Accounts,
        name: str,
        tags: tuple[str, ...],
        peer: RemotePeer,
        *,
        grants: Grants | None = None,
        source: str = "",
        expires_s: float | None = None,
    ) -> None:
        """``grants`` takes the place of the account's permissions, ``expires_s`` is Unix time."""
        self._accounts = accounts
        self.name = name
        self.tags = tags
        self.peer = peer
        self.grants = grants
        self.source = source  # The issuer of the name; empty: our own accounts.
        self.expires_s = expires_s

    def may_open(self, vhost: str) -> bool:
        """Return True if the user has any permission in the virtual host."""
        return self._accounts.user_may_open(self, vhost)

    def is_known(self) -> bool:
        """Return True if the account still exists; a login with a token needs none."""
        return self.grants is not None or self._accounts.account(self.name) is not None

    def same_as(self, other: User) -> bool:
        """Return True if both are the same person: one may take over what the other owns."""
        return (self.source, self.name) == (other.source, other.name)

    def __repr__(self) -> str:
        return f"User({self.name!r})"
