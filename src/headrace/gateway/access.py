# SPDX-License-Identifier: Apache-2.0
"""Logins and permissions.

Passwords are checked with argon2id on threads of their own, so that many logins at once do not
stall the event loop. A login that was right is remembered for a while under a keyed hash of its
password, so that a reconnecting crowd costs nothing. An unknown user costs the same time and gets
the same answer as a wrong password. Permissions are RE2 expressions, which take linear time.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import argon2
import re2

from headrace.model.users import Account, AccountError, Permission, Snapshot
from headrace.wire.errors import MalformedError
from headrace.wire.table import decode_table

log = logging.getLogger(__name__)

MECHANISMS = b"PLAIN AMQPLAIN"
RESPONSE_BYTES_MAX = 8192
PASSWORD_BYTES_MAX = 4096
GUEST = "guest"
LOGIN_THREADS = 2
LOGINS_REMEMBERED_MAX = 1024
LOGINS_REMEMBERED_S = 300.0
VERDICTS_MAX = 65536
PATTERN_CHARACTERS_MAX = 1024
PATTERN_BYTES_MAX = 1 << 20  # What RE2 may use for one compiled expression.
DEFAULT_EXCHANGE = "amq.default"  # What permissions call the exchange without a name.
NOTHING = r"[^\s\S]"  # Matches no name: what an empty permission means.

# RFC 9106 and OWASP: 19 MiB, two passes; some 25 ms.
_HASHER = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# The hash of a password that nobody has, checked for users that do not exist.
_NOBODY = (
    "$argon2id$v=19$m=19456,t=2,p=1$RWMRApVjw57DArp3mQNdgg"
    "$XNAvbm5MpLJYA7Q8S4/qCCU/0TDHnCJiy4EJGiUbOTg"
)


class LoginRefused(Exception):
    """The login is not accepted. The reason is for the log, not for the client."""


class Directory(Protocol):
    """Where accounts are kept; see `headrace.store.users`."""

    def snapshot(self) -> Snapshot:
        """Read everything."""

    def changed(self) -> bool:
        """Tell whether somebody else changed something."""


def hash_password(password: str) -> str:
    """Return the salted hash to keep instead of a password."""
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise AccountError(f"a password may not be longer than {PASSWORD_BYTES_MAX} octets")
    return _HASHER.hash(password)


def check_permission(permission: Permission) -> None:
    """Raise AccountError when one of the three is no regular expression."""
    for action in ("configure", "write", "read"):
        pattern = permission.pattern(action)
        try:
            _compile(pattern)
        except re2.error as error:
            raise AccountError(f"{action} '{pattern}' is no regular expression: {error}") from None


def _compile(pattern: str) -> Callable[[str], object]:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise re2.error(f"longer than {PATTERN_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    search: Callable[[str], object] = re2.compile(pattern or NOTHING, options).search
    return search


class User:
    """Somebody who has logged in. What they may do is looked up anew, so changes take effect."""

    __slots__ = ("_access", "name", "tags")

    def __init__(self, access: "Access", name: str, tags: tuple[str, ...]) -> None:
        self._access = access
        self.name = name
        self.tags = tags

    def may_open(self, vhost: str) -> bool:
        """Tell whether the user has any permission in the virtual host."""
        return self._access.may_open(self.name, vhost)

    def __repr__(self) -> str:
        return f"User({self.name!r})"


class Access:
    """Who may log in, and who may do what."""

    def __init__(
        self,
        directory: Directory,
        *,
        guest_loopback_only: bool = True,
        anonymous_user: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._guest_loopback_only = guest_loopback_only
        self._anonymous_user = anonymous_user  # As whom clients log in by ANONYMOUS; empty: none.
        self._clock = clock
        self._secret = os.urandom(32)
        self._remembered: OrderedDict[bytes, float] = OrderedDict()
        self._verdicts: dict[tuple[str, str, str, str], bool] = {}
        self._searches: dict[str, Callable[[str], object]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self.generation = 1  # Bumped by every change.
        self.snapshot = directory.snapshot()

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def refresh(self) -> bool:
        """Read the accounts again if somebody changed them; tell whether they are different."""
        if not self._directory.changed():
            return False
        snapshot = self._directory.snapshot()
        if snapshot == self.snapshot:
            return False
        self.snapshot = snapshot
        self.generation += 1
        self._verdicts.clear()
        self._searches.clear()
        return True

    # --- Logins ---------------------------------------------------------------------------------

    def recall(self, mechanism: str, response: bytes, peer_is_loopback: bool) -> User | None:
        """Return the user of a login that was right a short while ago; None: ask `authenticate`.

        Raises:
            LoginRefused: the response is malformed.
        """
        if mechanism == "ANONYMOUS":
            return self._anonymous(peer_is_loopback)
        name, password = read_response(mechanism, response)
        account = self.snapshot.accounts.get(name)
        if account is None or not self._may_come_from(name, peer_is_loopback):
            return None
        key = self._key(account, password)
        until = self._remembered.get(key)
        if until is None:
            return None
        if until < self._clock():
            del self._remembered[key]
            return None
        return User(self, account.name, account.tags)

    async def authenticate(self, mechanism: str, response: bytes, peer_is_loopback: bool) -> User:
        """Return the user that a SASL response proves, checking the password on a thread.

        Raises:
            LoginRefused: it proves nobody.
        """
        user = self.recall(mechanism, response, peer_is_loopback)
        if user is not None:
            return user
        name, password = read_response(mechanism, response)
        account = self.snapshot.accounts.get(name)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(LOGIN_THREADS, thread_name_prefix="headrace-login")
        known = account.password_hash if account is not None else _NOBODY
        right = await asyncio.get_running_loop().run_in_executor(
            self._threads, verify_password, known, password
        )
        if account is None:
            raise LoginRefused(f"there is no user {name!r}")
        if not right:
            raise LoginRefused(f"wrong password for user {name!r}")
        if self.snapshot.accounts.get(name) != account:
            raise LoginRefused(f"user {name!r} was changed during the login")
        if not self._may_come_from(name, peer_is_loopback):
            raise LoginRefused(f"user {name!r} may log in over loopback only")
        self.remember(account, password)
        return User(self, account.name, account.tags)

    def remember(self, account: Account, password: bytes) -> None:
        """Spare the next login with this password the work; the password is known to be right."""
        self._remembered[self._key(account, password)] = self._clock() + LOGINS_REMEMBERED_S
        while len(self._remembered) > LOGINS_REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _anonymous(self, peer_is_loopback: bool) -> User:
        account = self.snapshot.accounts.get(self._anonymous_user)
        if account is None or not self._may_come_from(account.name, peer_is_loopback):
            raise LoginRefused("nobody may log in without a name")
        return User(self, account.name, account.tags)

    def _may_come_from(self, name: str, peer_is_loopback: bool) -> bool:
        return peer_is_loopback or name != GUEST or not self._guest_loopback_only

    def _key(self, account: Account, password: bytes) -> bytes:
        """The name of a login in memory: worthless without the secret, void with a new password."""
        parts = (account.name.encode(), account.password_hash.encode(), password)
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, text, hashlib.sha256)

    # --- Permissions ----------------------------------------------------------------------------

    def vhost_exists(self, name: str) -> bool:
        """Tell whether there is such a virtual host."""
        return name in self.snapshot.vhosts

    def may_open(self, user: str, vhost: str) -> bool:
        """Tell whether the user has any permission in the virtual host."""
        return (user, vhost) in self.snapshot.permissions

    def allowed(self, user: User, vhost: str, action: str, name: str) -> bool:
        """Tell whether the user may ``configure``, ``write`` to or ``read`` from the name."""
        key = (user.name, vhost, action, name)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._judge(user.name, vhost, action, name or DEFAULT_EXCHANGE)
            if len(self._verdicts) >= VERDICTS_MAX:
                self._verdicts.clear()
            self._verdicts[key] = verdict
        return verdict

    def _judge(self, user: str, vhost: str, action: str, name: str) -> bool:
        permission = self.snapshot.permissions.get((user, vhost))
        if permission is None:
            return False
        pattern = permission.pattern(action)
        search = self._searches.get(pattern)
        try:
            if search is None:
                search = self._searches[pattern] = _compile(pattern)
            return search(name) is not None
        except re2.error as error:  # Written by somebody other than our commands.
            log.error("permission '%s' of user '%s' is no expression: %s", pattern, user, error)
            return False


def verify_password(password_hash: str, password: bytes) -> bool:
    """Tell whether a password is the one that was hashed."""
    try:
        return _HASHER.verify(password_hash, password)
    except argon2.exceptions.VerificationError:
        return False
    except argon2.exceptions.InvalidHash:
        log.error("a user's password hash cannot be read; set the password again")
        return False


def read_response(mechanism: str, response: bytes) -> tuple[str, bytes]:
    """Return name and password out of a SASL response.

    Raises:
        LoginRefused: it is malformed.
    """
    if len(response) > RESPONSE_BYTES_MAX:
        raise LoginRefused(f"a SASL response of {len(response)} octets is too long")
    if mechanism == "PLAIN":
        raw, password = _read_plain(response)
    elif mechanism == "AMQPLAIN":
        raw, password = _read_amqplain(response)
    else:
        raise LoginRefused("unknown mechanism")
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise LoginRefused("the name of the user is not UTF-8") from None
    if not name or len(raw) > 255 or len(password) > PASSWORD_BYTES_MAX:
        raise LoginRefused("name or password is empty or too long")
    return name, password


def _read_plain(response: bytes) -> tuple[bytes, bytes]:
    """RFC 4616: authorization identity, NUL, authentication identity, NUL, password."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise LoginRefused("malformed PLAIN response")
    if parts[0] and parts[0] != parts[1]:
        raise LoginRefused("PLAIN asks to act as another user")
    return parts[1], parts[2]


def _read_amqplain(response: bytes) -> tuple[bytes, bytes]:
    """A field table without its size, holding LOGIN and PASSWORD."""
    try:
        table, _ = decode_table(len(response).to_bytes(4, "big") + response)
    except MalformedError:
        raise LoginRefused("malformed AMQPLAIN response") from None
    name, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(name, str | bytes) or not isinstance(password, str | bytes):
        raise LoginRefused("AMQPLAIN response without LOGIN and PASSWORD")
    raw = name.encode() if isinstance(name, str) else name
    return raw, password.encode() if isinstance(password, str) else password
