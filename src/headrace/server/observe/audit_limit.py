# SPDX-License-Identifier: Apache-2.0
"""A limit on the audit log's lines about refused logins and connections.

Each refused login is a line, so a client that tries logins without end would fill the file, and
lines about changes would be rotated away. Therefore each address gets ``LINES_OF_ONE`` lines per
minute, and all addresses together ``LINES_OF_ALL``. Further refusals are counted by address, and
written as one line for each address at the end of the minute.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PERIOD_S = 60.0
LINES_OF_ONE = 30  # Lines of one address in a period.
LINES_OF_ALL = 300  # Lines of all addresses in a period.
COUNTED_MAX = 100  # Addresses with a count of their own; further ones share a line.
OTHERS = "other addresses"
KINDS = frozenset(("login", "connection.refused"))  # Actions that need no login.


class RefusalSummary(NamedTuple):
    """A line that counts the refusals of one kind and address."""

    kind: str
    facts: dict[str, object]


class AuditLimit:
    """Counts the refusals before a login, period by period."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds of a monotonic clock."""
        self._clock = clock
        self._until_s = clock() + PERIOD_S
        self._lines: dict[str, int] = {}  # The lines of this period, by address.
        self._count = 0  # The lines of this period, of all addresses.
        self._refusals: dict[tuple[str, str], int] = {}  # Counted refusals, by kind and address.

    def admits(self, kind: str, allowed: bool, facts: Mapping[str, object]) -> bool:
        """Return True if a line must be written; otherwise count its refusal."""
        if allowed or kind not in KINDS or facts.get("who") is not None:
            return True
        host = strip_port(str(facts.get("from", "")))
        lines = self._lines.get(host, 0)
        if lines < LINES_OF_ONE and self._count < LINES_OF_ALL:
            self._lines[host] = lines + 1
            self._count += 1
            return True
        key = (kind, host)
        if key not in self._refusals and len(self._refusals) >= COUNTED_MAX:
            key = (kind, OTHERS)
        self._refusals[key] = self._refusals.get(key, 0) + 1
        return False

    def take_summaries(self, *, now: bool = False) -> list[RefusalSummary]:
        """Return the summaries of an ended period; with ``now``, end the period first."""
        now_s = self._clock()
        if now_s < self._until_s and not now:
            return []
        self._until_s = now_s + PERIOD_S
        self._lines.clear()
        self._count = 0
        refusals, self._refusals = self._refusals, {}
        return [
            RefusalSummary(
                kind, {"from": host, "times": times, "reason": "more of the same minute"}
            )
            for (kind, host), times in refusals.items()
        ]


def strip_port(peer: str) -> str:
    """Return the address of a peer, without its port."""
    host, colon, port = peer.rpartition(":")
    return host if colon and port.isdecimal() else peer
