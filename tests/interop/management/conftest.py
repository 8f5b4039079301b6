# SPDX-License-Identifier: Apache-2.0
"""The broker with a console that clients of RabbitMQ's HTTP API talk to, one for each module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.console import LocalConsole

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    """A broker with a console."""
    with LocalConsole(tmp_path_factory.mktemp("data")) as running:
        yield running
