# SPDX-License-Identifier: Apache-2.0
"""Sessions of browsers, kept by the hash of the identifier in the browser's cookie."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.console.auth.broker_login import Login
from headrace.console.auth.oauth import PendingLogins
from headrace.operator_logins import LoginCache, is_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.console.auth.broker_login import Identity
    from headrace.console.broker.link import BrokerLink

ID_BYTES = 32  # Random bytes of an identifier, and of a CSRF token.
SESSIONS_MAX = 1024  # Beyond it the session that is idle longest ends.
SESSIONS_OF_USER_MAX = 32  # Beyond it the session of the user that is idle longest ends.
NOTICES_MAX = 8  # Kept until a page shows them.
SESSION_ID_MAX = 128  # Characters; a longer identifier is unknown.


@dataclass(slots=True, eq=False)
class Session(Login):
    """A user who logged in with a browser."""

    csrf: str  # The token that forms and scripts send with a change.
    began_s: float
    used_s: float
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=NOTICES_MAX))

    def proves(self, token: str) -> bool:
        """Return True for the session's CSRF token."""
        return hmac.compare_digest(self.csrf.encode(), token.encode(errors="replace"))

    def take_notices(self) -> list[str]:
        """Return the notices for the next page, and forget them."""
        notices = list(self.notices)
        self.notices.clear()
        return notices


class Sessions:
    """The sessions of a console.

    A session ends with its ticket, after ``IDLE_S`` without a request or ``LIFE_S`` in all (see
    :mod:`headrace.operator_logins`), above a limit of their number, or when the console stops.
    """

    def __init__(self, link: BrokerLink, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._clock = clock
        self.pending_logins = PendingLogins()
        self._sessions: LoginCache[Session] = LoginCache()

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
        self._sessions.add(hash_session_id(session_id), session, SESSIONS_MAX)
        return session_id

    async def find(self, session_id: str | None) -> Session | None:
        """Return the session with an identifier, and note its use; None without one.

        Raises:
            BrokerGone: the broker does not answer.
        """
        session = self.peek(session_id)
        if session is None or session_id is None:
            return None
        now_s = self._clock()
        if not await session.is_valid(self._link, now_s):
            self.end(session_id)
            return None
        session.used_s = now_s
        if (key := hash_session_id(session_id)) in self._sessions:
            self._sessions.move_to_end(key)
        return session

    def peek(self, session_id: str | None) -> Session | None:
        """Return the session with an identifier, without asking the broker; None without one."""
        if not session_id or len(session_id) > SESSION_ID_MAX:
            return None
        session = self._sessions.get(hash_session_id(session_id))
        if session is None:
            return None
        if is_over(session.began_s, session.used_s, self._clock()):
            self.end(session_id)
            return None
        return session

    def end(self, session_id: str | None) -> Session | None:
        """End a session; return it, or None without one."""
        return self._sessions.pop(hash_session_id(session_id), None) if session_id else None


def hash_session_id(session_id: str) -> bytes:
    """Return the key of a session."""
    return hashlib.sha256(session_id.encode(errors="replace")).digest()
