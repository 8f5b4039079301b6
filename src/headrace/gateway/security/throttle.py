# SPDX-License-Identifier: Apache-2.0
"""Failed logins are answered ever later, by address and by user.

No user is locked out. After some failures the next login from that address waits, twice as long
after each and at most ``delay_max_s``; later ones queue behind it, or are refused unchecked when
the queue is as long as that. The user of failed logins waits as well, but in no queue; from an
address with an earlier login, only for failures of that address. Logins that are remembered
(`headrace.gateway.security.access`) are not delayed. The tables are bounded: when one is full, the
oldest failure is forgotten.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

ENTRIES_MAX = 65536  # Of each table.


class Failures:
    """Failed logins by some key."""

    def __init__(self, forget_s: float) -> None:
        self.forget_s = forget_s
        self._entries: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def count(self, key: str, now: float) -> int:
        """Failures in a row."""
        entry = self._entries.get(key)
        if entry is None:
            return 0
        if now - entry[1] >= self.forget_s:
            del self._entries[key]
            return 0
        return entry[0]

    def add(self, key: str, now: float) -> None:
        """Once more."""
        self._entries[key] = (self.count(key, now) + 1, now)
        self._entries.move_to_end(key)
        if len(self._entries) > ENTRIES_MAX:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


class Throttle:
    """Delays logins after failures."""

    def __init__(
        self,
        *,
        failures_free: int = 10,
        delay_s: float = 0.1,
        delay_max_s: float = 5.0,
        forget_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """After ``failures_free`` failures the next waits ``delay_s``, then twice that, and so on.

        With a ``delay_s`` of 0 no login waits.
        """
        self._addresses = Failures(forget_s)
        self._users = Failures(forget_s)
        self._clock = clock
        self.limit(failures_free, delay_s, delay_max_s, forget_s)
        self._lines: OrderedDict[str, float] = OrderedDict()  # When the last of each has its turn.
        self._good: OrderedDict[tuple[str, str], float] = OrderedDict()

    def limit(
        self, failures_free: int, delay_s: float, delay_max_s: float, forget_s: float
    ) -> None:
        """Set the limits; earlier failures still count."""
        self._free = failures_free
        self._delay_s = delay_s
        self._delay_max_s = delay_max_s
        self._forget_s = self._addresses.forget_s = self._users.forget_s = forget_s

    def wait_s(self, host: str, name: str) -> float | None:
        """Return the seconds that a login waits; None if it is refused unchecked.

        With an empty name only the address counts.
        """
        now = self._clock()
        delay_s = self._delay(self._addresses.count(host, now))
        since = self._good.get((host, name))
        if since is not None and now - since < self._forget_s:
            return delay_s
        if delay_s:
            delay_s += max(0.0, self._lines.get(host, now) - now)
            if delay_s > self._delay_max_s:
                return None
            self._lines[host] = now + delay_s
            self._lines.move_to_end(host)
            if len(self._lines) > ENTRIES_MAX:
                self._lines.popitem(last=False)
        return max(delay_s, self._delay(self._users.count(name, now)) if name else 0.0)

    def failed(self, host: str, name: str) -> None:
        """A login was wrong."""
        now = self._clock()
        self._addresses.add(host, now)
        if name:
            self._users.add(name, now)

    def succeeded(self, host: str, name: str) -> None:
        """A login was right."""
        if name:
            self._good[host, name] = self._clock()
            self._good.move_to_end((host, name))
            if len(self._good) > ENTRIES_MAX:
                self._good.popitem(last=False)

    def _delay(self, failed: int) -> float:
        if failed < self._free or not self._delay_s:
            return 0.0
        return min(self._delay_max_s, self._delay_s * 2.0 ** min(failed - self._free, 32))
