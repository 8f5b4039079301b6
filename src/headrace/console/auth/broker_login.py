# SPDX-License-Identifier: Apache-2.0
"""Logins at the broker, which checks a password or a token and issues a ticket of the user.

Every operation for a user carries the ticket to the broker. A changed password, a deleted user or
an expired token ends the ticket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.broker.connection import OTHER_VERSION
from headrace.console.broker.errors import BrokerGone, OperationRefused
from headrace.console.broker.link import LOGIN
from headrace.console.http_errors import HttpError

if TYPE_CHECKING:
    from headrace.console.broker.link import BrokerLink
    from headrace.untyped import JsonObject

FRESH_S = 3.0  # The time for which a confirmed ticket counts as valid.
ENDED = "the ticket is unknown, or has ended"  # The broker's text.
NO_TAG = "none of the tags"  # In the broker's text for a user without a tag of the console.


@dataclass(frozen=True, slots=True)
class Identity:
    """A user with a ticket of the broker."""

    name: str
    tags: tuple[str, ...]
    vhosts: frozenset[str]  # The virtual hosts that the user may open.
    sees_all: bool  # The user sees all virtual hosts and connections.
    by_token: bool  # The user logged in with a token, and may have no account at the broker.
    ticket: str

    def sees_vhost(self, name: str) -> bool:
        """Return True if the user sees the objects of a virtual host."""
        return self.sees_all or name in self.vhosts

    def sees_user(self, name: str) -> bool:
        """Return True if the user sees the connections of another user."""
        return self.sees_all or name == self.name


@dataclass(slots=True, eq=False)
class Login:
    """A login that the console keeps; the broker confirms its ticket every ``FRESH_S``."""

    identity: Identity
    confirmed_s: float  # When the broker last confirmed the ticket, by the monotonic clock.

    async def is_valid(self, link: BrokerLink, now_s: float) -> bool:
        """Return True if the ticket is valid, as the broker confirms every ``FRESH_S``.

        Raises:
            BrokerGone: the broker does not answer.
        """
        if now_s - self.confirmed_s > FRESH_S:
            identity = await confirm(link, self.identity)
            if identity is None:
                return False
            self.identity, self.confirmed_s = identity, now_s
        return True


async def log_in(
    link: BrokerLink,
    *,
    peer: str,
    encrypted: bool,
    username: str = "",
    password: str = "",
    token: str = "",
) -> Identity:
    """Log in with a password or a token; return the user with a ticket.

    Raises:
        HttpError: 401, the broker refused the login.
        OperationRefused: too many logins of the address wait.
        BrokerGone: the broker does not answer.
    """
    host = peer.rpartition(":")[0]
    secret: JsonObject = {"token": token} if token else {"username": username, "password": password}
    try:
        async with link.login_throttle.turn(host, username):
            done = await link.ask(LOGIN, protocol="http", peer=peer, encrypted=encrypted, **secret)
    except OperationRefused as error:
        if error.code in ("refused", "bad-request"):
            raise refused_login(is_known=NO_TAG in error.text) from None
        raise
    return parse_identity(done, done.get("ticket"))


def refused_login(*, is_known: bool = False) -> HttpError:
    """Return the error for a login that the broker refused.

    It has no challenge, so that browsers do not ask for a password themselves. With ``is_known``
    the credentials are right, but the user has no tag of the console.
    """
    if is_known:
        return HttpError(401, "Not management user")
    return HttpError(401, "Not_Authorized", error="not_authorized")


async def confirm(link: BrokerLink, identity: Identity) -> Identity | None:
    """Return the user of a ticket with the present tags; None if the ticket has ended.

    Raises:
        BrokerGone: the broker does not answer.
    """
    try:
        done = await link.ask("whoami", ticket=identity.ticket)
    except OperationRefused as error:
        if error.code == "refused":
            return None
        raise
    return parse_identity(done, identity.ticket)


def parse_identity(done: JsonObject, ticket: object) -> Identity:
    """Return the user in the broker's answer.

    Raises:
        BrokerGone: the answer lacks a field; the broker is of another version.
    """
    try:
        return Identity(
            name=str(done["user"]),
            tags=tuple(done["tags"]),
            vhosts=frozenset(done["vhosts"]),
            sees_all=done["sees_all"] is True,
            by_token=done["by_token"] is True,
            ticket=require_text(ticket),
        )
    except (KeyError, TypeError):
        raise BrokerGone(OTHER_VERSION) from None


def require_text(value: object) -> str:
    """Return a value that is a string.

    Raises:
        TypeError: the value is not a string.
    """
    if not isinstance(value, str):
        raise TypeError
    return value
