# SPDX-License-Identifier: Apache-2.0
"""The keys that tokens are signed with: a JSON Web Key Set (RFC 7517), which is read regularly."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

import jwt

if TYPE_CHECKING:
    from jwt.algorithms import AllowedPublicKeys

log = logging.getLogger(__name__)

KEYS_MAX = 64  # The maximum keys of one set.
RETRY_S = 30.0  # Minimum time between reads for an unknown key, or after a failure.
STALE_S_MAX = 86400.0  # The time for which keys stay valid when they cannot be read again.


class NoKey(Exception):
    """No key can check a token."""


class Key(NamedTuple):
    """A public key of an issuer that verifies the signatures of its tokens."""

    kid: str
    algorithm: str  # The only algorithm that the key may be used for; empty: any of its type.
    key: AllowedPublicKeys


class Keys:
    """A set of keys, from a file or an address."""

    def __init__(
        self,
        load: Callable[[], Awaitable[bytes]],
        *,
        fresh_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``load`` reads the set; it is used for ``fresh_s`` seconds before it is read again."""
        self._load = load
        self._fresh_s = fresh_s
        self._clock = clock
        self._keys: list[Key] = []
        self._must_load = True  # The set must be read before the next lookup.
        self._loaded_at: float | None = None
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()

    def renew(self, fresh_s: float) -> None:
        """Read the set again at the next lookup, and every ``fresh_s`` seconds."""
        self._fresh_s = fresh_s
        self._must_load = True
        self._tried_at = None

    async def find(self, kid: str | None) -> Key:
        """Return the key with an id; a token without an id has the only key.

        Raises:
            NoKey: no key has this id.
        """
        now_s = self._clock()
        if self._must_load or self._loaded_at is None or now_s - self._loaded_at >= self._fresh_s:
            await self._refresh()
        key = self._pick(kid)
        if key is None:
            await self._refresh()
            key = self._pick(kid)
        if key is None:
            raise NoKey(f"no key {kid!r} to check the token with")
        return key

    def _pick(self, kid: str | None) -> Key | None:
        if self._loaded_at is None or self._clock() - self._loaded_at > STALE_S_MAX:
            return None
        if kid is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.kid == kid), None)

    async def _refresh(self) -> None:
        """Read the set again, unless that was tried within `RETRY_S`."""
        async with self._lock:
            now_s = self._clock()
            if self._tried_at is not None and now_s - self._tried_at < min(RETRY_S, self._fresh_s):
                return
            self._tried_at = now_s
            try:
                self._keys = read_set(await self._load())
            except (OSError, ValueError) as error:
                log.error("the keys of tokens cannot be read: %s", error)
            else:
                self._loaded_at = now_s
                self._must_load = False


def read_set(text: bytes) -> list[Key]:
    """Read the keys for signatures in a set; keys of unknown types are skipped.

    Raises:
        ValueError: the text is not a JSON Web Key Set, or the set is too large.
    """
    try:
        entries = json.loads(text)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("not a JSON Web Key Set") from None
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        raise ValueError(f"a set of keys must have a list of at most {KEYS_MAX} keys")
    keys = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(entry)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            log.warning("a key of tokens is passed over: %s", type(error).__name__)
            continue
        keys.append(Key(str(entry.get("kid", "")), str(entry.get("alg", "")), key.key))
    return keys
