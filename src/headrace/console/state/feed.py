# SPDX-License-Identifier: Apache-2.0
"""A list of the broker that all requests share, with the samples of its rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from headrace.console.state.rings import MS, SAMPLE_S, Ring

if TYPE_CHECKING:
    from headrace.console.broker.link import BrokerLink
    from headrace.untyped import JsonObject

SHORT = 2000  # A list that looks at no more objects is read for each request;
OLD_S = 5.0  # longer ones when they are older than this,
SHARE = 4.0  # and than so many times what reading took: while they are read, the last one serves.


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
        self,
        link: BrokerLink,
        do: str,
        key: Sequence[str],
        columns: Sequence[str] = (),
        *,
        size: Callable[[], int] | None = None,
    ) -> None:
        """``columns`` are the numbers of a row that are sampled.

        ``size`` returns how many objects the broker looks at for the list; without it its rows.
        """
        self._link = link
        self._do = do
        self._key = tuple(key)
        self.columns = tuple(columns)
        self._size = size or self._rows
        self._reading = asyncio.Lock()
        self._behind: asyncio.Task[None] | None = None  # Reads while the last list serves.
        self._read_s = 0.0  # When, by the monotonic clock; 0 before the first,
        self.took_s = 0.0  # and how long reading took.
        self.now_ms = 0  # When it was read, in Unix time.
        self.objects: dict[Hashable, Tracked] = {}  # In the order of the key.

    def _rows(self) -> int:
        return len(self.objects)

    async def all(self) -> list[Tracked]:
        """Return the objects in the order of their keys.

        Raises:
            BrokerGone: the broker does not answer.
        """
        await self.refresh()
        return list(self.objects.values())

    async def refresh(self) -> None:
        """Read the list; a long one behind the requests, which get the last one meanwhile.

        Raises:
            BrokerGone: the broker does not answer.
        """
        if not self._read_s or self._size() <= SHORT:
            await self.read()
            return
        is_old = time.monotonic() - self._read_s > max(OLD_S, SHARE * self.took_s)
        if is_old and (self._behind is None or self._behind.done()):
            self._behind = asyncio.create_task(self.read())
            self._behind.add_done_callback(told)

    def forget(self) -> None:
        """Have the next request wait for a new list: something was changed."""
        self._read_s = 0.0

    async def read(self) -> None:
        """Read the list now.

        Raises:
            BrokerGone: the broker does not answer.
        """
        async with self._reading:
            began_s = time.monotonic()
            before_ms, now_ms = self.now_ms, time.time_ns() // 1_000_000
            found: dict[tuple[str | int, ...], Tracked] = {}
            known, key, columns = self.objects, self._key, self.columns
            none = (0,) * len(columns)
            async for row in self._link.items(self._do):
                name = tuple([row[field] for field in key])
                one = known.get(name)
                if one is None:
                    one = Tracked(row, now_ms)
                    if before_ms:  # It is new: its counters began at zero.
                        one.ring.add(max(before_ms, now_ms - SAMPLE_S * MS), none)
                one.row = row
                one.ring.add(now_ms, tuple([row[field] for field in columns]))
                found[name] = one
            self.objects = {name: found[name] for name in sorted(found)}
            self.now_ms = now_ms
            self._read_s = time.monotonic()
            self.took_s = self._read_s - began_s


def told(task: asyncio.Task[None]) -> None:
    """Take the error of a list that was read behind the requests: the next request tells it."""
    if not task.cancelled():
        task.exception()
