# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: fixtures with a real broker, a fresh one for each test.

Installed with the package; every pytest run loads it, so it imports the broker only when a test
asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.testing.broker import ChildBroker, LocalBroker


@pytest.fixture
def headrace_broker() -> Iterator[LocalBroker]:
    """A broker on a thread of this process, in memory, on a port of its own: `.url`, `.port`."""
    from headrace.testing.broker import LocalBroker

    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def headrace_durable_broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """As `headrace_broker`, on a directory: after `restart()` it has what it kept."""
    from headrace.testing.broker import LocalBroker

    with LocalBroker(tmp_path / "headrace-data") as broker:
        yield broker


@pytest.fixture
def headrace_process(tmp_path: Path) -> Iterator[ChildBroker]:
    """A broker in a process of its own, on a directory: `restart()`, or `kill()` and `start()`."""
    from headrace.testing.broker import ChildBroker

    with ChildBroker(tmp_path / "headrace-data") as broker:
        yield broker
