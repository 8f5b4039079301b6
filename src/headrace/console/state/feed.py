# SPDX-License-Identifier: Apache-2.0
"""A list of the broker that all requests share, with the samples of its rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from headrace.console.state.rings import MS, SAMPLE_S, Ring

if TYPE_CHECKING:
    from headrace.console.broker.link import BrokerLink
    from headrace.untyped import JsonObject

SHORT = 2000  # A list of no more rows is read for each request;
SHARE = 20.0  # others when they are older than this many times what reading took,
OLD_S = 5.0  # and at this age at the latest.


class Tracked:
    """An object of the broker: its row, and its samples."""

    __slots__ = ("ring", "row", "seen_ms")

    def __init__(self, row: JsonObject, seen_ms: int) -> None:
        self.row = row
        self.ring = Ring()
        self.seen_ms = seen_ms  # When it was first seen.


class Feed:
    """The rows of one list operation, by key."""

    def __init__(
        self, link: BrokerLink, do: str, key: Sequence[str], columns: Sequence[str]
    ) -> None:
        """``columns`` are the numbers of a row that are sampled."""
        self._link = link
        self._do = do
        self._key = tuple(key)
        self.columns = tuple(columns)
        self._reading = asyncio.Lock()
        self._read_s = -OLD_S  # When, by the monotonic clock,
        self.took_s = 0.0  # and how long reading took.
        self.now_ms = 0  # When it was read, in Unix time.
        self.objects: dict[Hashable, Tracked] = {}

    async def all(self) -> list[Tracked]:
        """Return the objects, read anew where the last list is too old.

        Raises:
            BrokerGone: the broker does not answer.
        """
        await self.refresh()
        return list(self.objects.values())

    async def refresh(self, *, within_s: float | None = None) -> None:
        """Read the list where the last one is older than it may be."""
        async with self._reading:
            limit_s = self._limit_s() if within_s is None else within_s
            began_s = time.monotonic()
            if began_s - self._read_s < limit_s:
                return
            rows, _ = await self._link.answer(self._do)
            self._take(rows)
            self._read_s = time.monotonic()
            self.took_s = self._read_s - began_s

    def _limit_s(self) -> float:
        return 0.0 if len(self.objects) <= SHORT else min(OLD_S, SHARE * self.took_s)

    def forget(self) -> None:
        """Have the next request read the list: something was changed."""
        self._read_s = -OLD_S

    def _take(self, rows: list[JsonObject]) -> None:
        before_ms, self.now_ms = self.now_ms, time.time_ns() // 1_000_000
        known, key, columns = self.objects, self._key, self.columns
        found: dict[Hashable, Tracked] = {}
        none = (0,) * len(columns)
        for row in rows:
            name = tuple([row[field] for field in key])
            one = known.get(name)
            if one is None:
                one = Tracked(row, self.now_ms)
                if before_ms:  # It is new: its counters began at zero.
                    one.ring.add(max(before_ms, self.now_ms - SAMPLE_S * MS), none)
            else:
                one.row = row
            one.ring.add(self.now_ms, tuple([row[field] for field in columns]))
            found[name] = one
        self.objects = found
