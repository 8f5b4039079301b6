# SPDX-License-Identifier: Apache-2.0
"""Messages that come in fragments (0-10 fragment-properties), and what is left of interrupted ones.

A message may be transferred in several transfers, each with a piece of the body; only the first
says anything about the message. What came of it is kept with the session that sends it. When the
first names a resume-id, the pieces outlive the session for a bounded time, and another session of
the same user can ask for their size and go on from there (message.resume).
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

KEPT_MAX = 1024  # Interrupted messages.
KEPT_OCTETS_MAX = 256 << 20  # Their bodies together.
KEPT_MS_MAX = 600_000  # How long they are kept, whatever the resume-ttl.

Key = tuple[str, str, bytes]  # User, virtual host and resume-id.


class Sender(Protocol):
    """Port of a session, for its unfinished message."""

    connection: Any  # As headrace.protocol.v0_10.session_connection has it.
    user: User
    vhost: VirtualHost
    on_end: list[Callable[[], None]]


class Piece:
    """A message of which not all has come."""

    def __init__(self, opening: TransferHeader, key: Key | None) -> None:
        self.opening = opening  # What its first fragment says.
        self.key = key
        self.parts: list[bytes] = []
        self.octets = 0
        self.until_ms = 0  # When it is forgotten, once its session is over.


class Fragments:
    """The unfinished messages of one broker."""

    def __init__(self, counters: Counters, body_max: int) -> None:
        """``body_max`` is in octets, of one message."""
        self.counters = counters
        self.body_max = body_max
        self.octets = 0
        self._open: dict[Sender, Piece] = {}  # By session.
        self._kept: dict[Key, Piece] = {}  # By what they are resumed with.
        self._resumed: dict[Sender, Piece] = {}  # To go on with.

    def opening(self, session: Sender, fragment: TransferHeader) -> TransferHeader:
        """Return the header of the first fragment of the message that ``fragment`` belongs to.

        Raises:
            ExecutionError: the session has no unfinished message.
        """
        piece = self._open.get(session) or self._resumed.get(session)
        if piece is None:
            raise ExecutionError(
                ExecutionCode.ILLEGAL_STATE, "a fragment of a message that was not begun"
            )
        return piece.opening

    def add(
        self,
        session: Sender,
        fragment: TransferHeader,
        body: bytes,
        parts: tuple[bytes, ...] | None,
    ) -> tuple[tuple[bytes, ...], int] | None:
        """Take a fragment; return body and size of the message when it was the last.

        Raises:
            ExecutionError: another message is unfinished, or it becomes too large.
        """
        self.expire()
        piece = self._open.get(session)
        if fragment.first:
            if piece is not None:
                raise ExecutionError(
                    ExecutionCode.ILLEGAL_STATE, "a message begins before another has ended"
                )
            piece = self._begin(session, fragment)
        elif piece is None:
            piece = self._open[session] = self._resumed.pop(session)
            session.on_end.append(lambda: self.interrupted(session))
        size = len(body) if parts is None else sum(map(len, parts))
        body_max = min(self.body_max, session.connection.body_max)
        if piece.octets + size > body_max or self.octets + size > KEPT_OCTETS_MAX:
            self._drop(session, piece)
            raise ExecutionError(
                ExecutionCode.RESOURCE_LIMIT_EXCEEDED, "the fragments of a message are too large"
            )
        piece.parts.extend((body,) if parts is None else parts)
        piece.octets += size
        self._count(size)
        if not fragment.last:
            return None
        self._drop(session, piece)
        return tuple(part for part in piece.parts if part), piece.octets

    def _begin(self, session: Sender, fragment: TransferHeader) -> Piece:
        key = None
        if fragment.resume_id:
            key = (session.user.name, session.vhost.name, fragment.resume_id)
            before = self._kept.pop(key, None)
            if before is not None:
                self._count(-before.octets)
        piece = self._open[session] = Piece(fragment, key)
        if key is not None:
            ttl_ms = fragment.resume_ttl_ms or KEPT_MS_MAX
            piece.until_ms = self.counters.now_ms + min(ttl_ms, KEPT_MS_MAX)
        session.on_end.append(lambda: self.interrupted(session))
        return piece

    def _drop(self, session: Sender, piece: Piece) -> None:
        self._open.pop(session, None)
        self._count(-piece.octets)

    def _count(self, octets: int) -> None:
        """Count octets that are kept, as memory in use."""
        self.octets += octets
        self.counters.memory_used += octets

    def interrupted(self, session: Sender) -> None:
        """Keep the unfinished message of a session that ends, if it has a resume-id."""
        self._resumed.pop(session, None)
        piece = self._open.pop(session, None)
        if piece is None:
            return
        if piece.key is None:
            self._count(-piece.octets)
            return
        while len(self._kept) >= KEPT_MAX:
            self._count(-self._kept.pop(next(iter(self._kept))).octets)
        self._kept[piece.key] = piece

    # Keeps 0-10/s069.
    def resume(self, session: Sender, resume_id: bytes) -> int:
        """Return the octets of an interrupted message, and let the session continue it."""
        self.expire()
        key = (session.user.name, session.vhost.name, resume_id)
        piece = self._kept.pop(key, None)
        if piece is None:
            return 0
        self._resumed[session] = piece
        session.on_end.append(lambda: self._give_up(session))
        return piece.octets

    def _give_up(self, session: Sender) -> None:
        piece = self._resumed.pop(session, None)
        if piece is not None and piece.key is not None:
            self._kept[piece.key] = piece

    # Keeps 0-10/s070.
    def expire(self) -> None:
        """Forget what was kept for long enough."""
        now_ms = self.counters.now_ms
        for key in [k for k, piece in self._kept.items() if piece.until_ms <= now_ms]:
            self._count(-self._kept.pop(key).octets)
