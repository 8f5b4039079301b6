# SPDX-License-Identifier: Apache-2.0
"""The sessions of AMQP 0-10 that a server knows, by principal and name.

A session that loses its connection stays for the timeout that was granted, and then ends. Names of
different principals do not clash. The clock comes from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.protocol.errors_0_10 import DetachError
from headrace.spec.reply_0_10 import DetachCode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from headrace.protocol.v0_10.session.session import Session

DETACHED_MAX = 1024  # Detached sessions of one registry; beyond, the one that left first ends.


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
        """``make(name)`` returns a new session, ``clock()`` seconds that never run backwards."""
        self.make = make
        self.clock = clock
        self.detached_max = detached_max
        self.timeout_max_s = timeout_max_s
        self.named: dict[tuple[Hashable, bytes], Session] = {}
        self.keys: dict[Session, tuple[Hashable, bytes]] = {}
        self.waiting: dict[Session, float] = {}  # Detached ones, and when they end.

    # Keeps 0-10/s035.
    def find(self, principal: Hashable, name: bytes, force: bool) -> Session:
        """Return the session of that name, or a new one, not attached.

        With ``force`` one that is attached elsewhere is taken away from there.

        Raises:
            DetachError: the session is attached elsewhere.
        """
        key = (principal, name)
        session = self.named.get(key)
        if session is not None and session.connection is not None:
            if not force:
                raise DetachError(DetachCode.SESSION_BUSY, "the session is attached elsewhere")
            session.connection.evict(session)
            session = self.named.get(key)  # Gone, when nothing of it is kept.
        if session is None:
            session = self.make(name)
            session.registry = self
            self.named[key] = session
            self.keys[session] = key
        self.waiting.pop(session, None)
        return session

    # Keeps 0-10/s036.
    def grant(self, requested_s: int | None) -> int:
        """Return the timeout to grant: what was asked for, but at most ``timeout_max_s``."""
        if requested_s is None:
            return self.timeout_max_s
        return min(requested_s, self.timeout_max_s)

    def on_detached(self, session: Session) -> None:
        """A session lost its connection: keep it for its timeout."""
        timeout_s = self.timeout_max_s if session.timeout_s is None else session.timeout_s
        self.waiting[session] = self.clock() + timeout_s
        while len(self.waiting) > self.detached_max:
            next(iter(self.waiting)).end()

    def forget(self, session: Session) -> None:
        """A session ended."""
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
        """The server stops: every detached session ends."""
        for session in list(self.waiting):
            session.end()
