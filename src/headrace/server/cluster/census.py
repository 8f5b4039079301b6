# SPDX-License-Identifier: Apache-2.0
"""Which brokers of a cluster live, judged by one of them.

A broker lives until its counter has stood still for the length of its lease, which its row has
beside the counter: the lease that it serves by itself, whatever those who look have. Only time in
which the engine answered counts: while it did not, no broker could advance a counter.
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
        self.lease_s = lease_s  # Of brokers whose version writes none.
        # A longer time between two updates counts as this: the engine was away.
        self.gap_s = 2 * beat_s
        self.updated_s: float | None = None
        self.watched: dict[str, Watched] = {}

    def update(self, rows: Iterable[BrokerRow], now_s: float) -> None:
        """Note the rows that the engine has now."""
        passed = 0.0 if self.updated_s is None else min(now_s - self.updated_s, self.gap_s)
        self.updated_s = now_s
        before, self.watched = self.watched, {}
        for row in rows:
            former = before.get(row.name)
            moved = former is None or former.row.seen != row.seen
            still_s = 0.0 if former is None or moved else former.still_s + passed
            self.watched[row.name] = Watched(row, still_s)

    def lives(self, name: str) -> bool:
        """Return True if a broker has not left, and its lease may not have ended."""
        watched = self.watched.get(name)
        if watched is None or watched.row.state == LEFT:
            return False
        return watched.still_s < self.lease_of(watched.row)

    def lease_of(self, row: BrokerRow) -> float:
        """Return the lease of a broker, in seconds."""
        return row.lease_s or self.lease_s

    def living(self) -> list[BrokerRow]:
        """Return the brokers that live, by name."""
        return [watched.row for name, watched in sorted(self.watched.items()) if self.lives(name)]

    def members(self) -> list[BrokerRow]:
        """Return the brokers that have not left; first those that live, each part by name.

        One that does not live may be back soon, and a busy machine delays counters.
        """
        rows = [
            watched.row for _, watched in sorted(self.watched.items()) if watched.row.state != LEFT
        ]
        return sorted(rows, key=lambda row: not self.lives(row.name))

    def shared_address(self) -> str:
        """Return which living brokers have one address, in words; empty if none have."""
        names: dict[str, list[str]] = {}
        for row in self.living():
            names.setdefault(f"{row.host}:{row.port}", []).append(f"'{row.name}'")
        for address, sharing in names.items():
            if len(sharing) > 1:
                return (
                    f"brokers {' and '.join(sharing)} have the same address, {address}: clients do "
                    "not find the right one; set cluster_address"
                )
        return ""

    def unequal_leases(self) -> str:
        """Return which living brokers have which leases, in words; empty if all have one."""
        names: dict[float, list[str]] = {}
        for row in self.living():
            names.setdefault(self.lease_of(row), []).append(f"'{row.name}'")
        if len(names) < 2:
            return ""
        by_length = sorted(names.items())
        leases = ", ".join(f"{lease_s:g} s ({', '.join(who)})" for lease_s, who in by_length)
        return (
            f"the brokers have different leases, {leases}: each is replaced after its own; set one "
            "cluster_lease_s"
        )

    def takers(self) -> list[str]:
        """Return the brokers that may take virtual hosts."""
        return [row.name for row in self.living() if row.state == RUNNING]
