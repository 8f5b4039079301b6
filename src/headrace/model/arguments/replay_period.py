# SPDX-License-Identifier: Apache-2.0
"""The replay period: how far back a browser starts, as clients of Broker-J ask for it."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.model.arguments.number import number_of
from headrace.model.errors import InvalidArgument

REPLAY = "x-qpid-replay-period"  # Seconds; 0 starts with new messages.
PERIOD_MAX_S = 999_999_999  # About 30 years.


def replay_period(arguments: Mapping[str, object], what: str) -> int | None:
    """Return the replay period in seconds; None if there is none.

    Raises:
        InvalidArgument: it is no number of seconds.
    """
    value = arguments.get(REPLAY)
    if value is None:
        return None
    period_s = number_of(value)
    if period_s is None or not 0 <= period_s <= PERIOD_MAX_S:
        raise InvalidArgument(
            f"invalid arg '{REPLAY}' for {what}: expected 0 to {PERIOD_MAX_S} seconds"
        )
    return period_s
