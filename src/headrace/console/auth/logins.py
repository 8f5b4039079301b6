# SPDX-License-Identifier: Apache-2.0
"""Users who have logged in: the broker checks them, and gives a ticket to act as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.broker.connection import OTHER_VERSION
from headrace.console.broker.errors import BrokerGone, OperationRefused
from headrace.console.broker.link import LOGIN

if TYPE_CHECKING:
    from headrace.console.broker.link import BrokerLink
    from headrace.untyped import JsonObject

REFUSED = "the login was refused"  # The broker's one text for whatever is wrong.
FRESH_S = 3.0  # How long a ticket is not asked about: a changed password is refused that late.
ENDED = "the ticket is unknown, or has ended"


class LoginFailed(Exception):
    """The broker does not let a user in."""

    def __init__(self, *, is_known: bool) -> None:
        """``is_known``: the password is right, but the user may not use the console."""
        super().__init__("not a user of the console" if is_known else REFUSED)
        self.is_known = is_known


class NoCredentials(LoginFailed):
    """A request does not say who asks."""

    def __init__(self) -> None:
        super().__init__(is_known=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """A user with a ticket of the broker."""

    name: str
    tags: tuple[str, ...]
    vhosts: frozenset[str]  # Those that the user may open,
    sees_all: bool  # or True for all.
    by_token: bool  # The issuer of a token vouches for the user, who needs no account.
    ticket: str

    def sees_vhost(self, name: str) -> bool:
        """Return True if the user sees what is in a virtual host."""
        return self.sees_all or name in self.vhosts

    def sees_user(self, name: str) -> bool:
        """Return True if the user sees the connections of a user."""
        return self.sees_all or name == self.name


@dataclass(slots=True, eq=False)
class LoggedIn:
    """A user whom the console takes for logged in, without asking the broker each time."""

    identity: Identity
    asked_s: float  # When the broker last said that the ticket holds.

    async def holds(self, link: BrokerLink, now_s: float) -> bool:
        """Return False if the ticket has ended; the broker is asked if it was not lately.

        Raises:
            BrokerGone: the broker does not answer.
        """
        if now_s - self.asked_s > FRESH_S:
            identity = await look_again(link, self.identity)
            if identity is None:
                return False
            self.identity, self.asked_s = identity, now_s
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
    """Have the broker check a password, or a token.

    Raises:
        LoginFailed: the broker does not let the user in.
        OperationRefused: too many logins of that address wait.
        BrokerGone: the broker does not answer.
    """
    host = peer.rpartition(":")[0]
    secret: JsonObject = {"token": token} if token else {"username": username, "password": password}
    try:
        async with link.login_lines.turn(host, username):
            done = await link.ask(LOGIN, protocol="http", peer=peer, encrypted=encrypted, **secret)
    except OperationRefused as error:
        if error.code in ("refused", "bad-request"):
            raise LoginFailed(is_known="none of the tags" in error.text) from None
        raise
    return identity_of(done, done.get("ticket"))


async def look_again(link: BrokerLink, identity: Identity) -> Identity | None:
    """Return a user as the broker knows it now; None when the ticket has ended."""
    try:
        done = await link.ask("whoami", ticket=identity.ticket)
    except OperationRefused as error:
        if error.code == "refused":
            return None
        raise
    return identity_of(done, identity.ticket)


def identity_of(done: JsonObject, ticket: object) -> Identity:
    """Return the user of an answer.

    Raises:
        BrokerGone: the answer is no login's.
    """
    try:
        return Identity(
            name=str(done["user"]),
            tags=tuple(done["tags"]),
            vhosts=frozenset(done["vhosts"]),
            sees_all=done["sees_all"] is True,
            by_token=done["by_token"] is True,
            ticket=checked(ticket),
        )
    except (KeyError, TypeError):
        raise BrokerGone(OTHER_VERSION) from None


def checked(ticket: object) -> str:
    """Return a ticket; TypeError for anything else."""
    if not isinstance(ticket, str):
        raise TypeError
    return ticket
