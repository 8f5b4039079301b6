# SPDX-License-Identifier: Apache-2.0
"""Facts: small values by key in a virtual host, changed atomically with messages.

A fact is a part of the broker's state that is not a message: the position of a consumer group, the
owner of a lease, the last batch of a sink. A fact is as durable as a persistent message: a change
is durable once the store's ``synced`` has reached its ``appended`` after the change. Between
``begin`` and ``commit`` of the store a change is part of the transaction; code that has a
Transaction calls :meth:`headrace.model.transaction.transaction.Transaction.fact`.

Keys are paths such as ``b"group/7/etl"``; the first part names the feature.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from headrace.model.errors import ResourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.ports import Store

FACT_KEY_MAX = 600  # Bytes of a key.
FACT_VALUE_MAX = 64 << 10  # Bytes of a value.
FACTS_MAX = 100_000  # Facts of one virtual host.
FACTS_BYTES_MAX = 64 << 20  # Bytes of all keys and values, which are in memory.


class Facts:
    """The facts of one virtual host."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._values: dict[bytes, bytes] = store.facts
        self._keys: list[bytes] = []  # Sorted.
        self._size = 0
        self.restore()

    def __len__(self) -> int:
        return len(self._values)

    def restore(self) -> None:
        """Replace the facts in memory by the recovered facts of the store."""
        self._values = self._store.facts
        self._keys = sorted(self._values)
        self._size = sum(len(key) + len(value) for key, value in self._values.items())

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a fact; None if it does not exist."""
        return self._values.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a fact, or remove it with None; an unchanged value is not written.

        Raises:
            ResourceError: key, value or all facts together are too large; nothing changed.
        """
        self.check(key, value)
        self.change(key, value)

    def check(self, key: bytes, value: bytes | None) -> None:
        """Check a fact: raise the errors of :meth:`put`."""
        if not 0 < len(key) <= FACT_KEY_MAX:
            raise ResourceError(f"the key of a fact has 1 to {FACT_KEY_MAX} bytes, not {len(key)}")
        if value is None:
            return
        if len(value) > FACT_VALUE_MAX:
            raise ResourceError(
                f"a fact may have at most {FACT_VALUE_MAX} bytes; "
                f"'{key.decode('utf-8', 'replace')}' would have {len(value)}"
            )
        current = self._values.get(key)
        if current is None and len(self._values) >= FACTS_MAX:
            raise ResourceError(f"a virtual host may have at most {FACTS_MAX} facts")
        growth = len(value) - len(current) if current is not None else len(key) + len(value)
        if growth > 0 and self._size + growth > FACTS_BYTES_MAX:
            raise ResourceError(
                f"the facts of a virtual host may have at most {FACTS_BYTES_MAX} bytes"
            )

    def check_room(self, count: int, size: int) -> None:
        """Check that ``count`` more facts with ``size`` bytes in all fit.

        Raises:
            ResourceError: the facts do not fit.
        """
        if len(self._values) + count > FACTS_MAX or self._size + size > FACTS_BYTES_MAX:
            raise ResourceError(
                f"a virtual host keeps at most {FACTS_MAX} facts and {FACTS_BYTES_MAX} bytes"
            )

    def change(self, key: bytes, value: bytes | None) -> None:
        """Set a fact like :meth:`put`, without checking its limits again."""
        current = self._values.get(key)
        if current == value:
            return
        if current is None:
            insort(self._keys, key)
            self._size += len(key)
        else:
            self._size -= len(current)
        if value is None:
            del self._keys[bisect_left(self._keys, key)]
            self._size -= len(key)
        else:
            self._size += len(value)
        self._store.fact(key, value)

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the facts whose keys have a prefix, sorted by key.

        Facts may change during the iteration; each is read when the iteration reaches it.
        """
        index = bisect_left(self._keys, prefix)
        while index < len(self._keys):
            key = self._keys[index]
            if not key.startswith(prefix):
                return
            yield key, self._values[key]
            if index < len(self._keys) and self._keys[index] == key:
                index += 1
            else:
                index = bisect_left(self._keys, key)

    def remove_all(self, prefix: bytes) -> int:
        """Remove all facts whose keys have a prefix; return their number."""
        keys = [key for key, _ in self.items(prefix)]
        for key in keys:
            self.change(key, None)
        return len(keys)
