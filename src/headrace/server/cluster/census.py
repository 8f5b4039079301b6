# SPDX-License-Identifier: Apache-2.0
"""The brokers of a cluster that are alive, as one broker judges from the rows of the database.

Each broker advances a counter in its row with every heartbeat. A broker counts as dead once its
counter is unchanged for its lease. The lease is read from the row, because a broker serves by its
own setting of it. Only time in which the database answered counts: during an outage no broker can
advance its counter.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.store.ledger.members import LEFT, RUNNING, BrokerRow


@dataclass(slots=True)
class WatchedBroker:
    """The row of a broker, and the time for which its counter is unchanged."""

    row: BrokerRow
    unchanged_s: float = 0.0


class Census:
    """The latest rows of all brokers. Times are seconds of a monotonic clock."""

    def __init__(self, lease_s: float, beat_s: float) -> None:
        self.lease_s = lease_s  # The lease of brokers whose version writes none.
        # The most time that counts between two updates: a longer gap is an outage of the database.
        self.gap_max_s = 2 * beat_s
        self.updated_s: float | None = None
        self.watched: dict[str, WatchedBroker] = {}

    def update(self, rows: Iterable[BrokerRow], now_s: float) -> None:
        """Replace the rows by those that the database had at ``now_s``."""
        passed_s = 0.0 if self.updated_s is None else min(now_s - self.updated_s, self.gap_max_s)
        self.updated_s = now_s
        previous, self.watched = self.watched, {}
        for row in rows:
            former = previous.get(row.name)
            has_advanced = former is None or former.row.seen != row.seen
            unchanged_s = 0.0 if former is None or has_advanced else former.unchanged_s + passed_s
            self.watched[row.name] = WatchedBroker(row, unchanged_s)

    def is_alive(self, name: str) -> bool:
        """Return True if a broker has not left the cluster, and its lease may still run."""
        watched = self.watched.get(name)
        if watched is None or watched.row.state == LEFT:
            return False
        return watched.unchanged_s < self.effective_lease_s(watched.row)

    def effective_lease_s(self, row: BrokerRow) -> float:
        """Return the lease of a broker in seconds: that of its row, or else this broker's own."""
        return row.lease_s or self.lease_s

    def alive(self) -> list[BrokerRow]:
        """Return the brokers that are alive, sorted by name."""
        return [
            watched.row for name, watched in sorted(self.watched.items()) if self.is_alive(name)
        ]

    def members(self) -> list[BrokerRow]:
        """Return the brokers that have not left: first the living, then the dead, each by name.

        Dead ones are included: they may come back, or a busy machine may have delayed a heartbeat.
        """
        rows = [
            watched.row for _, watched in sorted(self.watched.items()) if watched.row.state != LEFT
        ]
        return sorted(rows, key=lambda row: not self.is_alive(row.name))

    def shared_address(self) -> str:
        """Return a warning that living brokers have the same address; empty if none do."""
        names: dict[str, list[str]] = {}
        for row in self.alive():
            names.setdefault(f"{row.host}:{row.port}", []).append(f"'{row.name}'")
        for address, sharing in names.items():
            if len(sharing) > 1:
                return (
                    f"brokers {' and '.join(sharing)} have the same address, {address}: clients do "
                    "not find the right one; set cluster_address"
                )
        return ""

    def unequal_leases(self) -> str:
        """Return a warning that living brokers have different leases; empty if all agree."""
        names: dict[float, list[str]] = {}
        for row in self.alive():
            names.setdefault(self.effective_lease_s(row), []).append(f"'{row.name}'")
        if len(names) < 2:
            return ""
        by_length = sorted(names.items())
        leases = ", ".join(f"{lease_s:g} s ({', '.join(who)})" for lease_s, who in by_length)
        return (
            f"the brokers have different leases, {leases}: each is replaced after its own; set one "
            "cluster_lease_s"
        )

    def available_brokers(self) -> list[str]:
        """Return the names of the brokers that may take virtual hosts: alive, and not draining."""
        return [row.name for row in self.alive() if row.state == RUNNING]
