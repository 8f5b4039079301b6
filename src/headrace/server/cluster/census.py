# SPDX-License-Identifier: Apache-2.0
"""Which brokers of a cluster live, judged by one of them.

A broker lives until its counter has stood still for the length of a lease. Only time in which the
engine answered counts: while it did not, nobody could advance a counter.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.store.ledger.members import LEFT, RUNNING, BrokerRow


@dataclass(slots=True)
class Watched:
    """A broker, and for how long its counter has stood still."""

    row: BrokerRow
    still_s: float = 0.0


class Census:
    """See the module. Times are of a clock that never goes back."""

    def __init__(self, lease_s: float, beat_s: float) -> None:
        self.lease_s = lease_s
        self.gap_s = 2 * beat_s  # Between two looks more counts as this: the engine was away.
        self.looked_s: float | None = None
        self.watched: dict[str, Watched] = {}

    def look(self, rows: Iterable[BrokerRow], now_s: float) -> None:
        """Take over what the engine says now."""
        passed = 0.0 if self.looked_s is None else min(now_s - self.looked_s, self.gap_s)
        self.looked_s = now_s
        before, self.watched = self.watched, {}
        for row in rows:
            known = before.get(row.name)
            moved = known is None or known.row.seen != row.seen
            still_s = 0.0 if known is None or moved else known.still_s + passed
            self.watched[row.name] = Watched(row, still_s)

    def lives(self, name: str) -> bool:
        """Return True if a broker has not left, and its lease may not have ended."""
        found = self.watched.get(name)
        return found is not None and found.row.state != LEFT and found.still_s < self.lease_s

    def living(self) -> list[BrokerRow]:
        """Return the brokers that live, by name."""
        return [one.row for name, one in sorted(self.watched.items()) if self.lives(name)]

    def members(self) -> list[BrokerRow]:
        """Return the brokers that have not left; first those that live, each part by name.

        One that does not live may be back soon, and a busy machine delays counters.
        """
        rows = [one.row for _, one in sorted(self.watched.items()) if one.row.state != LEFT]
        return sorted(rows, key=lambda row: not self.lives(row.name))

    def shared_address(self) -> str:
        """Return which living brokers have one address, in words; empty if none have."""
        names: dict[str, list[str]] = {}
        for row in self.living():
            names.setdefault(f"{row.host}:{row.port}", []).append(f"'{row.name}'")
        for address, found in names.items():
            if len(found) > 1:
                return (
                    f"brokers {' and '.join(found)} have the same address, {address}: clients do "
                    "not find the right one; set cluster_address"
                )
        return ""

    def takers(self) -> list[str]:
        """Return the brokers that may take virtual hosts."""
        return [row.name for row in self.living() if row.state == RUNNING]
