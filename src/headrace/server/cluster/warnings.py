# SPDX-License-Identifier: Apache-2.0
"""Warnings to operators before clients notice: a short lease, copies far behind, different leases,
and faults of the database or of an address.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.events import Events

log = logging.getLogger(__name__)

LEASE_SHORT = 1 / 2  # Warn when less of the lease is left; a heartbeat usually leaves 9/10.
BEHIND_MAX = 1000  # Entries that a copy may lack without a warning.
BEHIND_S = 10.0  # The time for which a copy may lack more than these.
LEASE, COPY, DATABASE, ADDRESS, LEASES = "lease", "copy", "database", "address", "leases"
HARMLESS = (ADDRESS, LEASES)  # The subjects whose warnings do not affect service.


class Warned(NamedTuple):
    """The subject of a warning."""

    subject: str  # LEASE, COPY, DATABASE, ADDRESS or LEASES.
    vhost: str = ""  # The virtual host of a copy.


class ClusterWarnings:
    """Logs each warning once and emits an event, when it becomes active and when it is cleared."""

    def __init__(self, events: Events) -> None:
        self.active: dict[Warned, str] = {}
        self._events = events
        # The times since which copies lack more than ``BEHIND_MAX`` entries, by virtual host.
        self._behind: dict[str, float] = {}

    def check(
        self,
        now_s: float,
        lease_left: float | None,
        behind: Mapping[str, int],
        problems: Mapping[str, str],
    ) -> None:
        """Update the active warnings from the state of the cluster.

        Args:
            now_s: the time by a monotonic clock.
            lease_left: the part of the lease that is left, 0 to 1; None if the broker serves no
                virtual host, or if its lease has ended, which is an alarm instead of a warning.
            behind: the number of entries that each copy lacks, by virtual host.
            problems: texts of further warnings by subject; an empty text clears the warning.
        """
        warnings = {Warned(subject): text for subject, text in problems.items() if text}
        if lease_left is not None and lease_left < LEASE_SHORT:
            warnings[Warned(LEASE)] = (
                "the lease of this broker is nearly lost: the database does not answer"
            )
        far = {vhost: count for vhost, count in behind.items() if count > BEHIND_MAX}
        self._behind = {vhost: self._behind.get(vhost, now_s) for vhost in far}
        for vhost, since_s in self._behind.items():
            if now_s - since_s >= BEHIND_S:
                warnings[Warned(COPY, vhost)] = (
                    f"the copy of vhost '{vhost}' is behind by {far[vhost]} entries"
                )
        for subject in sorted(warnings.keys() - self.active.keys()):
            log.warning("%s", warnings[subject])
            if self._events.has_listeners:
                why = warnings[subject]
                self._events.emit("cluster.warning.set", vhost=subject.vhost, reason=why)
        for subject in sorted(self.active.keys() - warnings.keys()):
            log.warning("no longer: %s", self.active[subject])
            if self._events.has_listeners:
                why = self.active[subject]
                self._events.emit("cluster.warning.cleared", vhost=subject.vhost, reason=why)
        self.active = warnings
