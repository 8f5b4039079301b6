# SPDX-License-Identifier: Apache-2.0
"""Failed logins are answered ever later, by address and by user.

No user is locked out. After some failures each login from that address is held, twice as long
after each and at most ``delay_max_s``, and then checked. An address has ``HELD_MAX`` held logins at
a time, of one name ``HELD_OF_NAME_MAX``, and others beyond are refused unchecked: this bounds how
many guesses are checked in a second. The user of failed logins is held as well, whatever the
address.

An address that a user has logged in from in the last ``USUAL_S`` is usual for that user. There only
failures of that user and address count, with held logins of their own, so that guesses of others
neither delay nor refuse the user. Logins that are remembered (`headrace.gateway.security.access`)
are not delayed. The tables are bounded: when one is full, its oldest entry is forgotten.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

ENTRIES_MAX = 65536  # Of each table.
HELD_MAX = 20  # Logins of an address that wait at a time,
HELD_OF_NAME_MAX = 10  # and of one name among them.
USUAL_S = 7 * 86400.0
NAME_MAX = 255  # Characters of names that are told apart.

Key = TypeVar("Key", bound=Hashable)
Lane = tuple[str, str | None]  # An address with its usual user; None for all others there.


class Failures(Generic[Key]):
    """Failed logins by some key."""

    def __init__(self, forget_s: float) -> None:
        self.forget_s = forget_s
        self._entries: OrderedDict[Key, tuple[int, float]] = OrderedDict()

    def count(self, key: Key, now: float) -> int:
        """Failures in a row."""
        entry = self._entries.get(key)
        if entry is None:
            return 0
        if now - entry[1] >= self.forget_s:
            del self._entries[key]
            return 0
        return entry[0]

    def add(self, key: Key, now: float) -> None:
        """Once more."""
        self._entries[key] = (self.count(key, now) + 1, now)
        self._entries.move_to_end(key)
        if len(self._entries) > ENTRIES_MAX:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


class Held:
    """Logins that wait, by lane; each until a time that was known at its beginning."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Lane, list[tuple[float, str]]] = OrderedDict()

    def add(self, lane: Lane, name: str, now: float, until: float) -> bool:
        """Hold a login of a name; return False if as many are held as may be."""
        held = [attempt for attempt in self._entries.get(lane, ()) if attempt[0] > now]
        of_name = sum(attempt[1] == name for attempt in held)
        fits = len(held) < HELD_MAX and of_name < HELD_OF_NAME_MAX
        if fits:
            held.append((until, name))
        self._entries[lane] = held
        self._entries.move_to_end(lane)
        while len(self._entries) > ENTRIES_MAX or self._is_over(now):
            self._entries.popitem(last=False)
        return fits

    def _is_over(self, now: float) -> bool:
        """Return True if all logins of the least recently used lane have had their turn."""
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
        self._held = Held()
        self._good: OrderedDict[tuple[str, str], float] = OrderedDict()  # When; address and user.

    def limit(
        self, failures_free: int, delay_s: float, delay_max_s: float, forget_s: float
    ) -> None:
        """Set the limits; earlier failures still count."""
        self._free = failures_free
        self._delay_s = delay_s
        self._delay_max_s = delay_max_s
        for table in (self._addresses, self._users, self._usual_failures):
            table.forget_s = forget_s

    def wait_s(self, host: str, name: str) -> float | None:
        """Return the seconds that a login waits; None if it is refused unchecked.

        An empty name stands for all tokens.
        """
        name = name[:NAME_MAX]
        now = self._clock()
        lane: Lane = (host, None)
        if self._is_usual(host, name, now):
            lane, wait_s = (host, name), self._delay(self._usual_failures.count((host, name), now))
        else:
            wait_s = self._delay(self._addresses.count(host, now))
            if name:
                of_user_s = self._delay(self._users.count(name, now))
                if not wait_s:
                    return of_user_s
                wait_s = max(wait_s, of_user_s)
        if wait_s and not self._held.add(lane, name, now, now + wait_s):
            return None
        return wait_s

    def failed(self, host: str, name: str) -> None:
        """A login was wrong."""
        name = name[:NAME_MAX]
        now = self._clock()
        self._addresses.add(host, now)
        if name:
            self._users.add(name, now)
        if self._is_usual(host, name, now):
            self._usual_failures.add((host, name), now)

    def succeeded(self, host: str, name: str) -> None:
        """A login was right."""
        name = name[:NAME_MAX]
        self._good[host, name] = self._clock()
        self._good.move_to_end((host, name))
        if len(self._good) > ENTRIES_MAX:
            self._good.popitem(last=False)

    def _is_usual(self, host: str, name: str, now: float) -> bool:
        since = self._good.get((host, name))
        return since is not None and now - since < USUAL_S

    def _delay(self, failed: int) -> float:
        if failed < self._free or not self._delay_s:
            return 0.0
        return min(self._delay_max_s, self._delay_s * 2.0 ** min(failed - self._free, 32))
