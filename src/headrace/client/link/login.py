# SPDX-License-Identifier: Apache-2.0
"""Logins: the SASL mechanism that both sides support, and its responses, in every version."""

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
    """One login."""

    # Keeps 0-9-1/s013, 0-9/connection.start-ok.mechanism#security, 0-10/s011.
    def __init__(self, settings: Settings, offered: Sequence[str]) -> None:
        """A mechanism in the URL is the only one to be used.

        Without one it is EXTERNAL, if there is a certificate. Through TLS or on this machine PLAIN
        is preferred, elsewhere SCRAM-SHA-256, which does not send the password.

        Raises:
            AuthenticationFailed: the broker offers no usable mechanism.
        """
        preferred: tuple[str, ...] = ("PLAIN", "AMQPLAIN", "SCRAM-SHA-256")
        if not settings.tls and not is_loopback(settings.host):
            preferred = ("SCRAM-SHA-256", "PLAIN", "AMQPLAIN")
        if settings.mechanism:
            preferred = (settings.mechanism,)
        elif settings.certfile:
            preferred = ("EXTERNAL", *preferred)  # The certificate proves more than a password.
        usable = [mechanism for mechanism in preferred if mechanism in offered]
        if not usable:
            raise AuthenticationFailed(
                f"{settings.address} offers the mechanisms {list(offered)}, "
                f"not {' or '.join(preferred)}"
            )
        self.mechanism = usable[0]
        self._scram: scram.Client | None = None
        self.response = self._first(settings)

    def _first(self, settings: Settings) -> bytes:
        if self.mechanism == "SCRAM-SHA-256":
            try:
                self._scram = scram.Client(settings.username, settings.password)
            except scram.ScramError as error:
                raise AuthenticationFailed(f"user or password: {error}") from None
            return self._scram.first
        return FIRST[self.mechanism](settings)

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge.

        Raises:
            AuthenticationFailed: the mechanism expects no challenge, or the broker does not know
                the password.
        """
        if self._scram is None:
            raise AuthenticationFailed(
                f"the broker asks for more than {self.mechanism} says"
                if self.mechanism not in ("PLAIN", "AMQPLAIN")
                else "the broker asks for more than a password"
            )
        try:
            return self._scram.answer(challenge)
        except scram.ScramError as error:
            raise AuthenticationFailed(f"{self.mechanism}: {error}") from None

    def check_over(self) -> None:
        """Check, at the end of the login, that the broker has proved its knowledge of the password.

        Raises:
            AuthenticationFailed: it has not.
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


def _nothing(_: Settings) -> bytes:
    return b""


FIRST: dict[str, Callable[[Settings], bytes]] = {
    "PLAIN": _plain,
    "AMQPLAIN": _amqplain,
    "XOAUTH2": _xoauth2,
    "OAUTHBEARER": _oauthbearer,
    "EXTERNAL": _nothing,
    "ANONYMOUS": _nothing,
}
