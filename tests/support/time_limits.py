# SPDX-License-Identifier: Apache-2.0
"""The time of a test: what hangs fails, with the stacks of all threads, and the others go on.

pytest-timeout raises in the main thread when the time is over, which ends what waits in Python or
for a lock. This plugin adds: more time for tests that start Java machines or programs of others,
the whole time for each try, a limit for the teardown of a test that failed, and an end for a
process whose main thread hears no signal, since it is in C.
"""

from __future__ import annotations

import faulthandler
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

# Seconds for tests with one of these markers; the default is in pyproject.toml. Both are beyond
# support.timeouts.PATIENCE_S, so that a test that waits for an event says which.
LONGER_S = {"interop": 600, "slow": 600, "spark": 600}

# Seconds after a test's time in which its process, which goes on neither in Python nor in a
# signal handler, prints all stacks and exits. pytest-xdist reports that test and starts another.
GRACE_S = 60.0

SETTINGS = pytest.StashKey[Any]()  # Of pytest-timeout, whose class of it has no public name.
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # Before a test's output is captured.


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[STDERR])


@pytest.hookimpl(trylast=True)  # Folders add markers before.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        longer = [LONGER_S[mark.name] for mark in item.iter_markers() if mark.name in LONGER_S]
        if longer and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(max(longer)))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Note the limit and bound it; pytest-timeout then sets its timer."""
    item.stash[SETTINGS] = settings
    faulthandler.dump_traceback_later(
        settings.timeout + GRACE_S, exit=True, file=item.config.stash[STDERR]
    )


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    if getattr(item, "execution_count", 1) > 1:
        _begin_anew(item)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    _begin_anew(item)  # A failure, also by the time, has cancelled the timers.
    return (yield)


def _begin_anew(item: pytest.Item) -> None:
    settings = item.stash.get(SETTINGS, None)
    if settings is not None:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
