# SPDX-License-Identifier: Apache-2.0
"""The order of the files of a run on several processes.

Files that start Java machines keep the processors busy. Most others wait for disks, child processes
and timers. Therefore the busy files are spread over the run, except for its end, where short files
begin.

The start of a Spark session takes nine seconds of a processor. Files that share a session run in
one process, from the beginning of the run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xdist.remote import Producer

SHARED = (re.compile(r"tests/pipeline/"), re.compile(r"tests/spark/(archive/|test_)"))
BUSY = ("tests/docs/", "tests/fuzz/", "tests/spark/")
SPREAD = 0.85  # The share of other files that begin before the last busy one.


class ByFile(LoadFileScheduling):
    """Runs the tests of a file, and of files that share a Spark session, in one process."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((pattern.pattern for pattern in SHARED if pattern.match(file)), file)


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the items by their files; only in a process of pytest-xdist."""
    if not hasattr(config, "workerinput"):
        return
    files = spread([file_of(item) for item in items])
    positions = {file: position for position, file in enumerate(files)}
    items.sort(key=lambda item: positions[file_of(item)])


def file_of(item: pytest.Item) -> str:
    """Return the path of a test's file, from its node id."""
    return item.nodeid.partition("::")[0]


def spread(files: Sequence[str]) -> list[str]:
    """Return each file once: first those that share a session, then busy ones among the others.

    Busy files are at even distances. Each kind of files keeps its order.
    """
    distinct = list(dict.fromkeys(files))
    shared = [file for file in distinct if any(pattern.match(file) for pattern in SHARED)]
    separate = [file for file in distinct if file not in shared]
    busy = [file for file in separate if file.startswith(BUSY)]
    idle = [file for file in separate if not file.startswith(BUSY)]
    distance = SPREAD * len(idle) / max(len(busy), 1)
    positions = [(distance * index, file) for index, file in enumerate(busy)]
    positions += [(index + 0.5, file) for index, file in enumerate(idle)]
    return shared + [file for _, file in sorted(positions, key=lambda pair: pair[0])]
