# SPDX-License-Identifier: Apache-2.0
"""A broker that keeps nothing, and clients of it that clean up after themselves.

`HEADRACE_INTEROP_URL` names another AMQP 0-9-1 broker to run the tests of the classes against.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from headrace.spec.tables import V0_9_1, Version
from headrace.testing.raw_client import RawClient
from headrace.testing.raw_socket import close_new_sockets
from support.brokers.broker_process import Remote, Served
from support.timeouts import PATIENCE_S

Connect = Callable[..., BlockingConnection]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served | Remote]:
    """One broker for the tests of a module."""
    if url := os.environ.get("HEADRACE_INTEROP_URL"):
        yield Remote(url, None)
        return
    broker = Served(tmp_path_factory.mktemp("broker"), memory=True).start()
    yield broker
    assert broker.running, broker.log()
    broker.end()


@pytest.fixture(autouse=True)
def sockets_are_closed() -> Iterator[None]:
    with close_new_sockets():
        yield


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def connect(served: Served) -> Iterator[Connect]:
    """Open pika connections; what is open at the end is closed."""
    opened: list[BlockingConnection] = []

    def open_one(**parameters: Any) -> BlockingConnection:
        url = pika.URLParameters(served.url)
        url.heartbeat = 0
        url.blocked_connection_timeout = PATIENCE_S
        for key, value in parameters.items():
            setattr(url, key, value)
        connection = BlockingConnection(url)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        if connection.is_open:
            connection.close()


@pytest.fixture
def connection(connect: Connect) -> BlockingConnection:
    return connect()


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def talk(served: Served) -> Iterator[Callable[..., RawClient]]:
    """Open clients that speak single methods."""
    opened: list[RawClient] = []

    def open_one(version: Version = V0_9_1) -> RawClient:
        opened.append(RawClient(served.host, served.port, version).open())
        return opened[-1]

    yield open_one
    for one in opened:
        one.drop()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Served]:
    """A broker that keeps what it is given, for tests that start it anew or kill it."""
    broker = Served(tmp_path).start()
    yield broker
    broker.end()
