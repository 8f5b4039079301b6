# SPDX-License-Identifier: Apache-2.0
"""Messages in fragments (0-10 fragment-properties), and the resumption of interrupted ones.

A message may be sent in several transfers, each with a part of the body; only the first has the
message's properties. Received parts are kept with the session that sends them. If the first names a
resume-id, they outlive the session for a bounded time, and another session of the same user can
query their size and continue from there (message.resume).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.security.user import User
    from headrace.gateway.v0_10.session.transfer_header import TransferHeader
    from headrace.model.counters import Counters
    from headrace.model.vhost.virtual_host import VirtualHost

INTERRUPTED_MAX = 1024  # Interrupted messages that a broker keeps.
INTERRUPTED_BYTES_MAX = 256 << 20  # Bytes of the bodies of all unfinished messages.
INTERRUPTED_MS_MAX = 600_000  # The upper bound of a resume-ttl.

Key = tuple[str, str, bytes]  # User, virtual host and resume-id.


class FragmentSender(Protocol):
    """Port of a session, for its unfinished message."""

    connection: Any  # As headrace.protocol.v0_10.session_connection has it.
    user: User
    vhost: VirtualHost
    on_end: list[Callable[[], None]]


class PartialMessage:
    """A message of which some fragments are missing."""

    def __init__(self, first_header: TransferHeader, key: Key | None) -> None:
        self.first_header = first_header
        self.key = key
        self.parts: list[bytes] = []
        self.size = 0
        self.expires_ms = 0  # The time at which it is dropped, if its session has ended.


class Fragments:
    """The unfinished messages of one broker."""

    def __init__(self, counters: Counters, body_max: int) -> None:
        """``body_max`` is the maximum size of the body of one message, in bytes."""
        self.counters = counters
        self.body_max = body_max
        self.size = 0
        self._open: dict[FragmentSender, PartialMessage] = {}  # Unfinished messages by session.
        self._interrupted: dict[Key, PartialMessage] = {}  # Messages whose session has ended.
        #: Resumed messages without a new fragment, by the session that resumed them.
        self._resumed: dict[FragmentSender, PartialMessage] = {}
        #: Sessions that call `end_session` at their end.
        self._sessions: set[FragmentSender] = set()

    def first_header(self, session: FragmentSender, fragment: TransferHeader) -> TransferHeader:
        """Return the header of the first fragment of the message that ``fragment`` belongs to.

        Raises:
            ExecutionError: the session has no unfinished message.
        """
        partial = self._open.get(session) or self._resumed.get(session)
        if partial is None:
            raise ExecutionError(
                ExecutionCode.ILLEGAL_STATE, "a fragment of a message that was not begun"
            )
        return partial.first_header

    def add(
        self,
        session: FragmentSender,
        fragment: TransferHeader,
        body: bytes,
        parts: tuple[bytes, ...] | None,
    ) -> tuple[tuple[bytes, ...], int] | None:
        """Add a fragment; after the last one return body and size of the message.

        Raises:
            ExecutionError: another message is unfinished, or this one becomes too large.
        """
        partial = self._open.get(session)
        if fragment.first:
            if partial is not None:
                raise ExecutionError(
                    ExecutionCode.ILLEGAL_STATE, "a message begins before another has ended"
                )
            partial = self._begin(session, fragment)
        elif partial is None:
            partial = self._open[session] = self._resumed.pop(session)
        size = len(body) if parts is None else sum(map(len, parts))
        body_max = min(self.body_max, session.connection.body_max)
        if partial.size + size > body_max or self.size + size > INTERRUPTED_BYTES_MAX:
            self._drop(session, partial)
            raise ExecutionError(
                ExecutionCode.RESOURCE_LIMIT_EXCEEDED, "the fragments of a message are too large"
            )
        partial.parts.extend((body,) if parts is None else parts)
        partial.size += size
        self._count(size)
        if not fragment.last:
            return None
        self._drop(session, partial)
        return tuple(part for part in partial.parts if part), partial.size

    # Keeps 0-10/s070.
    def _begin(self, session: FragmentSender, fragment: TransferHeader) -> PartialMessage:
        key = None
        if fragment.resume_id:
            key = (session.user.name, session.vhost.name, fragment.resume_id)
            self._forget(key)
        partial = self._open[session] = PartialMessage(fragment, key)
        if key is not None:
            ttl_ms = fragment.resume_ttl_ms or INTERRUPTED_MS_MAX
            partial.expires_ms = self.counters.now_ms + min(ttl_ms, INTERRUPTED_MS_MAX)
        self._await_end(session)
        return partial

    def _drop(self, session: FragmentSender, partial: PartialMessage) -> None:
        self._open.pop(session, None)
        self._count(-partial.size)

    def _count(self, size: int) -> None:
        """Count kept bytes as memory in use."""
        self.size += size
        self.counters.memory_used += size

    def _await_end(self, session: FragmentSender) -> None:
        if session not in self._sessions:
            self._sessions.add(session)
            session.on_end.append(lambda: self.end_session(session))

    def end_session(self, session: FragmentSender) -> None:
        """Keep the unfinished messages of a session that ends, if they have a resume-id."""
        self._sessions.discard(session)
        for partial in (self._resumed.pop(session, None), self._open.pop(session, None)):
            if partial is not None:
                self._keep(session, partial)

    # Keeps 0-10/s069.
    def _keep(self, session: FragmentSender, partial: PartialMessage) -> None:
        if partial.key is None:
            self._count(-partial.size)
            return
        self._forget(partial.key)
        while len(self._interrupted) >= INTERRUPTED_MAX:
            self._forget(next(iter(self._interrupted)))
        self._interrupted[partial.key] = partial
        session.vhost.scheduler.put(self, partial.expires_ms, self.expire)

    def _forget(self, key: Key) -> None:
        partial = self._interrupted.pop(key, None)
        if partial is not None:
            self._count(-partial.size)

    # Keeps 0-10/s069, 0-10/s088.
    def resume(self, session: FragmentSender, resume_id: bytes) -> int:
        """Return the size of an interrupted message, and let the session continue it.

        A message that the session resumed before, and has not continued, can be resumed again.
        """
        self.expire(self.counters.now_ms)
        key = (session.user.name, session.vhost.name, resume_id)
        previous = self._resumed.get(session)
        if previous is not None and previous.key == key:
            return previous.size
        partial = self._interrupted.pop(key, None)
        if partial is None:
            return 0
        if previous is not None:
            self._keep(session, previous)
        self._resumed[session] = partial
        self._await_end(session)
        return partial.size

    # Keeps 0-10/s070.
    def expire(self, now_ms: int) -> int:
        """Drop the expired interrupted messages; return when the next expires, 0 for never."""
        for key in [k for k, partial in self._interrupted.items() if partial.expires_ms <= now_ms]:
            self._forget(key)
        return min((partial.expires_ms for partial in self._interrupted.values()), default=0)
