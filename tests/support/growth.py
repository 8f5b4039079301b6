# SPDX-License-Identifier: Apache-2.0
"""Measure how the time of a function grows with its input, without a limit in seconds."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Input = TypeVar("Input")
# For twice the input linear work takes twice as long, and quadratic work four times.
DOUBLED_MAX = 2.8
TRIES = 8  # Repetitions of the measurement, as other processes may disturb it.
SHORTEST_S = 0.002  # Shorter work is measured on a larger input.
DOUBLINGS = 3  # One of them may exceed a cache, or require memory from the system.
# Clients cannot send larger inputs, so work that is short at this size is accepted.
SIZE_MAX = 1 << 18


def measure_s(work: Callable[[Input], object], value: Input) -> float:
    """Return the shortest of three runs, in seconds of processor time."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        work(value)
        times.append(time.thread_time() - began)
    return min(times)


def growth_of(
    make: Callable[[int], Input], work: Callable[[Input], object], size: int = 1000
) -> float:
    """Return the smallest factor by which the time grows at one of several doublings of the input.

    Quadratic work takes four times as long at each doubling. ``make`` returns an input of a size.
    The result is 1.0 if the work is too short to be measured.
    """
    while measure_s(work, make(size)) < SHORTEST_S:
        size *= 2
        if size > SIZE_MAX:
            return 1.0
    smallest = float("inf")
    for _ in range(TRIES):
        times = [measure_s(work, make(size << step)) for step in range(DOUBLINGS + 1)]
        smallest = min(smallest, *(after / before for before, after in itertools.pairwise(times)))
        if smallest <= DOUBLED_MAX:
            break
    return smallest
