# SPDX-License-Identifier: Apache-2.0
"""A broker in the test's process that keeps its data, for commands that change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.testing import LocalBroker

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
