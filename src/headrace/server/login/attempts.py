# SPDX-License-Identifier: Apache-2.0
"""Counts of successful and failed logins for operators, by protocol and by source.

Delays after failed logins are in :mod:`headrace.gateway.security.throttle`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

SOURCES_MAX = 1000  # Sources with counts; a further source replaces the one idle longest.
NAME_MAX = 255  # The characters of a user's name that are kept.


class LoginSource(NamedTuple):
    """A source of logins; host and user are empty for the sum of a protocol."""

    protocol: str  # Such as "0-9-1" or "http".
    host: str = ""
    user: str = ""  # The name that the client sent; "" if it sent none.


class LoginCounts:
    """The logins from one source that succeeded and that failed."""

    __slots__ = ("failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0

    def count(self, succeeded: bool) -> None:
        """Count a login."""
        if succeeded:
            self.succeeded += 1
        else:
            self.failed += 1


class LoginAttempts:
    """Counts of the finished logins since the start of the broker."""

    def __init__(self) -> None:
        self.protocols: dict[LoginSource, LoginCounts] = {}  # The sum of each protocol.
        self.sources: OrderedDict[LoginSource, LoginCounts] = OrderedDict()

    def count(self, protocol: str, host: str, user: str, *, succeeded: bool) -> None:
        """Count a finished login."""
        self.protocols.setdefault(LoginSource(protocol), LoginCounts()).count(succeeded)
        source = LoginSource(protocol, host, user[:NAME_MAX])
        counts = self.sources.pop(source, None)
        if counts is None:
            counts = LoginCounts()
            if len(self.sources) >= SOURCES_MAX:
                self.sources.popitem(last=False)
        self.sources[source] = counts  # The source that was active last is the last in the order.
        counts.count(succeeded)
