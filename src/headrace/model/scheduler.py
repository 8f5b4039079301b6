# SPDX-License-Identifier: Apache-2.0
"""Timers with one deadline for each key."""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_STALE_MIN = 64

log = logging.getLogger(__name__)


class Scheduler:
    """Calls functions when they are due; the caller passes the wall clock in milliseconds."""

    def __init__(self, wake: Callable[[int], None] | None = None) -> None:
        self.wake = wake  # Called when the earliest deadline moves earlier.
        self._due: dict[Hashable, tuple[int, Callable[[int], int]]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._due)

    @property
    def next_ms(self) -> int:
        """The earliest deadline; 0 if there is none."""
        heap = self._heap
        while heap:
            due_ms, _, key = heap[0]
            entry = self._due.get(key)
            if entry is not None and entry[0] == due_ms:
                return due_ms
            heappop(heap)
        return 0

    def put(self, key: Hashable, due_ms: int, call: Callable[[int], int]) -> None:
        """Schedule ``call(now_ms)``, unless ``key`` has an earlier deadline.

        The call returns its next deadline, or 0 for none.
        """
        entry = self._due.get(key)
        if entry is not None and entry[0] <= due_ms:
            return
        earliest = self.next_ms
        self._due[key] = (due_ms, call)
        self._count += 1
        heappush(self._heap, (due_ms, self._count, key))
        if len(self._heap) > 2 * len(self._due) + _STALE_MIN:
            self._heap = [
                (entry[0], number, key) for number, (key, entry) in enumerate(self._due.items())
            ]
            heapify(self._heap)
            self._count = len(self._heap)
        if self.wake is not None and (not earliest or due_ms < earliest):
            self.wake(due_ms)

    def remove(self, key: Hashable) -> None:
        """Cancel the deadline of a key."""
        self._due.pop(key, None)

    def run(self, now_ms: int) -> int:
        """Call the due functions; return the next deadline, 0 if there is none."""
        while True:
            due_ms = self.next_ms
            if not due_ms or due_ms > now_ms:
                return due_ms
            key = heappop(self._heap)[2]
            call = self._due.pop(key)[1]
            try:
                next_call_ms = call(now_ms)
            except Exception:  # A failing call must not stop the others.
                log.exception("a scheduled call failed")
                continue
            if next_call_ms:
                self.put(key, max(next_call_ms, now_ms + 1), call)
