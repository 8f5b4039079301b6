# SPDX-License-Identifier: Apache-2.0
"""The retry delays in a queue's arguments, which grow with each requeue of a message.

`headrace.model.queue.retry_backoff` delays the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.model.arguments.values import number

if TYPE_CHECKING:
    from collections.abc import Mapping

TYPE = "x-delayed-retry-type"  # all, failed, returned or disabled.
MIN = "x-delayed-retry-min"  # Milliseconds.
MAX = "x-delayed-retry-max"
MULTIPLIER = "x-delayed-retry-multiplier"
TYPES = ("all", "failed", "returned", "disabled")
MIN_MS = 1000  # The default of ``MIN``.
MAX_MS = 0xFFFFFFFF  # About 49 days.


class Backoff(NamedTuple):
    """The delays of one queue."""

    failed: bool  # Delay messages that a consumer rejected with requeue.
    returned: bool  # Delay messages that a consumer released unprocessed.
    min_ms: int
    max_ms: int
    multiplier: int  # 0 if the delay grows by ``min_ms`` each time.

    def delay_ms(self, count: int) -> int:
        """Return the delay of a message that was requeued ``count`` times, at least once."""
        count = max(1, count)
        if self.multiplier:
            delay_ms: int = self.min_ms * self.multiplier ** min(count - 1, 64)
            return min(delay_ms, self.max_ms)
        return min(self.min_ms * count, self.max_ms)


def read_backoff(arguments: Mapping[str, object]) -> Backoff | None:
    """Return the delays in a queue's checked arguments; None without delays."""
    kind = arguments.get(TYPE, "all" if MIN in arguments else "disabled")
    if kind == "disabled":
        return None
    return Backoff(
        kind in ("all", "failed"),
        kind in ("all", "returned"),
        number(arguments.get(MIN, MIN_MS)),
        min(number(arguments.get(MAX, MAX_MS)), MAX_MS),
        number(arguments.get(MULTIPLIER, 0)),
    )
