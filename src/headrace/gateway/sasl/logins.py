# SPDX-License-Identifier: Apache-2.0
"""Logins of connections: the mechanisms that a client is offered, and the steps of a login."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from headrace.gateway.sasl.mechanism import RESPONSE_BYTES_MAX, STEPS_MAX
from headrace.gateway.security.audit import SILENT, Audit
from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from headrace.gateway.oauth.tokens import Tokens
    from headrace.gateway.sasl.mechanism import Mechanism, Steps
    from headrace.gateway.security.user import User


WITHDRAWN = "tokens of their issuer are no longer taken"

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Login:
    """A login that has begun: its mechanism, and the number of responses so far."""

    __slots__ = ("mechanism", "step_count", "steps")

    def __init__(self, mechanism: str, steps: Steps) -> None:
        self.mechanism = mechanism
        self.steps = steps
        self.step_count = 0


class Logins:
    """All logins of a broker, by the numbers of their connections."""

    def __init__(
        self,
        mechanisms: Mapping[str, Mechanism],
        *,
        tokens: Tokens | None = None,
        plain_needs_tls: bool = False,
        plain_on_loopback: bool = True,
        audit: Audit = SILENT,
    ) -> None:
        self._audit = audit
        self._in_progress: dict[int, Login] = {}
        self._trusted: set[str] = set()  # Sources of trusted tokens.
        self._withdrawn: set[str] = set()  # Sources that are no longer trusted.
        self.use(mechanisms, tokens, plain_needs_tls, plain_on_loopback)

    def use(
        self,
        mechanisms: Mapping[str, Mechanism],
        tokens: Tokens | None,
        plain_needs_tls: bool,
        plain_on_loopback: bool,
    ) -> None:
        """Use these mechanisms and settings from now on.

        With ``plain_needs_tls``, mechanisms that send a secret in clear text need TLS; with
        ``plain_on_loopback`` not on loopback connections.
        """
        before, self._trusted = self._trusted, set() if tokens is None else tokens.sources
        self._withdrawn = (self._withdrawn | before) - self._trusted
        self.mechanisms = mechanisms
        self._tokens = tokens
        self._plain_needs_tls = plain_needs_tls
        self._plain_on_loopback = plain_on_loopback

    def trusts(self, user: User) -> bool:
        """Return True if the issuer of the user's token is trusted here."""
        return user.source in self._trusted

    def is_withdrawn(self, user: User) -> bool:
        """Return True if the issuer of the user's token is no longer trusted."""
        return user.source in self._withdrawn

    def offered(self, peer: RemotePeer) -> list[str]:
        """Return the mechanisms that a client may use, in the order of the setting."""
        return [
            name
            for name, mechanism in self.mechanisms.items()
            if mechanism.offered(peer) and not (mechanism.clear and self._is_insecure(peer))
        ]

    def _is_insecure(self, peer: RemotePeer) -> bool:
        if peer.encrypted or not self._plain_needs_tls:
            return False
        return not (peer.loopback and self._plain_on_loopback)

    async def step(
        self, number: int, peer: RemotePeer, mechanism: str, response: bytes
    ) -> bytes | User:
        """Take a response of a connection: return the next challenge, or the user.

        Raises:
            LoginRefused: the response does not prove a user, or the mechanism was not offered.
        """
        login = self._in_progress.pop(number, None)
        try:
            if login is None:
                if mechanism not in self.offered(peer):
                    raise LoginRefused(f"mechanism {mechanism:.64} is not offered here")
                login = Login(mechanism, self.mechanisms[mechanism].begin(peer))
            login.step_count += 1
            if len(response) > RESPONSE_BYTES_MAX or login.step_count > STEPS_MAX:
                raise LoginRefused(
                    "a SASL response is too long, or the exchange has too many steps"
                )
            result = await run_step(login.steps.step(response))
        except LoginRefused as error:
            self._audit_login(None, peer, mechanism, str(error))
            raise
        if isinstance(result, bytes):
            self._in_progress[number] = login
            return result
        if self.is_withdrawn(result):  # The trust was withdrawn during the check.
            self._audit_login(None, peer, mechanism, WITHDRAWN)
            raise LoginRefused(WITHDRAWN)
        self._audit_login(result, peer, mechanism)
        return result

    def remove(self, number: int) -> None:
        """Remove the login of an ended connection."""
        self._in_progress.pop(number, None)

    async def renew(self, user: User, secret: bytes) -> User:
        """Return the user with renewed credentials; only tokens can be renewed.

        Raises:
            LoginRefused: the credentials prove no user, or another one.
        """
        if not user.source or self._tokens is None:
            return user
        try:
            if len(secret) > RESPONSE_BYTES_MAX:
                raise LoginRefused("the new secret is too long")
            renewed = await run_step(self._tokens.user(secret, user.peer))
            if not renewed.same_as(user):
                raise LoginRefused(f"the new secret is that of user {renewed.name!r}")
        except LoginRefused as error:
            self._audit_login(user, user.peer, "update-secret", str(error))
            raise
        self._audit_login(renewed, user.peer, "update-secret")
        return renewed

    def _audit_login(
        self, user: User | None, peer: RemotePeer, mechanism: str, reason: str = ""
    ) -> None:
        if self._audit.active:
            self._audit.record(
                "login",
                user=user,
                peer=peer,
                allowed=not reason,
                reason=reason,
                mechanism=mechanism,
            )


async def run_step(step: Awaitable[Result]) -> Result:
    """Run a step of a login; an unexpected error refuses it, too.

    Raises:
        LoginRefused: the response does not prove a user.
    """
    try:
        return await step
    except LoginRefused:
        raise
    except Exception:
        log.exception("a login failed")
        raise LoginRefused("it could not be checked") from None
