# SPDX-License-Identifier: Apache-2.0
"""PLAIN (RFC 4616) and AMQPLAIN: name and password in clear text.

Where bearer tokens are configured, a client may send one in place of the password, as with
RabbitMQ: then the token names the user, and no password is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.sasl.mechanism import MechanismServices, decode_name
from headrace.gateway.security.passwords import PASSWORD_BYTES_MAX
from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer
from headrace.wire.errors import MalformedError
from headrace.wire.table import decode_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.security.user import User


class Password:
    """A mechanism with one response, which holds name and password."""

    clear = True

    def __init__(
        self, services: MechanismServices, name: str, read: Callable[[bytes], tuple[bytes, bytes]]
    ) -> None:
        self.name = name
        self._services = services
        self._read = read

    def offered(self, peer: RemotePeer) -> bool:
        return True

    def begin(self, peer: RemotePeer) -> PasswordSteps:
        return PasswordSteps(self._services, peer, self._read)


class PasswordSteps:
    """One login: its response, requested if the first one was empty."""

    def __init__(
        self,
        services: MechanismServices,
        peer: RemotePeer,
        read: Callable[[bytes], tuple[bytes, bytes]],
    ) -> None:
        self._services = services
        self._peer = peer
        self._read = read
        self._may_request = read is read_plain  # Responses of AMQPLAIN are never empty.

    async def step(self, response: bytes) -> bytes | User:
        if not response and self._may_request:
            self._may_request = False
            return b""
        raw, password = self._read(response)
        tokens = self._services.tokens
        if tokens is not None and tokens.looks_like_token(password):
            return await tokens.user(password, self._peer)
        name = decode_name(raw, "the name of the user")
        try:
            if len(password) > PASSWORD_BYTES_MAX:
                raise LoginRefused("the password is too long")
            return await self._services.access.check_password(name, password, self._peer)
        except LoginRefused as error:
            error.user = name
            raise


def plain(services: MechanismServices) -> Password:
    """Return the mechanism PLAIN."""
    return Password(services, "PLAIN", read_plain)


def amqplain(services: MechanismServices) -> Password:
    """Return the mechanism AMQPLAIN."""
    return Password(services, "AMQPLAIN", read_amqplain)


def read_plain(response: bytes) -> tuple[bytes, bytes]:
    """Read authorization identity, NUL, authentication identity, NUL, password.

    Raises:
        LoginRefused: the response is malformed, or asks to act as another user.
    """
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise LoginRefused("malformed PLAIN response")
    if parts[0] and parts[0] != parts[1]:
        raise LoginRefused("PLAIN asks to act as another user")
    return parts[1], parts[2]


def read_amqplain(response: bytes) -> tuple[bytes, bytes]:
    """Read a field table without its size, holding LOGIN and PASSWORD.

    Raises:
        LoginRefused: the response is malformed.
    """
    try:
        table, _ = decode_table(len(response).to_bytes(4, "big") + response)
    except MalformedError:
        raise LoginRefused("malformed AMQPLAIN response") from None
    name, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(name, str | bytes) or not isinstance(password, str | bytes):
        raise LoginRefused("AMQPLAIN response without LOGIN and PASSWORD")
    raw = name.encode() if isinstance(name, str) else name
    return raw, password.encode() if isinstance(password, str) else password
