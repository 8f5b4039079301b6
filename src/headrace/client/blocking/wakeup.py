# SPDX-License-Identifier: Apache-2.0
"""Waits of a thread that a signal can interrupt.

Python handles a signal between two steps of a program, or when the signal interrupts a wait. A
signal between the last step and the wait does neither: Ctrl-C would have no effect until the wait
ends. So no wait is longer than SIGNAL_S, and a long wait consists of many short ones.

A thread waits for a lock, which it acquires in one step. Conditions, and the events, queues and
futures built on them, take several steps: a thread that is interrupted between two steps keeps
their lock, and then both threads wait forever.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNAL_S: Final = 0.5  # The longest delay of such a signal.


class Wakeup:
    """An event that wakes one waiting thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake the thread, now or at its next wait. Only one thread may call this."""
        if self._lock.locked():
            self._lock.release()

    def wait(self, met: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `met` returns True, or for the timeout; return the last value of `met`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not met():
            left = SIGNAL_S if deadline is None else min(SIGNAL_S, deadline - time.monotonic())
            if left <= 0:
                return False
            self._lock.acquire(timeout=left)
        return True
