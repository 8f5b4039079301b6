# SPDX-License-Identifier: Apache-2.0
"""How many logins succeeded and failed, by protocol, and by where they came from.

These are counts for operators; delays are in :mod:`headrace.gateway.security.throttle`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

SOURCES_MAX = 1000  # Sources that are known; the one that was silent for longest goes.
NAME_MAX = 255  # Characters of a user's name that are kept.


class Source(NamedTuple):
    """Where logins came from. Host and user are empty for the sum of a protocol."""

    protocol: str  # As "0-9-1" or "http".
    host: str = ""
    user: str = ""  # From the client; empty without one.


class Outcomes:
    """The logins of a source."""

    __slots__ = ("failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0

    def note(self, succeeded: bool) -> None:
        """Count a login."""
        if succeeded:
            self.succeeded += 1
        else:
            self.failed += 1


class LoginAttempts:
    """The logins of a broker since it was started."""

    def __init__(self) -> None:
        self.protocols: dict[Source, Outcomes] = {}  # As many as there are protocols.
        self.sources: OrderedDict[Source, Outcomes] = OrderedDict()

    def note(self, protocol: str, host: str, user: str, *, succeeded: bool) -> None:
        """Count a login that was decided."""
        self.protocols.setdefault(Source(protocol), Outcomes()).note(succeeded)
        source = Source(protocol, host, user[:NAME_MAX])
        outcomes = self.sources.pop(source, None)
        if outcomes is None:
            outcomes = Outcomes()
            if len(self.sources) >= SOURCES_MAX:
                self.sources.popitem(last=False)
        self.sources[source] = outcomes  # The latest.
        outcomes.note(succeeded)
