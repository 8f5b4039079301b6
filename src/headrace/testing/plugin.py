# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: fixtures that start a broker and open connections and channels to it.

Every pytest run loads the plugin once the package is installed. Therefore each fixture imports
broker and client itself, and a run without these fixtures pays nothing for them.

The settings of a broker come from ``headrace_settings`` in pytest's configuration, then from the
markers ``headrace`` of the module, the class and the test, each of which overrides the former.
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
INI_OPTION = "headrace_settings"
FUNCTION_BROKER = "headrace_broker"
MODULE_BROKER = "headrace_module_broker"
SESSION_BROKER = "headrace_session_broker"
BROKER_FIXTURES = (
    FUNCTION_BROKER,
    "headrace_durable_broker",
    "headrace_process",
    MODULE_BROKER,
    SESSION_BROKER,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``headrace_settings`` to pytest's configuration."""
    description = "settings of every broker: a line NAME=VALUE for each"
    parser.addini(INI_OPTION, description, "linelist", [])


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``headrace``."""
    description = "settings of the test's broker, as in docs/reference/settings.md"
    config.addinivalue_line("markers", f"{MARKER}(**settings): {description}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose marker has no settings, or settings for a broker of other tests, too."""
    fixture_names = getattr(item, "fixturenames", ())
    for node, mark in item.iter_markers_with_node(MARKER):
        if mark.args or not mark.kwargs:
            reason = f"@pytest.mark.{MARKER} takes settings by name, such as memory_max='64MiB'"
            pytest.fail(reason, pytrace=False)
        if SESSION_BROKER in fixture_names:
            reason = (
                f"{SESSION_BROKER} takes settings of {INI_OPTION} in pytest's configuration, "
                "not of a marker"
            )
            pytest.fail(reason, pytrace=False)
        if MODULE_BROKER in fixture_names and not isinstance(node, pytest.Module):
            reason = (
                f"{MODULE_BROKER} takes settings of the module's pytestmark, "
                "not of one test's marker"
            )
            pytest.fail(reason, pytrace=False)


def _read_settings(request: pytest.FixtureRequest) -> Fields:
    """Return the settings of a broker; the marker nearest to the test takes precedence."""
    settings: Fields = {}
    for line in request.config.getini(INI_OPTION):
        name, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"{INI_OPTION}: {line!r} is not NAME=VALUE")
        settings[name.strip()] = value.strip()
    node = request.node
    if isinstance(node, pytest.Session):
        return settings
    for mark in reversed(list(node.iter_markers(MARKER))):
        settings |= mark.kwargs
    return settings


@pytest.fixture
def headrace_broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A new ``LocalBroker`` for each test: a thread of this process, in memory, on a free port."""
    from headrace.testing.broker import LocalBroker

    with LocalBroker(**_read_settings(request)) as broker:
        yield broker


@pytest.fixture(scope="module")
def headrace_module_broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A ``LocalBroker`` that all tests of a module share."""
    from headrace.testing.broker import LocalBroker

    with LocalBroker(**_read_settings(request)) as broker:
        yield broker


@pytest.fixture(scope="session")
def headrace_session_broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A ``LocalBroker`` that all tests of the run share; with pytest-xdist, those of a worker."""
    from headrace.testing.broker import LocalBroker

    with LocalBroker(**_read_settings(request)) as broker:
        yield broker


@pytest.fixture
def headrace_durable_broker(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[LocalBroker]:
    """A new ``LocalBroker`` with a data directory: durable messages survive ``restart()``."""
    from headrace.testing.broker import LocalBroker

    with LocalBroker(tmp_path / "headrace-data", **_read_settings(request)) as broker:
        yield broker


@pytest.fixture
def headrace_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ChildBroker]:
    """A new ``ChildBroker`` with a data directory, which a test can kill and start again."""
    from headrace.testing.broker import ChildBroker, format_flags

    with ChildBroker(tmp_path / "headrace-data", *format_flags(_read_settings(request))) as broker:
        yield broker


@pytest.fixture
def headrace_url(request: pytest.FixtureRequest) -> str:
    """The URL of the test's broker; of a ``headrace_broker`` if the test uses no broker fixture."""
    brokers = [name for name in BROKER_FIXTURES if name in request.fixturenames]
    if len(brokers) > 1:
        pytest.fail(f"which broker is meant? The test has {' and '.join(brokers)}", pytrace=False)
    return str(request.getfixturevalue(brokers[0] if brokers else FUNCTION_BROKER).url)


@pytest.fixture
def headrace_connection(headrace_url: str) -> Iterator[Connection]:
    """An open blocking connection to the test's broker."""
    from headrace.client.blocking import connect

    with connect(headrace_url) as connection:
        yield connection


@pytest.fixture
def headrace_channel(headrace_connection: Connection) -> Iterator[Channel]:
    """An open blocking channel of ``headrace_connection``."""
    with headrace_connection.channel() as channel:
        yield channel


@pytest.fixture
def headrace_async_connection(headrace_url: str) -> Opening[AsyncConnection]:
    """A connection for asyncio, which the test opens by ``async with`` in its event loop."""
    from headrace.client import connect

    return connect(headrace_url)


@pytest.fixture
def headrace_async_channel(headrace_url: str) -> AbstractAsyncContextManager[AsyncChannel]:
    """A channel for asyncio; ``async with`` opens the channel and a connection for it."""
    return _open_channel(headrace_url)


@contextlib.asynccontextmanager
async def _open_channel(url: str) -> AsyncIterator[AsyncChannel]:
    from headrace.client import connect

    async with connect(url) as connection, connection.channel() as channel:
        yield channel
