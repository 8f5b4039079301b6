# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a broker in the test's process, one for each module that asks for it, and a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.client import blocking
from headrace.testing import LocalBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker that stores nothing."""
    with LocalBroker() as running:
        yield running


@pytest.fixture
def connection(broker: LocalBroker) -> Iterator[blocking.Connection]:
    """A connection to that broker."""
    with blocking.connect(broker.url) as opened:
        yield opened
