# SPDX-License-Identifier: Apache-2.0
"""Interface of a SASL mechanism.

A mechanism is the same for every version of AMQP. The client's first response is in
connection.start-ok, and empty when it has none. A step returns a challenge, which goes into
connection.secure and is answered with connection.secure-ok, or the user.

Other packages add mechanisms by an entry point of the group ``headrace.sasl``: its name is the
mechanism's, it loads a callable that takes a `MechanismServices` and returns a `Mechanism`, and it
is used when the setting ``sasl_mechanisms`` names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.gateway.security.remote_peer import LoginRefused

if TYPE_CHECKING:
    from headrace.gateway.oauth.tokens import Tokens
    from headrace.gateway.security.access import Access
    from headrace.gateway.security.remote_peer import RemotePeer
    from headrace.gateway.security.user import User

RESPONSE_BYTES_MAX = 12288  # A token is long; before the login a client may send 16 KiB in all.
STEPS_MAX = 8  # The maximum steps of one login.


@dataclass(frozen=True, slots=True)
class MechanismServices:
    """The users, tokens and settings that mechanisms check credentials with."""

    access: Access
    tokens: Tokens | None = None  # Checks bearer tokens; None: not configured.
    anonymous_user: str = ""  # The user of logins by ANONYMOUS; empty: none.
    certificate_name: str = "common_name"  # The part of a certificate that names the user.
    certificate_san: str = "dns"  # The type of a subject alternative name.


class Steps(Protocol):
    """One login by a mechanism."""

    async def step(self, response: bytes) -> bytes | User:
        """Take a response; return the next challenge, or the authenticated user.

        Raises:
            LoginRefused: the response does not prove a user.
        """


class Mechanism(Protocol):
    """A way to log in."""

    @property
    def name(self) -> str:
        """The registered name of the mechanism."""

    @property
    def clear(self) -> bool:
        """True if the mechanism sends the password in clear text."""

    def offered(self, peer: RemotePeer) -> bool:
        """Return True if this connection can use it."""

    def begin(self, peer: RemotePeer) -> Steps:
        """Return the steps of a new login from ``peer``."""


def decode_name(raw: bytes, field: str, bytes_max: int = 255) -> str:
    """Decode a name that a client sent.

    Raises:
        LoginRefused: the name is not UTF-8, empty or longer than ``bytes_max`` bytes.
    """
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise LoginRefused(f"{field} is not UTF-8") from None
    if not name or len(raw) > bytes_max:
        raise LoginRefused(f"{field} is empty or too long")
    return name
