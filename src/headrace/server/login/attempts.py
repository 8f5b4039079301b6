# SPDX-License-Identifier: Apache-2.0
"""Counts of successful and failed logins, by protocol and by source.

These are counts for operators; delays are in :mod:`headrace.gateway.security.throttle`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

SOURCES_MAX = 1000  # Sources with counts; a further one replaces the one idle longest.
NAME_MAX = 255  # Characters of a user's name that are kept.


class LoginSource(NamedTuple):
    """A source of logins. Host and user are empty for the sum of a protocol."""

    protocol: str  # As "0-9-1" or "http".
    host: str = ""
    user: str = ""  # From the client; empty without one.


class LoginCounts:
    """The counts of a source."""

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
    """The logins of a broker since it was started."""

    def __init__(self) -> None:
        self.protocols: dict[LoginSource, LoginCounts] = {}  # As many as there are protocols.
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
        self.sources[source] = counts  # The latest.
        counts.count(succeeded)
