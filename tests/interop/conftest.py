# SPDX-License-Identifier: Apache-2.0
"""The broker that other people's clients talk to.

`HEADRACE_INTEROP_URL` names any other AMQP 0-9-1 broker to run the same tests against, and
`HEADRACE_INTEROP_RESTART` the shell command that restarts it: without that command the tests of
reconnection have nothing to restart and are left out.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.brokers.broker_process import Remote, Served

if TYPE_CHECKING:
    from collections.abc import Iterator

    Broker = Served | Remote

URL = os.environ.get("HEADRACE_INTEROP_URL")
RESTART = os.environ.get("HEADRACE_INTEROP_RESTART")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.interop)
    if URL and not RESTART:
        out = [item for item in mine if "own_broker" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker shared by all tests of the run: each keeps to names of its own."""
    if URL:
        yield Remote(URL, RESTART)
        return
    served = Served(tmp_path_factory.mktemp("broker")).start()
    yield served
    served.end()


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that one test may restart."""
    if URL:
        yield Remote(URL, RESTART)
        return
    served = Served(tmp_path_factory.mktemp("own-broker")).start()
    yield served
    served.end()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, and that says which test made it."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    return f"{test[:28]}.{uuid.uuid4().hex[:8]}"
