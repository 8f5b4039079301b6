# SPDX-License-Identifier: Apache-2.0
"""Browsing a queue in parallel by position, without consuming.

The position of a message in its queue never changes. A snapshot is the range of positions at one
moment. A read of its parts returns each message once, if it is still ready when its part is read.
Messages are not marked, acquired or moved.
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
    """The range of a queue at one moment."""

    broker: str  # The broker's UUID.
    queue: str
    id: int  # The queue's id, never reused.
    first: int  # The position of its first ready message.
    last: int  # The position after its last message; later arrivals have higher positions.
    bounds: tuple[int, ...]  # The positions between its parts, which are about equal in size.
    messages: int  # The number of ready messages at that moment.
    octets: int  # The bytes of the bodies of these messages.

    def ranges(self) -> list[tuple[int, int]]:
        """Return the parts as ranges of positions, to be read in parallel."""
        ends = [self.first, *self.bounds, self.last]
        return list(itertools.pairwise(ends))


async def take_snapshot(requests: Requests, queue: str, parts: int = 1) -> Snapshot:
    """Return the present range of a queue, cut into up to `parts` parts (1 to 1000)."""
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
    """Read the messages that are ready at the positions [first, last), in order.

    A record's offset is its position; it has the header `x-redelivered` if it was delivered before.
    The read continues at the same position after a reconnection.
    """
    reading = connection.stream(queue).read(
        first, last, batch_max=batch_max, credit=credit, browse=True
    )
    async with aclosing(reading):
        async for batch in reading:
            yield batch


_FIELDS = ("broker", "queue", "id", "first", "last", "messages", "octets")
