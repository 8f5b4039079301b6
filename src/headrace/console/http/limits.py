# SPDX-License-Identifier: Apache-2.0
"""Limits of connections and requests: their sizes, their times, and their numbers.

:mod:`.request_body` enforces the limits of bodies. A route may allow a longer body.
:mod:`.server` counts the running requests; one too many is answered 429.
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
WRITE_S = 60.0  # A client that reads less than 48 KiB of an answer in this time is disconnected.
CONNECTIONS_MAX = 1024  # A further one replaces the one that waits longest for its client.
REQUESTS_OF_USER_MAX = 64  # Requests of one user in service at the same time.
REQUESTS_OF_STRANGERS_MAX = 64  # Requests without a login from one address at the same time.
REQUESTS_OF_PEER_MAX = 128  # All requests from one address at the same time.
NETWORK_BITS = 64  # IPv6 clients with the same prefix of this length count as one.


class RunningRequests(Generic[Holder]):
    """Counts the requests in service, by user or by address, and refuses too many."""

    def __init__(
        self,
        requests_max: int,
        end_stalled: Callable[[Collection[Holder]], Holder | None] | None = None,
    ) -> None:
        """``end_stalled`` ends one of the requests that wait for their clients, and returns it.

        It returns None if no request waits. Without ``end_stalled`` no request is ended.
        """
        self._requests_max = requests_max
        self._end_stalled = end_stalled
        self._running: dict[str, set[Holder]] = {}

    @contextlib.contextmanager
    def count(self, key: str, holder: Holder) -> Iterator[None]:
        """Count a request while the block runs, which may end another one that is stalled.

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


def client_network(host: str) -> str:
    """Return the key by which requests of an address are counted: for IPv6 its network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), NETWORK_BITS), strict=False))
