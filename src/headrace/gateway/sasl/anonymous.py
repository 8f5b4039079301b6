# SPDX-License-Identifier: Apache-2.0
"""ANONYMOUS (RFC 4505): all clients are the user that a setting names; without it, refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.security.remote_peer import LoginRefused, Peer

if TYPE_CHECKING:
    from headrace.gateway.sasl.mechanism import Desk
    from headrace.gateway.security.access import User


class Anonymous:
    """The mechanism, and any login by it: the trace that a client sends means nothing."""

    name = "ANONYMOUS"
    clear = False

    def __init__(self, desk: Desk, peer: Peer | None = None) -> None:
        self._desk = desk
        self._peer = peer or Peer()

    def offered(self, peer: Peer) -> bool:
        return bool(self._desk.anonymous_user)

    def begin(self, peer: Peer) -> Anonymous:
        return Anonymous(self._desk, peer)

    async def step(self, response: bytes) -> bytes | User:
        if not self._desk.anonymous_user:
            raise LoginRefused("nobody may log in without a name")
        return self._desk.access.admit(self._desk.anonymous_user, self._peer)
