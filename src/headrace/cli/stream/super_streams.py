# SPDX-License-Identifier: Apache-2.0
"""``headrace super-stream``: streams behind one exchange."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headrace.cli.broker_url import (
    BY_CHANNEL,
    BY_REQUEST,
    NAMED,
    OFFSET_MAX,
    broker_option,
    open_channel,
    open_requests,
)
from headrace.cli.commands import Group

if TYPE_CHECKING:
    from headrace.cli.output import Row
    from headrace.client.blocking import Channel
    from headrace.client.blocking_pipeline import Requests
    from headrace.wire.table import Value

TYPE = "x-super-stream"
PARTITION = ("number", "stream", "key", "first", "next", "octets")


@click.group(cls=Group, name="super-stream")
def super_stream() -> None:
    """Create, list and delete super streams: several streams behind one exchange."""


@BY_CHANNEL.command(super_stream, "create")
@click.option("--partitions", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option(
    "--by",
    type=click.Choice(["hash", "key"]),
    default="hash",
    show_default=True,
    help="Choice of the partition: by the hash of the routing key, or by the key itself.",
)
@click.option(
    "--max-length-bytes",
    type=click.IntRange(1, OFFSET_MAX),
    help="Maximum size of each partition, in bytes.",
)
@click.option(
    "--max-age", help="Maximum age of records of each partition: 30s, 10m, 12h, 7D, 1M, 1Y."
)
@click.argument("name", type=NAMED)
def create(
    channel: Channel,
    partitions: int,
    by: str,
    max_length_bytes: int | None,
    max_age: str | None,
    name: str,
) -> None:
    """Create the super stream NAME with partitions NAME-0, NAME-1 and so on."""
    arguments: dict[str, Value] = {"x-partitions": partitions, "x-partition-by": by}
    limits = {"x-max-length-bytes": max_length_bytes, "x-max-age": max_age}
    arguments |= {key: value for key, value in limits.items() if value is not None}
    channel.declare_exchange(name, TYPE, durable=True, arguments=arguments)


@BY_REQUEST.command(super_stream, "list", columns=("name", "partitions"))
def list_all(requests: Requests) -> Iterator[Row]:
    """Print the super streams and their numbers of partitions."""
    from headrace.client.blocking_pipeline import list_super_streams

    counts = list_super_streams(requests)
    return ({"name": name, "partitions": count} for name, count in counts.items())


@BY_REQUEST.command(super_stream, "show", columns=PARTITION, wide=True)
@click.argument("name", type=NAMED)
def show(requests: Requests, name: str) -> Iterator[Row]:
    """Print number, stream, binding key, first and next offset, and bytes of each partition."""
    from headrace.client.blocking_pipeline import super_stream as ask_for

    return map(asdict, ask_for(requests, name).partitions)


@BY_REQUEST.command(super_stream, "add", columns=PARTITION, wide=True)
@click.argument("name", type=NAMED)
@click.argument("stream", default="")
def add(requests: Requests, name: str, stream: str) -> Iterator[Row]:
    """Add a partition to the super stream NAME, called STREAM or NAME-number.

    Where a hash picks the partition, many keys move to another one.
    """
    from headrace.client.blocking_pipeline import add_partition

    return map(asdict, add_partition(requests, name, stream).partitions)


@super_stream.command()
@broker_option
@click.confirmation_option(prompt="delete all messages of its partitions?")
@click.argument("name", type=NAMED)
def delete(url: str, name: str) -> None:
    """Delete the super stream NAME and its partitions."""
    from headrace.client.blocking_pipeline import super_stream as ask_for

    with open_requests(url) as requests:
        layout = ask_for(requests, name)
    with open_channel(url) as channel:
        channel.delete_exchange(name)
        for partition in layout.partitions:
            channel.delete_queue(partition.stream)
