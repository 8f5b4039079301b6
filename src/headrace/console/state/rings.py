# SPDX-License-Identifier: Apache-2.0
"""Samples of an object's counters over the last ten minutes."""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass
from operator import itemgetter

SAMPLE_S = 5  # Between two samples,
KEPT_S = 605  # which are kept for so long.
SAMPLES_MAX = KEPT_S // SAMPLE_S + 1
POINTS_MAX = 500  # Of an answer.
MS = 1000

Values = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Which samples a request asks for."""

    age_s: int
    incr_s: int


class Ring:
    """The samples of one object. One is kept where a value changed, so idle objects cost little."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Values]] = deque(maxlen=SAMPLES_MAX)

    def add(self, at_ms: int, values: Values) -> None:
        """Add the values of a moment; moments within one interval are one sample."""
        samples = self._samples
        if samples and samples[-1][1] == values:
            return
        if len(samples) > 1 and at_ms - samples[-2][0] < SAMPLE_S * MS:
            samples.pop()
        samples.append((at_ms, values))

    def value(self, column: int, at_ms: int) -> int:
        """Return a value as it was at a moment; before the first sample that of the first."""
        samples = self._samples
        if not samples:
            return 0
        place = bisect.bisect_right(samples, at_ms, key=itemgetter(0))
        return samples[max(0, place - 1)][1][column]

    def values(self, at_ms: int) -> Values:
        """Return all values as they were at a moment."""
        place = bisect.bisect_right(self._samples, at_ms, key=itemgetter(0))
        return self._samples[max(0, place - 1)][1] if self._samples else ()

    def moments(self) -> list[int]:
        """Return the moments of the samples."""
        return [at_ms for at_ms, _ in self._samples]

    def rate(self, column: int, now_ms: int) -> float:
        """Return the change a second over the last interval."""
        began_ms = now_ms - SAMPLE_S * MS
        if not self._samples or self._samples[-1][0] <= began_ms:
            return 0.0
        before = self.value(column, began_ms)
        return (self.value(column, now_ms) - before) / SAMPLE_S

    def details(self, column: int, now_ms: int, window: Window | None) -> dict[str, object]:
        """Return the rate, and with a window average and samples, the newest first."""
        found: dict[str, object] = {"rate": self.rate(column, now_ms)}
        if window is None:
            return found
        step = window.incr_s * MS
        latest = now_ms - now_ms % (SAMPLE_S * MS)
        moments = [latest - step * place for place in range(window.age_s // window.incr_s + 1)]
        samples = [(self.value(column, at), at) for at in moments]
        first, last = samples[-1], samples[0]
        seconds = (last[1] - first[1]) / MS
        found["avg"] = sum(value for value, _ in samples) / len(samples)
        found["avg_rate"] = (last[0] - first[0]) / seconds if seconds else 0.0
        found["samples"] = [{"sample": value, "timestamp": at} for value, at in samples]
        return found
