# SPDX-License-Identifier: Apache-2.0
"""Limits of connections before their login, and of new connections per second, by address."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

ADDRESSES_MAX = 65536  # Addresses whose rate is measured; beyond it the oldest is forgotten.


class ConnectionGate:
    """Counts connections from accept until their login or close."""

    def __init__(
        self,
        *,
        waiting_max: int = 8192,
        waiting_per_address_max: int = 1024,
        rate_per_address: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``rate_per_address`` is in connections per second, averaged over ten seconds; 0: no
        limit.
        """
        self.limit(waiting_max, waiting_per_address_max, rate_per_address)
        self._clock = clock
        self._waiting: dict[int, str] = {}  # Addresses by the numbers of their connections.
        self._by_address: dict[str, int] = {}
        # The connections that each address may still open, and when that was computed.
        self._allowances: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def limit(
        self, waiting_max: int, waiting_per_address_max: int, rate_per_address: float
    ) -> None:
        """Set the limits for new connections."""
        self._waiting_max = waiting_max
        self._per_address_max = waiting_per_address_max
        self._rate = rate_per_address

    def refusal(self, host: str) -> str:
        """Return why a connection from an address is refused; empty if it is accepted.

        Each call counts for the rate of the address.
        """
        if len(self._waiting) >= self._waiting_max:
            return "handshakes_max is reached"
        if self._by_address.get(host, 0) >= self._per_address_max:
            return "handshakes_per_address_max is reached"
        if self._rate and not self._within_rate(host):
            return "connection_rate_per_address is reached"
        return ""

    def enter(self, number: int, host: str) -> None:
        """Count an accepted connection."""
        self._waiting[number] = host
        self._by_address[host] = self._by_address.get(host, 0) + 1

    def leave(self, number: int) -> None:
        """Stop counting a connection, logged in or closed; may be called twice."""
        host = self._waiting.pop(number, None)
        if host is None:
            return
        count = self._by_address[host] - 1
        if count:
            self._by_address[host] = count
        else:
            del self._by_address[host]

    def __len__(self) -> int:
        return len(self._waiting)

    def _within_rate(self, host: str) -> bool:
        """Take a token from the bucket of an address; return False if the bucket is empty.

        A bucket fills at the rate, up to the connections of ten seconds.
        """
        now_s = self._clock()
        maximum = max(1.0, 10.0 * self._rate)
        allowance, since_s = self._allowances.get(host, (maximum, now_s))
        allowance = min(maximum, allowance + (now_s - since_s) * self._rate)
        allowed = allowance >= 1.0
        self._allowances[host] = (allowance - 1.0 if allowed else allowance, now_s)
        self._allowances.move_to_end(host)
        if len(self._allowances) > ADDRESSES_MAX:
            self._allowances.popitem(last=False)
        return allowed
