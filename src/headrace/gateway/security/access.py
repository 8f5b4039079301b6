# SPDX-License-Identifier: Apache-2.0
"""Accounts and permissions.

Passwords are checked with argon2id on threads of their own, so that many logins at once do not
stall the event loop. A successful login is cached for a while under a keyed hash of its password,
so that many reconnecting clients cost little. An unknown user takes the same time and gets the same
answer as a wrong password. The mechanisms of `headrace.gateway.sasl` read names and passwords.
Permissions are RE2 expressions, which take linear time.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol

from headrace.gateway.security.audit import SILENT, Audit
from headrace.gateway.security.passwords import (
    DUMMY_HASH,
    is_foreign,
    rehash_password,
    verify_password,
)
from headrace.gateway.security.permissions import PERMISSIONS, Rights
from headrace.gateway.security.regex import PatternError, Search, compile_search, escape
from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer
from headrace.gateway.security.throttle import Throttle
from headrace.gateway.security.user import User
from headrace.model.policy.accounts import (
    Account,
    AccountError,
    Permission,
    Snapshot,
    TopicPermission,
)
from headrace.model.policy.name_patterns import foreign_form

log = logging.getLogger(__name__)

GUEST = "guest"
LOGIN_THREADS = 2
LOGIN_CACHE_MAX = 1024
LOGIN_CACHE_S = 300.0
VERDICTS_MAX = 4096  # Cached permission checks, some 1 MiB; a full cache is cleared.
TOPIC_VERDICTS_MAX = 4096
MATCH_ALL = (".*", "^.*", "^.*$", "^")  # Expressions that match every name.
DEFAULT_EXCHANGE = "amq.default"  # The name of the default exchange in permissions.


class Directory(Protocol):
    """Port of the directory of accounts; see `headrace.store.catalog.users`."""

    def snapshot(self) -> Snapshot:
        """Read all accounts, permissions, virtual hosts and rules."""

    def improve_password(self, previous_hash: str, account: Account) -> bool:
        """Store an account with a better hash, if the stored hash is still ``previous_hash``."""


class ForeignExpression(AccountError):
    """An expression with a form that RE2 lacks, such as look-behind."""


def check_permission(permission: Permission) -> None:
    """Raise AccountError if configure, write or read is not a regular expression."""
    for action in PERMISSIONS:
        check_pattern(action, permission.pattern(action))


def check_topic_permission(permission: TopicPermission) -> None:
    """Raise AccountError if write or read is not a regular expression."""
    for action in ("write", "read"):
        check_topic_pattern(action, permission.pattern(action))


def check_topic_pattern(action: str, pattern: str) -> None:
    """Check an expression for routing keys, as `check_pattern` does."""
    check_pattern(action, expand_pattern(pattern, "user", "vhost"))


def check_pattern(action: str, pattern: str) -> None:
    """Check the expression of a permission.

    Raises:
        ForeignExpression: RE2 lacks a form of it.
        AccountError: the pattern is not a regular expression.
    """
    try:
        compile_search(pattern)
    except PatternError as error:
        error_class = ForeignExpression if foreign_form(str(error)) else AccountError
        raise error_class(
            f"{action} '{pattern}' is not a valid regular expression: {error}"
        ) from None


def expand_pattern(pattern: str, user: str, vhost: str) -> str:
    """Return an expression for topics with its variables replaced by literal values."""
    return pattern.replace("{username}", escape(user)).replace("{vhost}", escape(vhost))


class Access(Rights):
    """Accounts and their permissions."""

    def __init__(
        self,
        directory: Directory,
        *,
        writer: Executor | None = None,
        secret: bytes = b"",
        guest_loopback_only: bool = True,
        audit: Audit = SILENT,
        throttle: Throttle | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """``writer`` runs writes to the directory; without it the password threads do."""
        self._directory = directory
        self._writer = writer
        self.guest_loopback_only = guest_loopback_only
        self.audit = audit
        self.throttle = Throttle() if throttle is None else throttle
        self._clock = clock
        self._wall_clock = wall_clock
        self._secret = os.urandom(32)
        # The key for the SCRAM salts of unknown users, which must be stable, as real salts are.
        self.strangers_secret = hmac.digest(secret or os.urandom(32), b"strangers", "sha256")
        self._login_cache: OrderedDict[bytes, float] = OrderedDict()
        self._verdicts: dict[tuple[str, str, str, str], bool] = {}
        self._topic_verdicts: dict[tuple[str, str, str, str, str], bool] = {}
        self._searches: dict[str, Search] = {}
        self._threads: ThreadPoolExecutor | None = None
        self.generation = 1  # Incremented by every change of accounts or permissions.
        self.snapshot = directory.snapshot()

    def close(self) -> None:
        """Stop the password threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def use_snapshot(self, snapshot: Snapshot) -> bool:
        """Use a new snapshot and clear the caches; return False if it equals the last."""
        if snapshot == self.snapshot:
            return False
        self.snapshot = snapshot
        self.generation += 1
        self._verdicts.clear()
        self._topic_verdicts.clear()
        self._searches.clear()
        return True

    # --- Accounts -------------------------------------------------------------------------------

    def account(self, name: str) -> Account | None:
        """Return the account of that name, or None."""
        return self.snapshot.accounts.get(name)

    def admit(self, name: str, peer: RemotePeer) -> User:
        """Return the user of that name, whom a mechanism has authenticated without a password.

        Raises:
            LoginRefused: the account does not exist, or may not log in from that address.
        """
        account = self.snapshot.accounts.get(name)
        if account is None:
            raise LoginRefused(f"there is no user {name!r}")
        if not self._may_come_from(name, peer.loopback):
            raise LoginRefused(f"user {name!r} may log in over loopback only")
        return User(self, account.name, account.tags, peer)

    def find_cached_login(self, name: str, password: bytes, peer: RemotePeer) -> User | None:
        """Return the user of a cached login with this password, or None."""
        account = self.snapshot.accounts.get(name)
        if account is None or not self._may_come_from(name, peer.loopback):
            return None
        key = self._key(account, password)
        until = self._login_cache.get(key)
        if until is None:
            return None
        if until < self._clock():
            del self._login_cache[key]
            return None
        return User(self, account.name, account.tags, peer)

    async def check_password(self, name: str, password: bytes, peer: RemotePeer) -> User:
        """Check a password on a thread, unless its login is cached; return the user.

        Raises:
            LoginRefused: the password is wrong, or the user may not log in from that address.
        """
        user = self.find_cached_login(name, password, peer)
        if user is not None:
            return user
        async with self.attempt(name, peer):
            return await self._check_password(name, password, peer)

    async def _check_password(self, name: str, password: bytes, peer: RemotePeer) -> User:
        account = self.snapshot.accounts.get(name)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(LOGIN_THREADS, thread_name_prefix="headrace-login")
        password_hash = account.password_hash if account is not None else DUMMY_HASH
        is_right = await asyncio.get_running_loop().run_in_executor(
            self._threads, verify_password, password_hash, password
        )
        if account is None:
            raise LoginRefused(f"there is no user {name!r}")
        if not is_right:
            raise LoginRefused(f"wrong password for user {name!r}")
        if self.snapshot.accounts.get(name) != account:
            raise LoginRefused(f"user {name!r} was changed during the login")
        user = self.admit(name, peer)
        if is_foreign(account.password_hash):
            account = await self._improve(account, password)
        self.cache_login(account, password)
        return user

    async def _improve(self, account: Account, password: bytes) -> Account:
        """Replace an imported RabbitMQ hash by an argon2id hash; return the stored account."""
        assert self._threads is not None
        loop = asyncio.get_running_loop()
        better = await loop.run_in_executor(self._threads, rehash_password, account, password)
        if better is None or self._threads is None:
            return account
        writer = self._writer or self._threads
        try:
            if not await loop.run_in_executor(
                writer, self._directory.improve_password, account.password_hash, better
            ):
                return account
        except AccountError as error:
            log.warning("the password hash of user %r stays as it is: %s", account.name, error)
            return account
        if self.snapshot.accounts.get(account.name) == account:
            self.snapshot.accounts[account.name] = better
        return better

    @contextlib.asynccontextmanager
    async def attempt(self, name: str, peer: RemotePeer) -> AsyncIterator[None]:
        """Delay a login after failed ones, and record its outcome.

        Raises:
            LoginRefused: too many logins failed.
        """
        wait_s = self.throttle.wait_s(peer.host, name)
        if wait_s is None:
            raise LoginRefused(f"too many logins from {peer.host} failed")
        if wait_s:
            await asyncio.sleep(wait_s)
        try:
            yield
        except Exception:
            self.throttle.record_failure(peer.host, name)
            raise
        self.throttle.record_success(peer.host, name)

    def cache_login(self, account: Account, password: bytes) -> None:
        """Cache a login whose password has been checked."""
        self._login_cache[self._key(account, password)] = self._clock() + LOGIN_CACHE_S
        while len(self._login_cache) > LOGIN_CACHE_MAX:
            self._login_cache.popitem(last=False)

    def _may_come_from(self, name: str, peer_is_loopback: bool) -> bool:
        return peer_is_loopback or name != GUEST or not self.guest_loopback_only

    def _key(self, account: Account, password: bytes) -> bytes:
        """Return the cache key of a login: a keyed hash, which differs after a new password."""
        parts = (account.name.encode(), account.password_hash.encode(), password)
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, text, hashlib.sha256)

    # --- Permissions ----------------------------------------------------------------------------

    def vhost_exists(self, name: str) -> bool:
        return name in self.snapshot.vhosts

    def may_open(self, user: str, vhost: str) -> bool:
        """Return True if the account has any permission in the virtual host."""
        return (user, vhost) in self.snapshot.permissions

    def user_may_open(self, user: User, vhost: str) -> bool:
        """Return True if a logged-in user has any permission in the virtual host."""
        if user.grants is None:
            return self.may_open(user.name, vhost)
        return not self.has_expired(user) and user.grants.may_open(vhost)

    def has_expired(self, user: User) -> bool:
        """Return True if a login has expired."""
        return user.expires_s is not None and self._wall_clock() >= user.expires_s

    def allowed(self, user: User, vhost: str, permission: str, name: str) -> bool:
        if user.grants is not None:
            if self.has_expired(user):
                return False
            return user.grants.allowed(vhost, permission, name or DEFAULT_EXCHANGE)
        key = (user.name, vhost, permission, name)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._check_account(user.name, vhost, permission, name or DEFAULT_EXCHANGE)
            if len(self._verdicts) >= VERDICTS_MAX:
                self._verdicts.clear()
            self._verdicts[key] = verdict
        return verdict

    def _check_account(self, user: str, vhost: str, permission: str, name: str) -> bool:
        permissions = self.snapshot.permissions.get((user, vhost))
        return permissions is not None and self._matches(
            permissions.pattern(permission), name, user
        )

    def topic_allowed(
        self, user: User, vhost: str, permission: str, exchange: str, routing_key: str
    ) -> bool:
        if user.grants is not None:
            if self.has_expired(user):
                return False
            return user.grants.topic_allowed(vhost, permission, exchange, routing_key)
        permissions = self.snapshot.topic_permissions.get((user.name, vhost, exchange))
        if permissions is None:
            return True  # The exchange has no topic permission.
        key = (user.name, vhost, permission, exchange, routing_key)
        verdict = self._topic_verdicts.get(key)
        if verdict is None:
            pattern = expand_pattern(permissions.pattern(permission), user.name, vhost)
            verdict = self._matches(pattern, routing_key, user.name)
            if len(self._topic_verdicts) >= TOPIC_VERDICTS_MAX:
                self._topic_verdicts.clear()
            self._topic_verdicts[key] = verdict
        return verdict

    def every_topic_allowed(self, user: User, vhost: str, permission: str, exchange: str) -> bool:
        if user.grants is not None:
            if self.has_expired(user):
                return False
            return user.grants.every_topic_allowed(vhost, permission, exchange)
        permissions = self.snapshot.topic_permissions.get((user.name, vhost, exchange))
        return permissions is None or permissions.pattern(permission) in MATCH_ALL

    def account_user(self, name: str) -> User | None:
        account = self.snapshot.accounts.get(name)
        return None if account is None else User(self, account.name, account.tags, RemotePeer())

    def _matches(self, pattern: str, name: str, user: str) -> bool:
        search = self._searches.get(pattern)
        try:
            if search is None:
                search = self._searches[pattern] = compile_search(pattern)
            return search(name) is not None
        except PatternError as error:  # Commands refuse such a pattern; other programs wrote it.
            log.error(
                "permission %r of user %r is not a valid regular expression: %s",
                pattern,
                user,
                error,
            )
            return False
