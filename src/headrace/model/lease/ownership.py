# SPDX-License-Identifier: Apache-2.0
"""Owners of leases.

The client chooses the owner's name. While the owner's last connection is open, and for a timeout
after its end, any other owner is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.model.arguments.values import parse_integer
from headrace.model.errors import IllegalState, PreconditionFailed

if TYPE_CHECKING:
    from headrace.model.counters import Counters
    from headrace.model.lease.lease import Lease
    from headrace.model.scheduler import Scheduler

log = logging.getLogger(__name__)

OWNER_BYTES_MAX = 255
TIMEOUT_S = 30  # The default timeout after the owner's connection is closed.
TIMEOUT_S_MAX = 7 * 86400

KEEP = "keep"  # After the timeout the next owner gets the leased messages.
RELEASE = "release"  # After the timeout the leased messages return to the queue.
ON_TIMEOUT = (KEEP, RELEASE)

_DURABLE = ("owner", "timeout_s", "on_timeout")
_NO_CONNECTION: tuple[int, ...] = ()


@dataclass
class LeaseOwnership:
    """The owner of a lease, empty if it has none, and the terms of its last claim."""

    owner: str = ""
    timeout_s: int = TIMEOUT_S
    on_timeout: str = KEEP
    # The number of the owner's connection; 0 is none.
    connection: int = field(default=0, compare=False)
    seen_ms: int = field(default=0, compare=False)  # The last time at which it was open (ms).

    def remove_owner(self, owner: str) -> bool:
        """Remove the owner; return False if ``owner`` does not own the lease."""
        if self.owner != owner:
            return False
        self.owner = ""
        self.connection = 0
        return True

    def terms(self) -> dict[str, object]:
        """Return the fields that the lease's fact stores."""
        return {name: getattr(self, name) for name in _DURABLE}


def check_terms(timeout_s: int, on_timeout: str) -> None:
    """Refuse invalid terms.

    Raises:
        PreconditionFailed: a term is out of bounds; the text names it.
    """
    if not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise PreconditionFailed(f"a timeout must be 1 to {TIMEOUT_S_MAX} s, not {timeout_s}")
    if on_timeout not in ON_TIMEOUT:
        raise PreconditionFailed(f"on_timeout must be one of {', '.join(ON_TIMEOUT)}")


class LeaseOwnerships(dict["Lease", LeaseOwnership]):
    """The ownership of each lease."""

    def __init__(
        self, counters: Counters, scheduler: Scheduler, on_timeout: Callable[[Lease], None]
    ) -> None:
        """``on_timeout`` is called with a lease whose owner has timed out."""
        super().__init__()
        # Returns True if the connection of that number is open.
        self.is_open: Callable[[int], object] = _NO_CONNECTION.count
        self._counters = counters
        self._scheduler = scheduler
        self._on_owner_timeout = on_timeout

    def live_owner(self, lease: Lease) -> str:
        """Return the live owner of a lease; "" if there is none, or the lease is deleted."""
        ownership = self.get(lease)
        if ownership is None or not ownership.owner:
            return ""
        now_ms = self._counters.now_ms
        if ownership.connection and self.is_open(ownership.connection):
            ownership.seen_ms = now_ms
            return ownership.owner
        return ownership.owner if now_ms < ownership.seen_ms + ownership.timeout_s * 1000 else ""

    def own_lease(self, lease: Lease, owner: str, connection: int, force: bool) -> bool:
        """Set the owner of a lease; return True if it changed.

        Raises:
            IllegalState: another owner is alive, and ``force`` is not set.
            PreconditionFailed: the name is empty or too long.
        """
        if not 0 < len(owner.encode()) <= OWNER_BYTES_MAX:
            raise PreconditionFailed(f"an owner must have 1 to {OWNER_BYTES_MAX} bytes")
        ownership = self[lease]
        now_ms = self._counters.now_ms
        if ownership.owner != owner and not force and self.live_owner(lease):
            left_s = max(0, ownership.seen_ms + ownership.timeout_s * 1000 - now_ms) / 1000
            alive = ownership.connection and self.is_open(ownership.connection)
            raise IllegalState(
                f"the lease of queue '{lease.source.name}' for group '{lease.group}' has an owner, "
                f"'{ownership.owner}', "
                + ("whose connection is open" if alive else f"for another {left_s:.1f} s")
            )
        changed = ownership.owner != owner
        if changed and ownership.owner:
            log.warning("%r: %r takes it over from %r", lease, owner, ownership.owner)
        ownership.owner = owner
        ownership.connection = connection
        ownership.seen_ms = now_ms
        return changed

    def restore(self, lease: Lease, terms: Mapping[str, object]) -> None:
        """Restore the terms of a lease; the owner's timeout starts now."""
        ownership = LeaseOwnership(
            owner=str(terms.get("owner", "")),
            timeout_s=parse_integer(terms.get("timeout_s")) or TIMEOUT_S,
            on_timeout=str(terms.get("on_timeout", KEEP)),
        )
        ownership.seen_ms = self._counters.now_ms
        self[lease] = ownership
        self.watch(lease)

    def remove(self, lease: Lease) -> None:
        """Remove the ownership of a deleted lease."""
        self.pop(lease, None)
        self._scheduler.remove(("owner", lease))

    def watch(self, lease: Lease) -> None:
        """Schedule checks of the owner's connection."""
        key: Hashable = ("owner", lease)
        if self[lease].owner:
            due_ms = self._counters.now_ms + self._pause_ms(lease)
            self._scheduler.put(key, due_ms, lambda now_ms: self._check(lease, now_ms))

    def _pause_ms(self, lease: Lease) -> int:
        return max(100, self[lease].timeout_s * 1000 // 4)

    def _check(self, lease: Lease, now_ms: int) -> int:
        """Remove an owner that has timed out; return the time of the next check, 0 for none."""
        ownership = self.get(lease)
        if ownership is None or lease.deleted or not ownership.owner:
            return 0
        if self.live_owner(lease):
            return now_ms + self._pause_ms(lease)
        log.warning(
            "lease of queue %r for %r: its owner %r is gone",
            lease.source.name,
            lease.group,
            ownership.owner,
        )
        ownership.remove_owner(ownership.owner)
        self._on_owner_timeout(lease)
        return 0
