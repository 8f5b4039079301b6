# SPDX-License-Identifier: Apache-2.0
"""Limits of requests and connections, which apply before anything is read."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.console.http.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

Holder = TypeVar("Holder")

HEADERS_BYTES_MAX = 16 << 10  # Of all header fields together.
FIELDS_MAX = 64  # Header fields of a request.
FIELD_BYTES_MAX = 8190  # Of one field, and of the request line.
SEGMENTS_MAX = 32  # Of a path.
BODY_BYTES_MAX = 1 << 20  # Unless the route says otherwise.
STRANGERS_BYTES_MAX = 128 << 10  # Of a body without a login.
BODY_S = 30.0  # Time to send a body.
WAIT_S = 30.0  # A connection without a whole request's headers is closed after this.
WRITE_S = 60.0  # An answer of which a client takes less than 48 KiB in this time is given up.
CONNECTIONS_MAX = 1024  # A new one replaces the one that waits longest for its client.
REQUESTS_OF_USER_MAX = 64  # At the same time,
REQUESTS_OF_STRANGERS_MAX = 64  # without a login, of one address,
REQUESTS_OF_PEER_MAX = 128  # and in all of one address.
NETWORK_BITS = 64  # Of an address of IPv6: one client has all of the others.


class Running(Generic[Holder]):
    """Counts requests that are served, by user or address, and refuses too many."""

    def __init__(
        self, most: int, stalled: Callable[[Collection[Holder]], Holder | None] | None = None
    ) -> None:
        """``stalled`` ends one of the requests, and returns it; None when all of them go on."""
        self._most = most
        self._stalled = stalled
        self._held: dict[str, set[Holder]] = {}

    @contextlib.contextmanager
    def one(self, key: str, holder: Holder) -> Iterator[None]:
        """Count a request of the block; it may end one that waits for its client.

        Raises:
            HttpError: too many of that key are served.
        """
        held = self._held.setdefault(key, set())
        if len(held) >= self._most:
            ended = None if self._stalled is None else self._stalled(held)
            if ended is None:
                raise HttpError(429, f"{self._most} requests are served at a time", closes=True)
            held.discard(ended)
        held.add(holder)
        try:
            yield
        finally:
            held.discard(holder)
            if not held:
                self._held.pop(key, None)


def network_of(host: str) -> str:
    """Return what requests of an address are counted by: of IPv6 its network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), NETWORK_BITS), strict=False))
