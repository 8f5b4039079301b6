# SPDX-License-Identifier: Apache-2.0
"""Super streams: the partition streams of one exchange."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.requests import Answer, Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One stream of a super stream."""

    number: int  # The index of the partition, from 0.
    key: str  # The binding key.
    stream: str
    id: int  # The stream's id; a stream declared again has another.
    first: int  # The offset of the oldest message.
    next: int  # The offset of the next message.
    octets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperStream:
    """A super stream at the time of the request."""

    exchange: str
    type: str  # The exchange type: x-super-stream, or direct in RabbitMQ's layout.
    by: str  # The partition is chosen by the `hash` of the routing key, or by the `key` itself.
    partitions: tuple[Partition, ...]  # The partitions in order.


async def super_stream(requests: Requests, exchange: str) -> SuperStream:
    """Return the super stream of an exchange; RequestRefused if the exchange has none."""
    return _parse_super_stream(await requests.ask("superstream.info", exchange=exchange))


async def add_partition(requests: Requests, exchange: str, stream: str = "") -> SuperStream:
    """Add a partition, named `exchange-number` unless `stream` names it.

    It is declared like the first partitions. When `stream` is a partition already, nothing changes.
    """
    if not stream:  # Chosen here: a request that is sent twice must have the same name.
        current = await super_stream(requests, exchange)
        stream_names = {partition.stream for partition in current.partitions}
        numbers = count(len(stream_names))
        stream = next(name for n in numbers if (name := f"{exchange}-{n}") not in stream_names)
    return _parse_super_stream(
        await requests.ask("superstream.add", exchange=exchange, stream=stream)
    )


async def list_super_streams(requests: Requests) -> dict[str, int]:
    """Return the super streams that the user may read, with their numbers of partitions."""
    answer = await requests.ask("superstream.list")
    return {row["exchange"]: row["partitions"] for row in answer["super_streams"]}


def _parse_super_stream(answer: Answer) -> SuperStream:
    partitions = tuple(
        Partition(**{name: row[name] for name in Partition.__slots__})
        for row in answer["partitions"]
    )
    return SuperStream(
        exchange=answer["exchange"], type=answer["type"], by=answer["by"], partitions=partitions
    )
