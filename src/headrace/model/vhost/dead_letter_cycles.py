# SPDX-License-Identifier: Apache-2.0
"""Dead letters that return to a queue in which they died, die too often, or multiply.

A dead letter that returns to a queue in which it has died is dropped, unless a consumer rejected it
on the way; otherwise the cycle would be endless. A message is also dropped after ``UNREJECTED_MAX``
deaths without a rejection, or when its copies would become more than ``SPREAD_MAX``. So one publish
causes a bounded number of messages, however queues are bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.values import as_list
from headrace.model.dead_letter_headers import REJECTED, X_DEATH

if TYPE_CHECKING:
    from collections.abc import Mapping

SPREAD = "x-death-spread"  # Header: number of dead letters from one message; absent: one.
UNREJECTED_MAX = 40  # Deaths since a rejection by a consumer; chains of delay queues need 28.
SPREAD_MAX = 256  # Dead letters from one message; beyond it none of them spreads again.


def is_cycle(queue: str, headers: Mapping[str, object]) -> bool:
    """Return True if a message died in this queue, without a rejection by a consumer since."""
    deaths = as_list(headers.get(X_DEATH))
    if not isinstance(deaths, list):
        return False
    for death in deaths:
        if not isinstance(death, dict) or death.get("reason") == REJECTED:
            return False
        if death.get("queue") == queue:
            return True
    return False


def died_too_often(headers: Mapping[str, object]) -> bool:
    """Return True if a message died ``UNREJECTED_MAX`` times since a consumer rejected it."""
    deaths = headers.get(X_DEATH)
    if not isinstance(deaths, list) or len(deaths) < UNREJECTED_MAX:
        return False
    unrejected = [isinstance(death, dict) and death.get("reason") != REJECTED for death in deaths]
    return all(unrejected[:UNREJECTED_MAX])


def count_spread(headers: Mapping[str, object], reason: str, count: int) -> int:
    """Return the number of dead letters from one message after ``count`` more; 0 if too many."""
    before = headers.get(SPREAD, 1)
    if reason == REJECTED or not isinstance(before, int) or before < 1:
        before = 1
    if before > 1 and count > 1 and before * count > SPREAD_MAX:
        return 0
    return before * count
