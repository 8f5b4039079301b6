# SPDX-License-Identifier: Apache-2.0
"""A broker with a management socket, and the system user's connection to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.testing import LocalBroker
from support.management_socket import ManagementClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[LocalBroker]:
    with LocalBroker(data) as local:
        yield local


@pytest.fixture
def operator(broker: LocalBroker, data: Path) -> Iterator[ManagementClient]:
    client = ManagementClient(data / "management.sock")
    yield client
    client.close()
