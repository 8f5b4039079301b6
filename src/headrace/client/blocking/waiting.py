# SPDX-License-Identifier: Apache-2.0
"""Waits of a thread that a signal ends.

Python notices a signal between two steps of a program, or when it wakes one that waits. One that
comes between the last step and the wait does neither: Ctrl-C would be without effect until the wait
ends. So no wait is longer than SIGNAL_S, and long ones are made of many.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from concurrent.futures import Future

SIGNAL_S: Final = 0.5  # The longest that such a signal waits.

Result = TypeVar("Result")


def outcome(future: Future[Result]) -> Result:
    """Wait for a future; return its result or raise its error."""
    while not future.done():
        try:
            return future.result(SIGNAL_S)
        except TimeoutError:  # Of the wait, or of the work.
            pass
    return future.result()


def wait_for(
    condition: threading.Condition, met: Callable[[], bool], timeout_s: float | None
) -> bool:
    """Wait on a condition that is held, until `met` or the timeout; return what `met` says."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while not met():
        left = SIGNAL_S if deadline is None else min(SIGNAL_S, deadline - time.monotonic())
        if left <= 0:
            return False
        condition.wait(left)
    return True
