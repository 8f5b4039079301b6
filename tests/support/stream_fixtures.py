# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests with Spark: a client's connection, and a function that fills streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.client import blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.client import Message


@pytest.fixture
def connection(uri: str) -> Iterator[blocking.Connection]:
    """A client's connection to the broker that Spark reads."""
    with blocking.connect(uri) as client_connection:
        yield client_connection


@pytest.fixture
def publish(connection: blocking.Connection) -> Callable[..., None]:
    """A function that appends bodies or messages to a stream, which it declares if necessary."""
    channel = connection.channel()

    def append(stream: str, *contents: str | bytes | Message) -> None:
        channel.declare_queue(stream, durable=True, arguments={"x-queue-type": "stream"})
        channel.publish_many(contents, stream)

    return append
