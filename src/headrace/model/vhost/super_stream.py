# SPDX-License-Identifier: Apache-2.0
"""Super streams: one exchange with several streams, its partitions.

There are two layouts. An exchange of type ``x-super-stream`` picks the partition for a routing key.
RabbitMQ's tools make a direct exchange with the argument ``x-super-stream``: publishers name the
partition in the routing key. In both, the bound streams are the partitions, ordered by the
binding argument ``x-stream-partition-order``, then by name. `headrace.model.exchange.super_stream`
picks the partition of a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.model.arguments.memory_estimate import BINDING, TABLE, queue_memory
from headrace.model.arguments.values import check_queue_arguments, format_value
from headrace.model.errors import InvalidArgument, PreconditionFailed
from headrace.model.exchange.super_stream import (
    PARTITION_BY,
    PARTITION_ORDER,
    SUPER_STREAM,
    SuperStreamExchange,
    partition_sort_key,
)
from headrace.model.stream.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.exchange.exchange import Exchange
    from headrace.model.host import TopologyHost

PARTITIONS = "x-partitions"
LAYOUT = SUPER_STREAM
PARTITIONS_MAX = 1000
STREAM_ARGUMENTS = (
    *("x-max-length-bytes", "x-max-age", "x-stream-max-segment-size-bytes"),
    *("x-local-max-length-bytes", "x-local-max-age"),
)
ARGUMENTS = (PARTITIONS, PARTITION_BY, *STREAM_ARGUMENTS)


class Partition(NamedTuple):
    """One stream of a super stream."""

    stream: Stream
    order: int | None
    key: str  # The routing key of its binding.


def is_super_stream(exchange: Exchange) -> bool:
    """Return True if an exchange is a super stream in either layout."""
    if isinstance(exchange, SuperStreamExchange):
        return True
    return exchange.type == "direct" and bool(exchange.arguments.get(LAYOUT))


def sorted_partitions(exchange: Exchange) -> list[Partition]:
    """Return the partitions, each once, by partition order and then by name."""
    partitions: dict[Stream, Partition] = {}
    for binding in sorted(exchange.bindings, key=partition_sort_key):
        stream = binding.destination
        if isinstance(stream, Stream):
            order = (binding.arguments or {}).get(PARTITION_ORDER)
            number = order if isinstance(order, int) else None
            partitions.setdefault(stream, Partition(stream, number, binding.routing_key))
    return list(partitions.values())


def partition_names(exchange: str, kind: str, arguments: Mapping[str, object]) -> list[str]:
    """Return the names of the streams that a declaration makes; none if it is refused."""
    count = arguments.get(PARTITIONS, 0)
    if kind != SuperStreamExchange.type or not isinstance(count, int) or not _is_count(count):
        return []
    return [f"{exchange}-{number}" for number in range(count)]


def check(vhost: TopologyHost, name: str, durable: bool, arguments: Mapping[str, object]) -> None:
    """Refuse the declaration of a super stream if it contradicts itself or existing streams.

    Raises:
        PreconditionFailed: the exchange is not durable, an argument is malformed, or an existing
            stream has other properties.
    """
    subject = f"exchange '{name}' in vhost '{vhost.name}'"
    if not durable:
        raise PreconditionFailed(f"invalid property 'non-durable' for {subject}")
    for argument in arguments:
        if argument.startswith("x-") and argument not in ARGUMENTS:
            raise InvalidArgument(
                f"invalid arg '{argument}' for {subject}: super streams have no such argument"
            )
    count = arguments.get(PARTITIONS, 0)
    if PARTITIONS in arguments and not _is_count(count):
        raise InvalidArgument(
            f"invalid arg '{PARTITIONS}' for {subject}: {format_value(count)} is not a number from "
            f"1 to {PARTITIONS_MAX}"
        )
    partition_by = arguments.get(PARTITION_BY, "hash")
    if partition_by not in ("hash", "key"):
        raise InvalidArgument(
            f"invalid arg '{PARTITION_BY}' for {subject}: expected hash or key, not "
            f"{format_value(partition_by)}"
        )
    new: list[str] = []
    for partition in partition_names(name, SuperStreamExchange.type, arguments):
        if partition in vhost.queues:
            vhost.declare_queue(partition, durable=True, arguments=stream_arguments(arguments))
        else:
            check_queue_arguments(stream_arguments(arguments), f"queue '{partition}'")
            new.append(partition)
    if new:
        vhost.check_room(new[0], len(new))
        needed = sum([stream_memory(stream, arguments) for stream in new])
        vhost.check_definition(needed, "the streams of exchange '{}'", name)


def make_partitions(vhost: TopologyHost, name: str, arguments: Mapping[str, object]) -> None:
    """Declare and bind the partitions of a new exchange, from its arguments."""
    for order, partition in enumerate(partition_names(name, SuperStreamExchange.type, arguments)):
        add_partition(vhost, name, partition, order, arguments)


def add_partition(
    vhost: TopologyHost, exchange: str, stream: str, order: int, arguments: Mapping[str, object]
) -> None:
    """Declare a stream and bind it as the partition with this number.

    Raises:
        PreconditionFailed: a queue of that name has other properties.
        LimitReached: definitions would use more memory than they may.
    """
    if stream not in vhost.queues:
        vhost.check_definition(stream_memory(stream, arguments), "queue '{}'", stream)
    vhost.declare_queue(stream, durable=True, arguments=stream_arguments(arguments))
    vhost.bind(exchange, ("queue", stream), str(order), {PARTITION_ORDER: order})


def stream_memory(stream: str, arguments: Mapping[str, object]) -> int:
    """Return the memory of a partition and its binding in bytes."""
    return queue_memory(stream, stream_arguments(arguments)) + 2 * BINDING + TABLE


def stream_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of the partitions, taken from the arguments of their exchange."""
    partition_arguments = {name: arguments[name] for name in STREAM_ARGUMENTS if name in arguments}
    return {"x-queue-type": "stream", **partition_arguments}


def _is_count(count: object) -> bool:
    return isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= PARTITIONS_MAX
