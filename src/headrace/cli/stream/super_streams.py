# SPDX-License-Identifier: Apache-2.0
"""``headrace super-stream``: streams behind one exchange."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.broker_url import NAMED, OFFSET_MAX, broker_option, open_channel, open_requests
from headrace.cli.commands import Group
from headrace.cli.output import format_option, print_rows

if TYPE_CHECKING:
    from headrace.client.super_streams import SuperStream

TYPE = "x-super-stream"
PARTITION = ("number", "stream", "key", "first", "next", "octets")


@click.group(cls=Group, name="super-stream")
def super_stream() -> None:
    """Super streams: several streams behind one exchange."""


@super_stream.command()
@broker_option
@click.option("--partitions", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option(
    "--by",
    type=click.Choice(["hash", "key"]),
    default="hash",
    show_default=True,
    help="What picks the partition: the hash of the routing key, or the key itself.",
)
@click.option("--max-length-bytes", type=click.IntRange(1, OFFSET_MAX), help="Of each partition.")
@click.option("--max-age", help="Of each partition: 30s, 10m, 12h, 7D, 1M, 1Y.")
@click.argument("name", type=NAMED)
def create(
    url: str, partitions: int, by: str, max_length_bytes: int | None, max_age: str | None, name: str
) -> None:
    """Make the super stream NAME with partitions NAME-0, NAME-1 and so on."""
    arguments: dict[str, Any] = {"x-partitions": partitions, "x-partition-by": by}
    if max_length_bytes is not None:
        arguments["x-max-length-bytes"] = max_length_bytes
    if max_age is not None:
        arguments["x-max-age"] = max_age
    with open_channel(url) as channel:
        channel.declare_exchange(name, TYPE, durable=True, arguments=arguments)


@super_stream.command("list")
@broker_option
@format_option
def list_all(url: str, form: str | None) -> None:
    """Print the super streams and how many partitions each has."""
    from headrace.client.blocking_pipeline import list_super_streams

    with open_requests(url) as requests:
        found = list_super_streams(requests)
    rows = ({"name": name, "partitions": count} for name, count in found.items())
    print_rows(rows, ("name", "partitions"), form)


@super_stream.command()
@broker_option
@format_option
@click.argument("name", type=NAMED)
def show(url: str, form: str | None, name: str) -> None:
    """Print number, stream, binding key, first and next offset, and octets of each partition."""
    from headrace.client.blocking_pipeline import super_stream as ask_for

    with open_requests(url) as requests:
        tell(ask_for(requests, name), form)


@super_stream.command()
@broker_option
@format_option
@click.argument("name", type=NAMED)
@click.argument("stream", default="")
def add(url: str, form: str | None, name: str, stream: str) -> None:
    """Add a partition to the super stream NAME, called STREAM or NAME-number.

    Where a hash picks the partition, many keys have another one from then on.
    """
    from headrace.client.blocking_pipeline import add_partition

    with open_requests(url) as requests:
        tell(add_partition(requests, name, stream), form)


@super_stream.command()
@broker_option
@click.confirmation_option(prompt="Delete all messages of its partitions?")
@click.argument("name", type=NAMED)
def delete(url: str, name: str) -> None:
    """Delete the super stream NAME and its partitions."""
    from headrace.client.blocking_pipeline import super_stream as ask_for

    with open_requests(url) as requests:
        found = ask_for(requests, name)
    with open_channel(url) as channel:
        channel.delete_exchange(name)
        for partition in found.partitions:
            channel.delete_queue(partition.stream)


def tell(found: SuperStream, form: str | None) -> None:
    """Print the partitions of a super stream."""
    print_rows(map(asdict, found.partitions), PARTITION, form, wide=form == "json")
