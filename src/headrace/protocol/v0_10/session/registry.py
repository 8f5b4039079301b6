# SPDX-License-Identifier: Apache-2.0
"""The registry of a server's 0-10 sessions, by principal and name.

A session that loses its connection is kept for the granted timeout and then ends. Sessions of
different principals may have the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.protocol.errors_0_10 import DetachError
from headrace.spec.reply_0_10 import DetachCode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from headrace.protocol.v0_10.session.session import Session

DETACHED_MAX = 1024  # The maximum detached sessions of a registry; beyond it the oldest ends.


class Sessions:
    """Sessions by principal and name, attached or detached."""

    def __init__(
        self,
        make: Callable[[bytes], Session],
        clock: Callable[[], float],
        *,
        detached_max: int = DETACHED_MAX,
        timeout_max_s: int = 3600,
    ) -> None:
        """``make(name)`` returns a new session, ``clock()`` the monotonic time in seconds."""
        self.make = make
        self.clock = clock
        self.detached_max = detached_max
        self.timeout_max_s = timeout_max_s
        self.named: dict[tuple[Hashable, bytes], Session] = {}
        self.keys: dict[Session, tuple[Hashable, bytes]] = {}
        self.waiting: dict[
            Session, float
        ] = {}  # Detached sessions, each with the time at which it ends.
        self.moving: Session | None = None  # The session that force takes from its connection.

    # Keeps 0-10/s032, 0-10/s035.
    def find(self, principal: Hashable, name: bytes, force: bool) -> Session:
        """Return the session of that name, or a new one; it is not attached.

        With ``force``, a session that is attached elsewhere is detached first.

        Raises:
            DetachError: the session is attached elsewhere.
        """
        key = (principal, name)
        session = self.named.get(key)
        if session is not None and session.connection is not None:
            if not force:
                raise DetachError(DetachCode.SESSION_BUSY, "the session is attached elsewhere")
            self.moving = session
            try:
                session.connection.evict(session)
            finally:
                self.moving = None
            session = self.named.get(key)  # None if the session ended with its attachment.
        if session is None:
            session = self.make(name)
            session.registry = self
            self.named[key] = session
            self.keys[session] = key
        self.waiting.pop(session, None)
        return session

    # Keeps 0-10/s036.
    def grant(self, requested_s: int | None) -> int:
        """Return the timeout to grant: the requested one, at most ``timeout_max_s``."""
        if requested_s is None:
            return self.timeout_max_s
        return min(requested_s, self.timeout_max_s)

    def on_detached(self, session: Session) -> None:
        """Keep a session that was detached, for its timeout."""
        if session is self.moving:  # It is attached again at once.
            return
        timeout_s = self.timeout_max_s if session.timeout_s is None else session.timeout_s
        self.waiting[session] = self.clock() + timeout_s
        while len(self.waiting) > self.detached_max:
            next(iter(self.waiting)).end()

    def remove(self, session: Session) -> None:
        """Remove a session that has ended."""
        self.waiting.pop(session, None)
        key = self.keys.pop(session, None)
        if key is not None:
            del self.named[key]

    def expire(self) -> None:
        """End the detached sessions whose timeout has passed."""
        now = self.clock()
        for session in [session for session, end in self.waiting.items() if end <= now]:
            session.end()

    def end_all(self) -> None:
        """End every detached session, as the server stops."""
        for session in list(self.waiting):
            session.end()
