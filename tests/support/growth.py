# SPDX-License-Identifier: Apache-2.0
"""How the time of a work grows with its input: a test of an attack needs no clock."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Input = TypeVar("Input")
# For twice the input linear work takes twice as long, quadratic work four times.
DOUBLED_MAX = 2.8
TRIES = 8  # Of a measurement that others of this machine may have disturbed.
SHORTEST_S = 0.002  # A shorter work is measured on a larger input.
DOUBLINGS = 3  # One of them may leave a cache, or begin to ask the system for its memory.
# No limit lets a client send more, so work that is short with this size is not judged.
SIZE_MAX = 1 << 18


def took_s(work: Callable[[Input], object], given: Input) -> float:
    """Return the least processor time of three runs."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        work(given)
        times.append(time.thread_time() - began)
    return min(times)


def growth_of(
    make: Callable[[int], Input], work: Callable[[Input], object], size: int = 1000
) -> float:
    """Return by how much the time grows for a doubling of the input: the least of some in a row.

    A quadratic work takes four times as long at each of them. ``make`` returns an input of a size.
    What stays too short to be measured does not grow: 1.0.
    """
    while took_s(work, make(size)) < SHORTEST_S:
        size *= 2
        if size > SIZE_MAX:
            return 1.0
    least = float("inf")
    for _ in range(TRIES):
        times = [took_s(work, make(size << step)) for step in range(DOUBLINGS + 1)]
        least = min(least, *(after / before for before, after in itertools.pairwise(times)))
        if least <= DOUBLED_MAX:
            break
    return least
