# SPDX-License-Identifier: Apache-2.0
"""Limits of connections and requests: of sizes, of times, and of how many are in service.

:mod:`.call` enforces those of bodies; a route may have a larger one.
"""

from __future__ import annotations

import contextlib
import ipaddress
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.console.http_errors import too_many

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

Holder = TypeVar("Holder")

HEADERS_BYTES_MAX = 16 << 10  # The size of all header fields together.
FIELDS_MAX = 64  # Header fields of a request.
FIELD_BYTES_MAX = 8190  # The size of one header field, and of the request line.
SEGMENTS_MAX = 32  # Segments of a path.
BODY_BYTES_MAX = 1 << 20  # The longest body of a route without a bound of its own.
STRANGERS_BYTES_MAX = 128 << 10  # The longest body of a request without a login.
BODY_S = 30.0  # Time to send a body.
WAIT_S = 30.0  # A connection without a whole request's headers is closed after this.
WRITE_S = 60.0  # An answer of which a client takes less than 48 KiB in this time is given up.
CONNECTIONS_MAX = 1024  # A new one replaces the one that waits longest for its client.
REQUESTS_OF_USER_MAX = 64  # Requests of one user in service at the same time.
REQUESTS_OF_STRANGERS_MAX = 64  # Requests without a login from one address at the same time.
REQUESTS_OF_PEER_MAX = 128  # All requests from one address at the same time.
NETWORK_BITS = 64  # The length of the prefix by which IPv6 clients are told apart: a /64 each.


class RunningRequests(Generic[Holder]):
    """Counts the requests in service, by user or by address, and refuses too many."""

    def __init__(
        self,
        requests_max: int,
        end_stalled: Callable[[Collection[Holder]], Holder | None] | None = None,
    ) -> None:
        """``end_stalled`` ends a request that waits for its client; None if there is none."""
        self._requests_max = requests_max
        self._end_stalled = end_stalled
        self._running: dict[str, set[Holder]] = {}

    @contextlib.contextmanager
    def count(self, key: str, holder: Holder) -> Iterator[None]:
        """Count a request while the block runs; it may end one that waits for its client.

        Raises:
            HttpError: too many requests of the key are in service.
        """
        running = self._running.setdefault(key, set())
        if len(running) >= self._requests_max:
            ended = None if self._end_stalled is None else self._end_stalled(running)
            if ended is None:
                raise too_many(f"{self._requests_max} requests are served at a time", closes=True)
            running.discard(ended)
        running.add(holder)
        try:
            yield
        finally:
            running.discard(holder)
            if not running:
                self._running.pop(key, None)


def network_of(host: str) -> str:
    """Return the key that counts the requests of an address: for IPv6 its network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), NETWORK_BITS), strict=False))
