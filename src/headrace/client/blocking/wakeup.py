# SPDX-License-Identifier: Apache-2.0
"""Waits of a thread that a signal ends.

Python notices a signal between two steps of a program, or when it wakes one that waits. One that
comes between the last step and the wait does neither: Ctrl-C would be without effect until the wait
ends. So no wait is longer than SIGNAL_S, and long ones are made of many.

A thread waits for a lock, which acquires in one step. Conditions take several, and so do the
events, queues and futures that are made of them: a thread that is interrupted between these keeps
their lock, and the thread that it waits for then waits as well, forever.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNAL_S: Final = 0.5  # The longest that such a signal waits.


class Wakeup:
    """An event that wakes one waiting thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake the thread, now or when it waits next. Called by one thread alone."""
        if self._lock.locked():
            self._lock.release()

    def wait(self, met: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `met`, which a wakeup follows, or the timeout; return what `met` says."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not met():
            left = SIGNAL_S if deadline is None else min(SIGNAL_S, deadline - time.monotonic())
            if left <= 0:
                return False
            self._lock.acquire(timeout=left)
        return True
