# SPDX-License-Identifier: Apache-2.0
"""The order of the files of a run on several processes.

Files that start Java machines keep the processors busy; most others wait, for disks, children and
timers. One after the other, each kind leaves idle what the other could use. So the busy ones are
spread over the run, but for its end: what begins last is short.

A session of Spark takes nine seconds of a processor to begin. Files that share one run in one
process, from the beginning of the run.
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
SPREAD = 0.85  # So much of the other files have begun when the last busy one begins.


class ByFile(LoadFileScheduling):
    """The tests of a file run in one process, and so do those of files that share a session."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((each.pattern for each in SHARED if each.match(file)), file)


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the items by their files; only in a process of pytest-xdist."""
    if not hasattr(config, "workerinput"):
        return
    places = {file: place for place, file in enumerate(spread([file_of(one) for one in items]))}
    items.sort(key=lambda one: places[file_of(one)])


def file_of(item: pytest.Item) -> str:
    """Return the file of a test, as its name begins."""
    return item.nodeid.partition("::")[0]


def spread(files: Sequence[str]) -> list[str]:
    """Return each file once: those that share a session, then the busy ones among the others.

    The busy ones are at even distances. Each kind keeps its order.
    """
    once = list(dict.fromkeys(files))
    shared = [file for file in once if any(each.match(file) for each in SHARED)]
    rest = [file for file in once if file not in shared]
    busy = [file for file in rest if file.startswith(BUSY)]
    others = [file for file in rest if not file.startswith(BUSY)]
    distance = SPREAD * len(others) / max(len(busy), 1)
    places = [(distance * place, file) for place, file in enumerate(busy)]
    places += [(place + 0.5, file) for place, file in enumerate(others)]
    return shared + [file for _, file in sorted(places, key=lambda pair: pair[0])]
