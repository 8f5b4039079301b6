# SPDX-License-Identifier: Apache-2.0
"""Clients of the classes file and stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.spec.tables import V0_8, V0_9, Version
from support.clients.file_class_client import FileClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.brokers.broker_process import Served


@pytest.fixture(params=[V0_8, V0_9], ids=["0-8", "0-9"])
def version(request: pytest.FixtureRequest) -> Version:
    found: Version = request.param
    return found


@pytest.fixture
def client(served: Served, version: Version) -> Iterator[Callable[[], FileClient]]:
    """Open clients of a version; what is open at the end is closed."""
    opened: list[FileClient] = []

    def open_one() -> FileClient:
        opened.append(FileClient(served.host, served.port, version).open())
        return opened[-1]

    yield open_one
    for one in opened:
        one.drop()
