# SPDX-License-Identifier: Apache-2.0
"""OAUTHBEARER (RFC 7628) and XOAUTH2: a bearer token names the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer

if TYPE_CHECKING:
    from headrace.gateway.sasl.mechanism import MechanismServices
    from headrace.gateway.security.user import User

SEPARATOR = b"\x01"


class Bearer:
    """One of the two mechanisms."""

    clear = True

    def __init__(self, services: MechanismServices, name: str) -> None:
        self.name = name
        self._services = services

    def offered(self, peer: RemotePeer) -> bool:
        return self._services.tokens is not None

    def begin(self, peer: RemotePeer) -> BearerSteps:
        return BearerSteps(self._services, peer)


class BearerSteps:
    """One login: its response, requested if the first one was empty."""

    def __init__(self, services: MechanismServices, peer: RemotePeer) -> None:
        self._services = services
        self._peer = peer
        self._requested = False

    async def step(self, response: bytes) -> bytes | User:
        if not response and not self._requested:
            self._requested = True
            return b""
        tokens = self._services.tokens
        if tokens is None:
            raise LoginRefused("bearer tokens are not served")
        return await tokens.user(read_token(response), self._peer)


def xoauth2(services: MechanismServices) -> Bearer:
    """Return the mechanism XOAUTH2."""
    return Bearer(services, "XOAUTH2")


def oauthbearer(services: MechanismServices) -> Bearer:
    """Return the mechanism OAUTHBEARER."""
    return Bearer(services, "OAUTHBEARER")


def read_token(response: bytes) -> bytes:
    """Return the token of ``…^Aauth=Bearer TOKEN^A^A``, the response of both mechanisms.

    Raises:
        LoginRefused: the response is not a bearer token.
    """
    head, *fields = response.split(SEPARATOR)
    values = [field[5:] for field in fields if field.startswith(b"auth=")]
    if fields[-2:] != [b"", b""] or len(values) != 1:
        raise LoginRefused("malformed bearer response")
    if head and not head.startswith((b"n,", b"y,", b"user=")):
        raise LoginRefused("malformed head of a bearer response")
    scheme, _, token = values[0].partition(b" ")
    if scheme.lower() != b"bearer" or not token.strip():
        raise LoginRefused("no bearer token")
    return token.strip()
