# SPDX-License-Identifier: Apache-2.0
"""The client against RabbitMQ, beyond the tests of tests/client that `make interop` runs there."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.client import Message, UsageError, blocking, connect
from headrace.client.requests import Requests

if TYPE_CHECKING:
    from collections.abc import Callable

    Name = Callable[[str], str]

STREAM = {"x-queue-type": "stream"}


def test_a_stream_by_offset(url: str, name: Name) -> None:
    with blocking.connect(url) as connection:
        with connection.channel() as channel:
            channel.declare_queue(name("s"), durable=True, arguments=STREAM)
            channel.publish_many([f"{n}" for n in range(2500)], name("s"))
        stream = connection.stream(name("s"))
        assert (stream.first_offset(), stream.last_offset()) == (0, 2500)
        for first, last in ((0, 2500), (1234, 1240), (2499, 2500)):
            found = [(r.offset, r.body) for batch in stream.read(first, last) for r in batch]
            assert found == [(n, b"%d" % n) for n in range(first, last)]


def test_filters_are_applied_by_the_client(url: str, name: Name) -> None:
    with blocking.connect(url) as connection:
        with connection.channel() as channel:
            channel.declare_queue(name("s"), durable=True, arguments=STREAM)
            for n in range(30):
                headers = {"x-stream-filter-value": "red"} if n % 3 == 0 else {}
                channel.publish(Message(b"%d" % n, headers=headers), name("s"))
        stream = connection.stream(name("s"))
        red = [r.offset for batch in stream.read(0, 30, filter="red") for r in batch]
        assert red == list(range(0, 30, 3))


def test_what_only_headrace_has_says_so(url: str, name: Name) -> None:
    async def ask() -> None:
        async with connect(url) as connection, Requests(connection) as requests:
            await requests.ask("stream.info", stream=name("s"))

    with pytest.raises(UsageError, match="is not a Headrace"):
        asyncio.run(ask())


@pytest.mark.parametrize("version", ["0-8", "0-9"])
def test_early_versions(url: str, name: Name, version: str) -> None:
    queue = name("early")
    with blocking.connect(f"{url}?version={version}", reconnect=None) as connection:
        with connection.channel() as channel:
            channel.declare_queue(queue, durable=False, exclusive=True)
            assert channel.publish_many(["a", "b", "c"], queue) == 3
            with channel.consume(queue) as consumer:
                deliveries = [consumer.receive(10) for _ in range(3)]
                assert [delivery.body for delivery in deliveries] == [b"a", b"b", b"c"]
                deliveries[1].nack(multiple=True, requeue=False)
                deliveries[2].ack()
            if version == "0-8":  # In which RabbitMQ takes none, and closes the connection.
                with pytest.raises(UsageError, match=r"no arguments of consumers in AMQP 0-8"):
                    channel.consume(queue, priority=1).receive(10)
            else:
                with channel.consume(queue, priority=1) as consumer:
                    channel.publish("d", queue)
                    consumer.receive(10).ack()
            assert channel.delete_queue(queue) == 0


def test_what_the_client_promises_holds_there_too(url: str) -> None:
    """The client's own tests of channels and streams, which any broker of 0-9-1 passes."""
    tests = Path(__file__).parent.parent / "client"
    files = [
        str(tests / name) for name in ("channel/test_channel.py", "stream/test_client_stream.py")
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env={**os.environ, "HEADRACE_TEST_URL": url},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout
