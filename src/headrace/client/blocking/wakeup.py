# SPDX-License-Identifier: Apache-2.0
"""A blocking wait that Ctrl-C can always interrupt.

Python runs a signal handler between two bytecodes, or when the signal interrupts a wait. A signal
that arrives after the last bytecode and before the wait is handled after the wait only. So a long
wait is split into waits of at most SIGNAL_DELAY_MAX_S seconds.

The wait acquires a plain lock, which is one step. `threading.Condition`, and the events, queues
and futures built on it, take several steps: an exception between two of them leaves their lock
acquired, and both threads wait forever.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNAL_DELAY_MAX_S: Final = 0.5  # The maximum delay of a signal that arrives just before a wait.


class Wakeup:
    """An event that wakes one waiting thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake the thread, or end its next wait at once. Only one thread may call this."""
        if self._lock.locked():
            self._lock.release()

    def wait(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait at most `timeout_s` seconds until `condition` is True; return its last value."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not condition():
            wait_s = SIGNAL_DELAY_MAX_S
            if deadline is not None:
                wait_s = min(wait_s, deadline - time.monotonic())
            if wait_s <= 0:
                return False
            self._lock.acquire(timeout=wait_s)
        return True
