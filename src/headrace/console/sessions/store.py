# SPDX-License-Identifier: Apache-2.0
"""Sessions of browsers, kept here under the hash of the identifier that only the browser has."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.console.broker.logins import look_again
from headrace.console.sessions.authorization import Authorizations

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.console.broker.link import BrokerLink
    from headrace.console.broker.logins import Identity

ID_BYTES = 32  # Of randomness in an identifier, and in a token.
IDLE_S = 15 * 60.0  # A session ends so long after its last request,
LIFE_S = 8 * 3600.0  # and so long after the login.
SESSIONS_MAX = 1024  # The one that is idle longest gives way,
SESSIONS_OF_USER_MAX = 32  # also among those of one user.
FRESH_S = 3.0  # How long a ticket is not asked about.
NOTICES_MAX = 8  # Kept until a page shows them.
MARK_MAX = 128  # Characters of an identifier that is looked up.


@dataclass(slots=True, eq=False)
class Session:
    """A user who logged in by a page."""

    identity: Identity
    csrf: str  # Forms and scripts send it with whatever changes something.
    began_s: float
    used_s: float
    asked_s: float  # When the broker last said that the ticket holds.
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=NOTICES_MAX))

    def proves(self, token: str) -> bool:
        """Return True if a request has the session's token."""
        return hmac.compare_digest(self.csrf.encode(), token.encode(errors="replace"))

    def take_notices(self) -> list[str]:
        """Return the notices, which are shown once."""
        found = list(self.notices)
        self.notices.clear()
        return found


class Sessions:
    """The sessions of a console; they end with it, and with the broker's tickets."""

    def __init__(self, link: BrokerLink, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._clock = clock
        self.authorizations = Authorizations()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()  # The longest idle first.

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, identity: Identity) -> str:
        """Begin a session of a user; return its new identifier."""
        now_s = self._clock()
        mark = secrets.token_urlsafe(ID_BYTES)
        session = Session(identity, secrets.token_urlsafe(ID_BYTES), now_s, now_s, now_s)
        own = [key for key, one in self._sessions.items() if one.identity.name == identity.name]
        for key in own[: max(0, len(own) + 1 - SESSIONS_OF_USER_MAX)]:
            del self._sessions[key]
        self._sessions[hashed(mark)] = session
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return mark

    async def find(self, mark: str | None) -> Session | None:
        """Return the session with an identifier, which counts as used; None if there is none.

        Raises:
            BrokerGone: the broker does not answer.
        """
        session = self.peek(mark)
        if session is None or mark is None:
            return None
        now_s = self._clock()
        if now_s - session.asked_s > FRESH_S:
            identity = await look_again(self._link, session.identity)
            if identity is None:
                self.end(mark)
                return None
            session.identity, session.asked_s = identity, now_s
        session.used_s = now_s
        if (key := hashed(mark)) in self._sessions:
            self._sessions.move_to_end(key)
        return session

    def peek(self, mark: str | None) -> Session | None:
        """Return the session with an identifier unless it is over; it is not asked about."""
        if not mark or len(mark) > MARK_MAX:
            return None
        session = self._sessions.get(hashed(mark))
        if session is None:
            return None
        now_s = self._clock()
        if now_s - session.used_s > IDLE_S or now_s - session.began_s > LIFE_S:
            self.end(mark)
            return None
        return session

    def end(self, mark: str | None) -> Session | None:
        """End a session; return it, or None if there is none."""
        return self._sessions.pop(hashed(mark), None) if mark else None


def hashed(mark: str) -> bytes:
    """Return the key of a session."""
    return hashlib.sha256(mark.encode(errors="replace")).digest()
