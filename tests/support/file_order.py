# SPDX-License-Identifier: Apache-2.0
"""The order of the files of a run on several processes.

Files that start Java machines keep the processors busy; most others wait, for disks, children and
timers. One after the other, each kind leaves idle what the other could use. So the busy ones are
spread over the run, but for its end: what begins last is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

BUSY = ("tests/docs/", "tests/fuzz/", "tests/pipeline/", "tests/spark/")
SPREAD = 0.85  # So much of the other files have begun when the last busy one begins.


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
    """Return each file once, with the busy ones at even distances among the others.

    Either kind keeps its order: files that share a session of Spark stay neighbours in theirs.
    """
    once = list(dict.fromkeys(files))
    busy = [one for one in once if one.startswith(BUSY)]
    others = [one for one in once if not one.startswith(BUSY)]
    distance = SPREAD * len(others) / max(len(busy), 1)
    places = [(distance * place, one) for place, one in enumerate(busy)]
    places += [(place + 0.5, one) for place, one in enumerate(others)]
    return [one for _, one in sorted(places, key=lambda pair: pair[0])]
