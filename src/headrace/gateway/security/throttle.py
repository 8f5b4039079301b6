# SPDX-License-Identifier: Apache-2.0
"""Growing delays after failed logins, by address and by user.

No user is locked out. After some failures each login from that address is delayed, twice as long
after each and at most ``delay_max_s``, and then checked. An address has ``HELD_MAX`` delayed logins
at a time, of one name ``HELD_OF_NAME_MAX``, and further ones are refused unchecked: this bounds the
number of guesses per second. Logins of a user with failed ones are delayed as well, from any
address.

An address that a user has logged in from in the last ``USUAL_S`` is usual for that user. There only
failures of that user and address count, with delayed logins of their own, so that guesses of others
neither delay nor refuse the user. Cached logins (`headrace.gateway.security.access`) are not
delayed. The tables are bounded: when one is full, its oldest entry is forgotten.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

ENTRIES_MAX = 65536  # The maximum entries of each table.
HELD_MAX = 20  # Delayed logins of an address at a time.
HELD_OF_NAME_MAX = 10  # The maximum entries of one name among them.
USUAL_S = 7 * 86400.0
NAME_MAX = 255  # Characters of a name that count.

Key = TypeVar("Key", bound=Hashable)
Origin = tuple[str, str | None]  # An address with its usual user; None for all other users.


class Failures(Generic[Key]):
    """Counts of failed logins by address or user."""

    def __init__(self, forget_s: float) -> None:
        self.forget_s = forget_s
        self._entries: OrderedDict[Key, tuple[int, float]] = OrderedDict()

    def count(self, key: Key, now: float) -> int:
        """Return the number of failures in a row."""
        entry = self._entries.get(key)
        if entry is None:
            return 0
        if now - entry[1] >= self.forget_s:
            del self._entries[key]
            return 0
        return entry[0]

    def add(self, key: Key, now: float) -> None:
        """Count one more failure."""
        self._entries[key] = (self.count(key, now) + 1, now)
        self._entries.move_to_end(key)
        if len(self._entries) > ENTRIES_MAX:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


class DelayedLogins:
    """The delayed logins of each origin, and when each is checked."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Origin, list[tuple[float, str]]] = OrderedDict()

    def add(self, origin: Origin, name: str, now: float, until: float) -> bool:
        """Add a login of a name; return False if the origin or the name has too many."""
        delayed = [login for login in self._entries.get(origin, ()) if login[0] > now]
        of_name = sum(login[1] == name for login in delayed)
        fits = len(delayed) < HELD_MAX and of_name < HELD_OF_NAME_MAX
        if fits:
            delayed.append((until, name))
        self._entries[origin] = delayed
        self._entries.move_to_end(origin)
        while len(self._entries) > ENTRIES_MAX or self._oldest_is_over(now):
            self._entries.popitem(last=False)
        return fits

    def _oldest_is_over(self, now: float) -> bool:
        """Return True if no login of the least recently used origin is delayed any longer."""
        return all(until <= now for until, _ in next(iter(self._entries.values())))

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
        self._addresses: Failures[str] = Failures(forget_s)
        self._users: Failures[str] = Failures(forget_s)
        self._usual_failures: Failures[tuple[str, str]] = Failures(forget_s)
        self._clock = clock
        self.limit(failures_free, delay_s, delay_max_s, forget_s)
        self._delayed = DelayedLogins()
        #: The time of the last successful login, by address and user.
        self._successes: OrderedDict[tuple[str, str], float] = OrderedDict()

    def limit(
        self, failures_free: int, delay_s: float, delay_max_s: float, forget_s: float
    ) -> None:
        """Set the limits; earlier failures still count."""
        self._failures_free = failures_free
        self._delay_s = delay_s
        self._delay_max_s = delay_max_s
        for table in (self._addresses, self._users, self._usual_failures):
            table.forget_s = forget_s

    def wait_s(self, host: str, name: str) -> float | None:
        """Return the delay of a login in seconds; None if it is refused unchecked.

        An empty name stands for all tokens.
        """
        name = name[:NAME_MAX]
        now = self._clock()
        origin: Origin = (host, None)
        if self._is_usual(host, name, now):
            origin = (host, name)
            wait_s = self._delay(self._usual_failures.count(origin, now))
        else:
            wait_s = self._delay(self._addresses.count(host, now))
            if name:
                user_wait_s = self._delay(self._users.count(name, now))
                if not wait_s:
                    return user_wait_s
                wait_s = max(wait_s, user_wait_s)
        if wait_s and not self._delayed.add(origin, name, now, now + wait_s):
            return None
        return wait_s

    def record_failure(self, host: str, name: str) -> None:
        """Count a failed login."""
        name = name[:NAME_MAX]
        now = self._clock()
        self._addresses.add(host, now)
        if name:
            self._users.add(name, now)
        if self._is_usual(host, name, now):
            self._usual_failures.add((host, name), now)

    def record_success(self, host: str, name: str) -> None:
        """Record a successful login: the address is usual for the user now."""
        name = name[:NAME_MAX]
        self._successes[host, name] = self._clock()
        self._successes.move_to_end((host, name))
        if len(self._successes) > ENTRIES_MAX:
            self._successes.popitem(last=False)

    def _is_usual(self, host: str, name: str, now: float) -> bool:
        last_s = self._successes.get((host, name))
        return last_s is not None and now - last_s < USUAL_S

    def _delay(self, failures: int) -> float:
        if failures < self._failures_free or not self._delay_s:
            return 0.0
        exponent = min(failures - self._failures_free, 32)
        return min(self._delay_max_s, self._delay_s * 2.0**exponent)
