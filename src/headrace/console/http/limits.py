# SPDX-License-Identifier: Apache-2.0
"""Limits of requests and connections, which apply before anything is read."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from headrace.console.http.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADERS_BYTES_MAX = 16 << 10  # Of all header fields together.
FIELDS_MAX = 64  # Header fields of a request.
FIELD_BYTES_MAX = 8190  # Of one field, and of the request line.
SEGMENTS_MAX = 32  # Of a path.
BODY_BYTES_MAX = 1 << 20  # Unless the route says otherwise.
BODY_S = 30.0  # Time to send a body.
WAIT_S = 30.0  # A connection without a whole request's headers is closed after this.
CONNECTIONS_MAX = 1024  # A new one replaces the one that waits longest.
REQUESTS_OF_USER_MAX = 64  # At the same time,
REQUESTS_OF_PEER_MAX = 128  # and of one address.


class Running:
    """Counts requests that are served, by user or address, and refuses too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count: Counter[str] = Counter()

    @contextlib.contextmanager
    def one(self, key: str) -> Iterator[None]:
        """Count a request of the block.

        Raises:
            HttpError: too many of that key are served.
        """
        if self._count[key] >= self._most:
            raise HttpError(429, f"{self._most} requests are served at a time", closes=True)
        self._count[key] += 1
        try:
            yield
        finally:
            self._count[key] -= 1
            if not self._count[key]:
                del self._count[key]
