# SPDX-License-Identifier: Apache-2.0
"""A broker in this process for the tests of a module that ask for it, and a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.client import blocking
from headrace.testing import LocalBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker that keeps nothing."""
    with LocalBroker() as running:
        yield running


@pytest.fixture
def connection(broker: LocalBroker) -> Iterator[blocking.Connection]:
    """A connection to it."""
    with blocking.connect(broker.url) as opened:
        yield opened
