# SPDX-License-Identifier: Apache-2.0
"""Deduplication: caches of the ids of accepted messages.

The id of a message is the value of a header, ``x-deduplication-header`` unless the arguments name
another one. A cache has a digest of each id, with its time of expiry. Beyond the size of the cache
the oldest id is removed. A cache that survives restarts consists of facts
(`headrace.model.keyvalue`). They change in the store transaction that enqueues the message, so that
a crash leaves both or neither.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from headrace.model.arguments.canonical import DIGEST_SIZE, canonical
from headrace.model.arguments.canonical import digest as canonical_digest
from headrace.model.arguments.exchange import one_of, string, switch, whole_number
from headrace.model.arguments.values import CACHE_SIZE_MAX, parse_integer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.arguments.values import Check
    from headrace.model.counters import Counters
    from headrace.model.keyvalue import Facts

ARGUMENT = "x-message-deduplication"
CACHE_SIZE = "x-cache-size"
CACHE_TTL = "x-cache-ttl"  # Milliseconds; as a header it counts for that message.
PERSISTENCE = "x-cache-persistence"
HEADER = "x-deduplication-header"  # An argument; also the default header.

SIZE_DEFAULT = 10_000  # Ids in a cache.
PERSISTENT_MAX = 50_000  # Ids in a cache that survives restarts: facts are bounded.
TTL_MAX = 0xFFFFFFFF  # About 49 days; with 0, ids stay until the cache is full.
WEIGHT = 250  # Bytes of memory counted for an id.
SWEEP = 4  # Ids checked for expiry whenever one is added.
PREFIX = b"dedup/"

ARGUMENTS: Mapping[str, Check] = {
    ARGUMENT: switch,
    CACHE_SIZE: whole_number(1, CACHE_SIZE_MAX),
    CACHE_TTL: whole_number(0, TTL_MAX),
    PERSISTENCE: one_of(("disk", "memory"), "\"unsupported persistence '{}'\""),
    HEADER: string,
}


class IdCache:
    """The ids of messages that one exchange or queue accepted, at most ``size_max``."""

    def __init__(
        self,
        arguments: Mapping[str, object],
        *,
        counters: Counters,
        facts: Facts | None,
        prefix: bytes,
    ) -> None:
        """``arguments`` were checked. Without ``facts`` no id survives a restart.

        ``prefix`` is the prefix of the keys of this cache's facts, and of no others.
        """
        self._counters = counters
        self._facts = facts if arguments.get(PERSISTENCE, "disk") == "disk" else None
        self._prefix = prefix
        self._size = parse_integer(arguments.get(CACHE_SIZE, SIZE_DEFAULT)) or SIZE_DEFAULT
        self._ttl_ms = parse_integer(arguments.get(CACHE_TTL, 0)) or 0
        self._header = str(arguments.get(HEADER, HEADER))
        # The number and the time of expiry (ms; 0 is never) of each digest.
        self._entries: dict[bytes, tuple[int, int]] = {}
        self._number = 0  # The number of the newest id.
        # Numbers of the ids that are facts, oldest first.
        self._persistent_numbers: dict[int, None] = {}
        if self._facts is not None:
            for key, value in self._facts.items(prefix):
                self._number = int.from_bytes(key[len(prefix) :], "big")
                self._entries[value[:DIGEST_SIZE]] = (
                    self._number,
                    int.from_bytes(value[DIGEST_SIZE:], "big"),
                )
                self._persistent_numbers[self._number] = None
            counters.memory_used += WEIGHT * len(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_max(self) -> int:
        """The number of ids beyond which the oldest id is removed."""
        return self._size

    def read_id(self, headers: Mapping[str, object]) -> bytes | None:
        """Return the digest of a message's id; None if it has none."""
        value = headers.get(self._header)
        return None if value is None else digest(value)

    def contains(self, message_id: bytes) -> bool:
        """Return True if an id is in the cache and has not expired."""
        entry = self._entries.get(message_id)
        return entry is not None and (not entry[1] or entry[1] > self._counters.now_ms)

    def check(self, persistent: bool) -> None:
        """Check that another id can be stored.

        Raises:
            ResourceError: the virtual host has no room for another fact.
        """
        if (
            persistent
            and self._facts is not None
            and len(self._persistent_numbers) < self._persistent_max
        ):
            self._facts.check_room(1, len(self._prefix) + 8 + DIGEST_SIZE + 8)

    def add_id(self, message_id: bytes, headers: Mapping[str, object], persistent: bool) -> None:
        """Add an id; if ``persistent``, inside its message's store transaction."""
        now_ms = self._counters.now_ms
        if message_id in self._entries:
            self._remove(message_id)
        for _ in range(SWEEP):
            oldest = next(iter(self._entries), None)
            if oldest is None:
                break
            if len(self._entries) < self._size and not 0 < self._entries[oldest][1] <= now_ms:
                break
            self._remove(oldest)
        ttl_ms = parse_integer(headers.get(CACHE_TTL))
        if ttl_ms is None or not 0 <= ttl_ms <= TTL_MAX:
            ttl_ms = self._ttl_ms
        until_ms = now_ms + ttl_ms if ttl_ms else 0
        self._number += 1
        self._entries[message_id] = self._number, until_ms
        self._counters.memory_used += WEIGHT
        if persistent and self._facts is not None:
            # Only the newest ids survive a restart.
            if len(self._persistent_numbers) >= PERSISTENT_MAX:
                self._remove_fact(self._facts, next(iter(self._persistent_numbers)))
            self._persistent_numbers[self._number] = None
            self._facts.change(self._key(self._number), message_id + until_ms.to_bytes(8, "big"))

    def clear(self) -> None:
        """Remove all ids."""
        for message_id in list(self._entries):
            self._remove(message_id)

    def _remove(self, message_id: bytes) -> None:
        number, _ = self._entries.pop(message_id)
        self._counters.memory_used -= WEIGHT
        if self._facts is not None and number in self._persistent_numbers:
            self._remove_fact(self._facts, number)

    def _remove_fact(self, facts: Facts, number: int) -> None:
        del self._persistent_numbers[number]
        facts.change(self._key(number), None)

    @property
    def _persistent_max(self) -> int:
        return min(self._size, PERSISTENT_MAX)

    def _key(self, number: int) -> bytes:
        return self._prefix + number.to_bytes(8, "big")


def digest(value: object) -> bytes:
    """Return the digest of an id, the same for equal ids of all protocol versions."""
    return canonical_digest(canonical(value))


def fact_prefix(kind: bytes, name: str) -> bytes:
    """Return the prefix of an exchange's or queue's facts; its name may be long."""
    return PREFIX + kind + hashlib.blake2b(name.encode(), digest_size=DIGEST_SIZE).digest() + b"/"
