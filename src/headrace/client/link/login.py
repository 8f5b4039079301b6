# SPDX-License-Identifier: Apache-2.0
"""SASL logins in every version: the choice of a mechanism, and its responses."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.client.errors import AuthenticationFailed
from headrace.protocol import scram
from headrace.wire.table import encode_table

if TYPE_CHECKING:
    from headrace.client.url import Settings


class Login:
    """The SASL exchange of one connection; `mechanism` and `response` begin it."""

    # Keeps 0-9-1/s013, 0-9/connection.start-ok.mechanism#security, 0-10/s011.
    def __init__(self, settings: Settings, offered_mechanisms: Sequence[str]) -> None:
        """Choose a mechanism; a mechanism in the URL is the only one that may be used.

        Otherwise a client certificate is preferred (EXTERNAL). Through TLS or on this machine PLAIN
        follows, elsewhere SCRAM-SHA-256, which does not send the password.

        Raises:
            AuthenticationFailed: the broker offers no usable mechanism.
        """
        preferred_mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN", "SCRAM-SHA-256")
        if not settings.tls and not is_loopback(settings.host):
            preferred_mechanisms = ("SCRAM-SHA-256", "PLAIN", "AMQPLAIN")
        if settings.mechanism:
            preferred_mechanisms = (settings.mechanism,)
        elif settings.certfile:
            # A certificate is a stronger proof than a password.
            preferred_mechanisms = ("EXTERNAL", *preferred_mechanisms)
        usable_mechanisms = [
            mechanism for mechanism in preferred_mechanisms if mechanism in offered_mechanisms
        ]
        if not usable_mechanisms:
            raise AuthenticationFailed(
                f"{settings.address} offers the mechanisms {list(offered_mechanisms)}, "
                f"not {' or '.join(preferred_mechanisms)}"
            )
        self.mechanism = usable_mechanisms[0]
        self._scram: scram.Client | None = None
        self.response = self._initial_response(settings)

    def _initial_response(self, settings: Settings) -> bytes:
        if self.mechanism == "SCRAM-SHA-256":
            try:
                self._scram = scram.Client(settings.username, settings.password)
            except scram.ScramError as error:
                raise AuthenticationFailed(f"user or password: {error}") from None
            return self._scram.first
        return INITIAL_RESPONSES[self.mechanism](settings)

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to a challenge.

        Raises:
            AuthenticationFailed: the mechanism has no challenges, or the broker did not prove that
                it has the password.
        """
        if self._scram is None:
            raise AuthenticationFailed(
                f"the broker sent a challenge, which {self.mechanism} does not have"
                if self.mechanism not in ("PLAIN", "AMQPLAIN")
                else "the broker requires more than a password"
            )
        try:
            return self._scram.answer(challenge)
        except scram.ScramError as error:
            raise AuthenticationFailed(f"{self.mechanism}: {error}") from None

    def check_server_proof(self) -> None:
        """Check, at the end of the login, that the broker has proved that it has the password.

        Raises:
            AuthenticationFailed: the broker has not proved it.
        """
        if self._scram is not None and not self._scram.done:
            raise AuthenticationFailed(f"{self.mechanism}: the broker did not prove who it is")


def is_loopback(host: str) -> bool:
    """Return True if connections to a host stay on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _plain(settings: Settings) -> bytes:
    return f"\0{settings.username}\0{settings.password}".encode()


def _amqplain(settings: Settings) -> bytes:
    table = encode_table({"LOGIN": settings.username, "PASSWORD": str(settings.password)})
    return table[4:]


def _xoauth2(settings: Settings) -> bytes:
    return f"user={settings.username}\x01auth=Bearer {settings.password}\x01\x01".encode()


def _oauthbearer(settings: Settings) -> bytes:
    return f"n,,\x01auth=Bearer {settings.password}\x01\x01".encode()


def _empty(_: Settings) -> bytes:
    return b""


INITIAL_RESPONSES: dict[str, Callable[[Settings], bytes]] = {
    "PLAIN": _plain,
    "AMQPLAIN": _amqplain,
    "XOAUTH2": _xoauth2,
    "OAUTHBEARER": _oauthbearer,
    "EXTERNAL": _empty,
    "ANONYMOUS": _empty,
}
