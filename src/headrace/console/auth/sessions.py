# SPDX-License-Identifier: Apache-2.0
"""Sessions of browsers, kept here under the hash of the identifier that only the browser has."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.console.auth.logins import LoggedIn
from headrace.console.auth.oauth import Authorizations
from headrace.operator_logins import KeptLogins, is_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.console.auth.logins import Identity
    from headrace.console.broker.link import BrokerLink

ID_BYTES = 32  # Of randomness in an identifier, and in a token.
SESSIONS_MAX = 1024  # The one that is idle longest gives way,
SESSIONS_OF_USER_MAX = 32  # also among those of one user.
NOTICES_MAX = 8  # Kept until a page shows them.
SESSION_ID_MAX = 128  # Characters of an identifier that is looked up.


@dataclass(slots=True, eq=False)
class Session(LoggedIn):
    """A user who logged in by a page."""

    csrf: str  # Forms and scripts send it with whatever changes something.
    began_s: float
    used_s: float
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=NOTICES_MAX))

    def proves(self, token: str) -> bool:
        """Return True if a request has the session's token."""
        return hmac.compare_digest(self.csrf.encode(), token.encode(errors="replace"))

    def take_notices(self) -> list[str]:
        """Return the notices, which are shown once."""
        notices = list(self.notices)
        self.notices.clear()
        return notices


class Sessions:
    """The sessions of a console; they end with it, and with the broker's tickets."""

    def __init__(self, link: BrokerLink, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._clock = clock
        self.authorizations = Authorizations()
        self._sessions: KeptLogins[Session] = KeptLogins()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, identity: Identity) -> str:
        """Begin a session of a user; return its new identifier."""
        now_s = self._clock()
        session_id = secrets.token_urlsafe(ID_BYTES)
        session = Session(identity, now_s, secrets.token_urlsafe(ID_BYTES), now_s, now_s)
        self._sessions.make_room(
            lambda login: login.identity.name == identity.name, SESSIONS_OF_USER_MAX
        )
        self._sessions.add(hashed(session_id), session, SESSIONS_MAX)
        return session_id

    async def find(self, session_id: str | None) -> Session | None:
        """Return the session with an identifier, which counts as used; None if there is none.

        Raises:
            BrokerGone: the broker does not answer.
        """
        session = self.peek(session_id)
        if session is None or session_id is None:
            return None
        now_s = self._clock()
        if not await session.holds(self._link, now_s):
            self.end(session_id)
            return None
        session.used_s = now_s
        if (key := hashed(session_id)) in self._sessions:
            self._sessions.move_to_end(key)
        return session

    def peek(self, session_id: str | None) -> Session | None:
        """Return the session with an identifier unless it is over; it is not asked about."""
        if not session_id or len(session_id) > SESSION_ID_MAX:
            return None
        session = self._sessions.get(hashed(session_id))
        if session is None:
            return None
        if is_over(session.began_s, session.used_s, self._clock()):
            self.end(session_id)
            return None
        return session

    def end(self, session_id: str | None) -> Session | None:
        """End a session; return it, or None if there is none."""
        return self._sessions.pop(hashed(session_id), None) if session_id else None


def hashed(session_id: str) -> bytes:
    """Return the key of a session."""
    return hashlib.sha256(session_id.encode(errors="replace")).digest()
