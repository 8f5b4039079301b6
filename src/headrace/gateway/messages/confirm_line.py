# SPDX-License-Identifier: Apache-2.0
"""Answers that wait until what they promise is on disk.

One line per store: a channel that must wait joins with the log position that has to be durable
first. Positions only grow, so the line is first-in first-out, and its head shows whether any answer
can be sent. A batch of publishes of one read is one place in the line.
"""

from collections import deque
from typing import Protocol

import cython

if not cython.compiled:
    from headrace.model.ports import Store


#: What is said of a change that was not answered before the disk failed.
NOT_KEPT = (
    "definitions cannot be written to disk: what was changed last may be gone after a restart"
)


class Waiter(Protocol):
    """A member of the line; ``token`` is what it joined with."""

    def released(self, token: int) -> None:
        """The log is durable up to the position of ``token``."""


class ConfirmLine:
    """Those who wait for one store's watermark."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.line: deque[tuple[int, Waiter, int]] = deque()

    def join(self, waiter: Waiter, token: int) -> None:
        """Wait for all that was appended so far; at once when nothing is owed."""
        if not self.line and self.store.synced >= self.store.appended:
            waiter.released(token)
            return
        self.line.append((self.store.appended, waiter, token))

    def advance(self) -> None:
        """The watermark moved: release whom it passed."""
        synced = self.store.synced
        line = self.line
        while line and line[0][0] <= synced:
            _, waiter, token = line.popleft()
            waiter.released(token)
