# SPDX-License-Identifier: Apache-2.0
"""A schema registry for each test, and a process that knows no schema yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.columns.registry import schemas
from support.spark.fake_registry import FakeRegistry, fake_registry


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry on the loopback address, and an empty cache of schemas."""
    schemas._schemas.clear()
    with fake_registry() as running:
        yield running
    schemas._schemas.clear()
