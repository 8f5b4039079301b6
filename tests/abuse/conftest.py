# SPDX-License-Identifier: Apache-2.0
"""A broker for those who mean it ill; their clients are those of tests/broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.testing.raw_socket import close_new_sockets
from support.brokers.broker_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def sockets_are_closed() -> Iterator[None]:
    with close_new_sockets():
        yield


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One broker for the tests of a module, which must outlive them."""
    broker = Served(tmp_path_factory.mktemp("abused"), memory=True).start()
    yield broker
    assert broker.running, broker.log()
    broker.end()
