# SPDX-License-Identifier: Apache-2.0
"""The thread that writes, and who waits for it."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.store.disk import Disk
from headrace.store.segment.writer import Writer

MANY = 1100  # More than select() can tell apart.


class Nothing:
    """A job without work."""

    def run(self, disk: Disk) -> None:
        """Do nothing."""


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * MANY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * MANY, hard), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(MANY)]
    yield
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_a_store_is_waited_for_beside_a_thousand_connections(tmp_path: Path) -> None:
    writer = Writer(Disk(), str(tmp_path), free_min=0, threaded=True)
    assert writer.wake_fd > MANY
    writer.submit(Nothing())
    assert writer.wait()
    assert writer.stop()


def test_what_is_stepped_through_holds_no_descriptor(tmp_path: Path) -> None:
    writer = Writer(Disk(), str(tmp_path), free_min=0, threaded=False)
    assert writer.wake_fd < 0
    writer.submit(Nothing())
    assert writer.wait()
    assert writer.stop()
