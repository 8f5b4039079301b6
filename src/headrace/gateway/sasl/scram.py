# SPDX-License-Identifier: Apache-2.0
"""SCRAM-SHA-256 (RFC 7677): the password is neither sent nor stored.

An unknown user, or one whose password was set before SCRAM keys were stored, gets a challenge
like any other, with a salt that stays the same for the name: a client cannot tell it from a wrong
password.
"""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING

from headrace.gateway.sasl.mechanism import MechanismServices, decode_name
from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer
from headrace.protocol import scram

if TYPE_CHECKING:
    from headrace.gateway.security.user import User
    from headrace.model.policy.accounts import Account


class Scram:
    """The mechanism SCRAM-SHA-256."""

    name = "SCRAM-SHA-256"
    clear = False

    def __init__(self, services: MechanismServices) -> None:
        self._services = services

    def offered(self, peer: RemotePeer) -> bool:
        return True

    def begin(self, peer: RemotePeer) -> ScramSteps:
        return ScramSteps(self._services, peer, self._services.access.strangers_secret)


class ScramSteps:
    """One login: first message, proof, and an empty response to our proof."""

    def __init__(self, services: MechanismServices, peer: RemotePeer, secret: bytes) -> None:
        self._services = services
        self._peer = peer
        self._secret = secret
        self._requested = False
        self._name = ""
        self._server: scram.Server | None = None
        self._account: Account | None = None
        self._user: User | None = None

    async def step(self, response: bytes) -> bytes | User:
        try:
            if self._user is not None:
                if response:
                    raise LoginRefused("the client sent a response after the last message")
                return self._user
            if self._server is not None:
                async with self._services.access.attempt(self._name, self._peer):
                    return self._finish(self._server, response)
            if not response and not self._requested:
                self._requested = True
                return b""
            return self._challenge(response)
        except scram.ScramError as error:
            raise LoginRefused(self._reason(error)) from None

    def _reason(self, error: scram.ScramError) -> str:
        """Return the reason of a failure for the log; the client gets the same answer for each."""
        if self._server is not None and self._account is None:
            return f"there is no user {self._name!r}"
        if self._account is not None and self._account.scram is None:
            return f"the password of user {self._name!r} must be set again before SCRAM can use it"
        subject = f" for user {self._name!r}" if self._name else ""
        return f"SCRAM{subject}: {error}"

    def _finish(self, server: scram.Server, response: bytes) -> bytes:
        final = server.finish(response)
        access = self._services.access
        if access.account(self._name) != self._account:
            raise LoginRefused(f"user {self._name!r} was changed during the login")
        self._user = access.admit(self._name, self._peer)
        return final

    def _challenge(self, response: bytes) -> bytes:
        first = scram.read_client_first(response)
        self._name = decode_name(scram.prepare(first.name).encode(), "the name of the user")
        if first.authzid and first.authzid != first.name:
            raise LoginRefused("SCRAM asks to act as another user")
        account = self._account = self._services.access.account(self._name)
        keys = None if account is None else account.scram
        if keys is not None:
            values = (keys.salt, keys.iterations, keys.stored_key, keys.server_key)
        else:
            fake = [
                hmac.digest(self._secret, b"%d" % i + self._name.encode(), "sha256") for i in (0, 1)
            ]
            values = (fake[0][: scram.SALT_SIZE], scram.ITERATIONS, os.urandom(32), fake[1])
        salt, iterations, stored_key, server_key = values
        self._server = scram.Server(
            first, salt=salt, iterations=iterations, stored_key=stored_key, server_key=server_key
        )
        return self._server.challenge
