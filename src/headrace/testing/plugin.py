# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: fixtures with a real broker, and connections and channels of it.

Installed with the package; every pytest run loads it, so it imports broker and client only when a
test asks for one. Settings are those of ``headrace_settings`` in pytest's configuration, then those
of the marker ``headrace`` of module, class and test.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.client import Channel as AsyncChannel
    from headrace.client import Connection as AsyncConnection
    from headrace.client.blocking import Channel, Connection
    from headrace.client.link.opening import Opening
    from headrace.testing.broker import ChildBroker, LocalBroker
    from headrace.untyped import Fields

MARKER = "headrace"
INI = "headrace_settings"
OWN, MODULE, SESSION = "headrace_broker", "headrace_module_broker", "headrace_session_broker"
BROKERS = (OWN, "headrace_durable_broker", "headrace_process", MODULE, SESSION)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(INI, "settings of every broker: a line NAME=VALUE for each", "linelist", [])


def pytest_configure(config: pytest.Config) -> None:
    words = "settings of the broker that the test is given, as in docs/reference/settings.md"
    config.addinivalue_line("markers", f"{MARKER}(**settings): {words}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse settings for a broker that other tests have as well."""
    names = getattr(item, "fixturenames", ())
    for node, mark in item.iter_markers_with_node(MARKER):
        if mark.args or not mark.kwargs:
            reason = f"@pytest.mark.{MARKER} takes settings by name, such as memory_max='64MiB'"
            pytest.fail(reason, pytrace=False)
        if SESSION in names:
            reason = f"{SESSION} takes settings of {INI} in pytest's configuration, not of a marker"
            pytest.fail(reason, pytrace=False)
        if MODULE in names and not isinstance(node, pytest.Module):
            reason = f"{MODULE} takes settings of the module's pytestmark, not of one test's marker"
            pytest.fail(reason, pytrace=False)


def _settings(request: pytest.FixtureRequest) -> Fields:
    """The settings of a broker: those nearer to the test count before others."""
    settings: Fields = {}
    for line in request.config.getini(INI):
        name, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"{INI}: {line!r} is not NAME=VALUE")
        settings[name.strip()] = value.strip()
    node = request.node
    if isinstance(node, pytest.Session):
        return settings
    for mark in reversed(list(node.iter_markers(MARKER))):
        settings |= mark.kwargs
    return settings


@pytest.fixture
def headrace_broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A broker on a thread of this process, in memory, on a port of its own: `.url`, `.port`."""
    from headrace.testing.broker import LocalBroker

    with LocalBroker(**_settings(request)) as broker:
        yield broker


@pytest.fixture(scope="module")
def headrace_module_broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """As `headrace_broker`, one for all tests of a module."""
    from headrace.testing.broker import LocalBroker

    with LocalBroker(**_settings(request)) as broker:
        yield broker


@pytest.fixture(scope="session")
def headrace_session_broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """As `headrace_broker`, one for the whole run; with pytest-xdist, one for each worker."""
    from headrace.testing.broker import LocalBroker

    with LocalBroker(**_settings(request)) as broker:
        yield broker


@pytest.fixture
def headrace_durable_broker(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[LocalBroker]:
    """As `headrace_broker`, on a directory: after `restart()` it has what it kept."""
    from headrace.testing.broker import LocalBroker

    with LocalBroker(tmp_path / "headrace-data", **_settings(request)) as broker:
        yield broker


@pytest.fixture
def headrace_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ChildBroker]:
    """A broker in a process of its own, on a directory: `restart()`, or `kill()` and `start()`."""
    from headrace.testing.broker import ChildBroker, flags

    with ChildBroker(tmp_path / "headrace-data", *flags(_settings(request))) as broker:
        yield broker


@pytest.fixture
def headrace_url(request: pytest.FixtureRequest) -> str:
    """The URL of the broker that the test asks for by one of these fixtures, else of its own."""
    asked = [name for name in BROKERS if name in request.fixturenames]
    if len(asked) > 1:
        pytest.fail(f"which broker is meant? The test has {' and '.join(asked)}", pytrace=False)
    return str(request.getfixturevalue(asked[0] if asked else OWN).url)


@pytest.fixture
def headrace_connection(headrace_url: str) -> Iterator[Connection]:
    """A blocking connection to the test's broker."""
    from headrace.client.blocking import connect

    with connect(headrace_url) as connection:
        yield connection


@pytest.fixture
def headrace_channel(headrace_connection: Connection) -> Iterator[Channel]:
    """A blocking channel of `headrace_connection`."""
    with headrace_connection.channel() as channel:
        yield channel


@pytest.fixture
def headrace_async_connection(headrace_url: str) -> Opening[AsyncConnection]:
    """A connection for asyncio, which `async with` opens in the loop of the test."""
    from headrace.client import connect

    return connect(headrace_url)


@pytest.fixture
def headrace_async_channel(headrace_url: str) -> AbstractAsyncContextManager[AsyncChannel]:
    """A channel for asyncio with a connection of its own; `async with` opens it, too."""
    return _open_channel(headrace_url)


@contextlib.asynccontextmanager
async def _open_channel(url: str) -> AsyncIterator[AsyncChannel]:
    from headrace.client import connect

    async with connect(url) as connection, connection.channel() as channel:
        yield channel
