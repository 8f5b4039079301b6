# SPDX-License-Identifier: Apache-2.0
"""Looking at a queue without taking from it: what is ready now, by position, in parallel.

A position is a message's place in its queue, which never changes. A snapshot says from where to
where the queue reaches at one moment; each message between is shown once, if it is still there when
its turn comes. Nothing is marked, held or moved.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.stream.stream import BATCH_MAX, CREDIT

if TYPE_CHECKING:
    from headrace.client.connection.connection import Connection
    from headrace.client.requests import Requests
    from headrace.client.stream.reader import Record


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a queue reached at one moment."""

    broker: str  # The broker's UUID.
    queue: str
    id: int  # Of the queue; never given to another.
    first: int  # The position of its first ready message.
    last: int  # Behind that of its last: what comes later is beyond.
    bounds: tuple[int, ...]  # Positions that cut it into about equal parts.
    messages: int  # Ready ones, at that moment,
    octets: int  # and what their bodies have.

    def ranges(self) -> list[tuple[int, int]]:
        """The parts, as ranges of positions, to be read in parallel."""
        ends = [self.first, *self.bounds, self.last]
        return list(itertools.pairwise(ends))


async def take_snapshot(requests: Requests, queue: str, parts: int = 1) -> Snapshot:
    """Ask where a queue reaches now; cut it into up to so many parts, 1000 at most."""
    answer = await requests.ask("queue.snapshot", queue=queue, parts=parts)
    bounds = tuple(answer.pop("bounds"))
    return Snapshot(bounds=bounds, **{name: answer[name] for name in _FIELDS})


async def browse(
    connection: Connection,
    queue: str,
    first: int,
    last: int,
    *,
    batch_max: int = BATCH_MAX,
    credit: int = CREDIT,
) -> AsyncGenerator[list[Record], None]:
    """The messages that are ready at the positions [first, last), in order of these.

    Each record's offset is its position; the header `x-redelivered` is there if it was delivered
    before. It goes on where it was after a reconnection.
    """
    reading = connection.stream(queue).read(
        first, last, batch_max=batch_max, credit=credit, browse=True
    )
    async with aclosing(reading):
        async for batch in reading:
            yield batch


_FIELDS = ("broker", "queue", "id", "first", "last", "messages", "octets")
