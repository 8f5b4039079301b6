# SPDX-License-Identifier: Apache-2.0
"""What a SASL mechanism is, and what it may use.

A mechanism is the same for every version of AMQP. The client's first response comes with
connection.start-ok, and is empty when it has none. A step answers with octets, which go into
connection.secure and are answered with connection.secure-ok, or with the user.

Others bring theirs by an entry point of the group ``headrace.sasl``: its name is the mechanism's,
it loads a callable that takes a `Desk` and returns a `Mechanism`, and it is used when the setting
``sasl_mechanisms`` names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.gateway.security.remote_peer import LoginRefused

if TYPE_CHECKING:
    from headrace.gateway.oauth.tokens import Tokens
    from headrace.gateway.security.access import Access, User
    from headrace.gateway.security.remote_peer import Peer

RESPONSE_BYTES_MAX = 12288  # A token is long; before the login a client may send 16 KiB in all.
STEPS_MAX = 8  # Of one login.


@dataclass(frozen=True, slots=True)
class Desk:
    """What mechanisms may use."""

    access: Access
    tokens: Tokens | None = None  # Checks bearer tokens; None: there are none.
    anonymous_user: str = ""  # As whom clients log in by ANONYMOUS; empty: none.
    certificate_name: str = "common_name"  # Where EXTERNAL finds the name of the user.
    certificate_san: str = "dns"  # Which subject alternative name, then.


class Steps(Protocol):
    """One login by a mechanism."""

    async def step(self, response: bytes) -> bytes | User:
        """Take a response; return the next challenge, or the user that is proven.

        Raises:
            LoginRefused: it proves nobody.
        """


class Mechanism(Protocol):
    """A way to log in."""

    @property
    def name(self) -> str:
        """As clients ask for it."""

    @property
    def clear(self) -> bool:
        """It sends a secret as it is, so that whoever can read the wire has it."""

    def offered(self, peer: Peer) -> bool:
        """Tell whether somebody on this connection could log in by it."""

    def begin(self, peer: Peer) -> Steps:
        """Begin a login."""


def text_of(octets: bytes, what: str, octets_max: int = 255) -> str:
    """Return a name that a client sent.

    Raises:
        LoginRefused: it is none.
    """
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        raise LoginRefused(f"{what} is not UTF-8") from None
    if not text or len(octets) > octets_max:
        raise LoginRefused(f"{what} is empty or too long")
    return text
