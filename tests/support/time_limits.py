# SPDX-License-Identifier: Apache-2.0
"""Time limits of tests: a test that hangs fails with the stacks of all threads.

pytest-timeout raises in the main thread at the limit, which ends a wait in Python or for a lock.
This plugin adds a longer limit for tests that start Java machines or other programs, the complete
limit for each try, and a limit for the teardown of a failed test. It also ends a process whose main
thread runs no signal handler because it is in C.
"""

from __future__ import annotations

import faulthandler
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

# Limits of tests with a marker, in seconds; the default is in pyproject.toml. All limits exceed
# support.timeouts.PATIENCE_S, so that the error of a wait comes first and names its event.
LONGER_S = {"interop": 600, "slow": 600, "spark": 600}

# The time after a test's limit, in seconds, at which a process that still runs neither Python code
# nor a signal handler prints all stacks and exits. pytest-xdist then starts another process.
GRACE_S = 60.0

SETTINGS = pytest.StashKey[Any]()  # The settings of pytest-timeout, whose class is private.
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # pytest does not capture output yet.


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[STDERR])


@pytest.hookimpl(trylast=True)  # The hooks of folders, which add markers, run before.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        longer = [LONGER_S[mark.name] for mark in item.iter_markers() if mark.name in LONGER_S]
        if longer and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(max(longer)))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Store the limit and set the timer of faulthandler, before pytest-timeout sets its own."""
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
        _restart_timer(item)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    _restart_timer(item)  # A failed test has cancelled the timers.
    return (yield)


def _restart_timer(item: pytest.Item) -> None:
    settings = item.stash.get(SETTINGS, None)
    if settings is not None:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
