# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests that use our client: coroutine tests, the URL of a broker, names.

HEADRACE_TEST_URL points the tests that need no more than a broker at another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.testing import LocalBroker

TEST_TIMEOUT_S = 500.0  # Pytest ends a test soon after.


@contextlib.contextmanager
def channel_of(url: str, **options: Any) -> Iterator[blocking.Channel]:
    """A channel of a blocking connection of its own."""
    with blocking.connect(url, **options) as connection, connection.channel() as channel:
        yield channel


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function as a test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def bounded() -> None:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a broker."""
    other = os.environ.get("HEADRACE_TEST_URL")
    if other:
        return other
    broker = request.getfixturevalue("headrace_broker")
    return str(broker.url)


@pytest.fixture
def name() -> Callable[[str], str]:
    """Make names that no other test has."""
    suffix = uuid.uuid4().hex[:8]
    return lambda base="q": f"test.{base}.{suffix}"


@pytest.fixture
def queues(channel: blocking.Channel, name: Callable[..., str]) -> list[str]:
    """Two durable queues, declared on the module's channel: source and target of a move."""
    made = [name("from"), name("to")]
    for queue in made:
        channel.declare_queue(queue, durable=True)
    return made


@pytest.fixture
def connection(headrace_broker: LocalBroker, version: str) -> Iterator[blocking.Connection]:
    """A connection that speaks the version of the test."""
    url = f"{headrace_broker.url}?version={version}"
    with blocking.connect(url, reconnect=None) as connection:
        yield connection


@pytest.fixture
def channel(connection: blocking.Connection) -> Iterator[blocking.Channel]:
    """A channel of that connection."""
    with connection.channel() as channel:
        yield channel
