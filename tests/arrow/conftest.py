# SPDX-License-Identifier: Apache-2.0
"""One broker for all tests of this directory, with a user who may read only some streams."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.client import blocking
from headrace.testing.broker import ChildBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

READER = "reader"
PASSWORD = "hunter2-reads-on"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildBroker]:
    """A broker whose user `reader` may read `open.*` only, and may change nothing."""
    data = tmp_path_factory.mktemp("broker") / "data"
    environment = {**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parent.parent)}

    def run(*command: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "headrace.cli", *command[:2], "--data", str(data), *command[2:]],
            input=PASSWORD + "\n",
            text=True,
            check=True,
            env=environment,
        )

    with ChildBroker(data) as running:
        run("user", "add", READER)
        run("permission", "set", READER, "", "", "open.*")
        yield running


@pytest.fixture
def connection(broker: ChildBroker) -> Iterator[blocking.Connection]:
    """A connection of a user who may do anything."""
    with blocking.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def reader_url(broker: ChildBroker) -> str:
    """The URL of the user who may read some streams."""
    return broker.url_of(READER, PASSWORD, "/")


@pytest.fixture
def name() -> str:
    """A name that no other test uses, of a stream that the reader may read."""
    return f"open.{uuid.uuid4().hex[:12]}"
