# SPDX-License-Identifier: Apache-2.0
"""ANONYMOUS (RFC 4505): logs all clients in as the user that a setting names, if one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer

if TYPE_CHECKING:
    from headrace.gateway.sasl.mechanism import MechanismServices
    from headrace.gateway.security.user import User


class Anonymous:
    """The mechanism ANONYMOUS and every login by it; a client's trace information is ignored."""

    name = "ANONYMOUS"
    clear = False

    def __init__(self, services: MechanismServices, peer: RemotePeer | None = None) -> None:
        self._services = services
        self._peer = peer or RemotePeer()

    def offered(self, peer: RemotePeer) -> bool:
        return bool(self._services.anonymous_user)

    def begin(self, peer: RemotePeer) -> Anonymous:
        return Anonymous(self._services, peer)

    async def step(self, response: bytes) -> bytes | User:
        if not self._services.anonymous_user:
            raise LoginRefused("a login without a name is not allowed")
        return self._services.access.admit(self._services.anonymous_user, self._peer)
