# SPDX-License-Identifier: Apache-2.0
"""Message interceptors: headers that the broker adds on arrival and on delivery.

- on arrival, the header ``timestamp_in_ms`` and the property ``timestamp``;
- on arrival, the header ``x-routed-by``: the name of this node;
- on delivery, the header ``x-opt-rabbitmq-sent-time``, in milliseconds.

A setting decides whether a header or timestamp that a message already has is overwritten. All are
off by default. Records of streams are not stamped when they are delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMESTAMP_IN_MS = "timestamp_in_ms"
ROUTED_BY = "x-routed-by"
SENT_TIME = "x-opt-rabbitmq-sent-time"

OFF = "off"
KEEP = "keep"
OVERWRITE = "overwrite"


class Stamps(NamedTuple):
    """The headers to add."""

    node: str  # The name of this node.
    timestamp: str = OFF  # ``OFF``, ``KEEP`` or ``OVERWRITE``.
    routed_by: str = OFF
    sent_time: bool = False

    def __bool__(self) -> bool:
        return self.timestamp != OFF or self.routed_by != OFF or self.sent_time

    def make_arrival_stamps(
        self, headers: Mapping[str, object], now_ms: int
    ) -> tuple[dict[str, object], int | None]:
        """Return the headers to add on arrival, and the timestamp (s) to set or None."""
        stamps: dict[str, object] = {}
        timestamp_s = None
        if self.timestamp == OVERWRITE or (
            self.timestamp == KEEP and TIMESTAMP_IN_MS not in headers
        ):
            stamps[TIMESTAMP_IN_MS] = now_ms
            timestamp_s = now_ms // 1000
        if self.routed_by == OVERWRITE or (self.routed_by == KEEP and ROUTED_BY not in headers):
            stamps[ROUTED_BY] = self.node
        return stamps, timestamp_s
