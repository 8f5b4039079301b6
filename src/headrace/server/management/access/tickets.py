# SPDX-License-Identifier: Apache-2.0
"""Tickets: proofs of a login that stand for a user on the management socket.

A ticket is 256 random bits, of which only a hash is kept. It is good for the address of the login
only. It ends when it is idle for ``IDLE_S``, after ``LIFETIME_S`` at the latest, with the user's
password, tags or account, with the token that it was got for, or by a logout. Tickets do not
outlive the broker's process.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from headrace.gateway.security.remote_peer import LoginRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.security.access import Access, User
    from headrace.gateway.security.remote_peer import RemotePeer
    from headrace.model.policy.accounts import Account

IDLE_S = 15 * 60.0
LIFETIME_S = 8 * 3600.0
TICKETS_MAX = 4096  # Of all users; the one idle longest gives way,
OF_USER_MAX = 256  # and of one user.
TICKET_BYTES = 32


class Ticket:
    """A ticket and the login that it stands for."""

    __slots__ = ("account", "began_s", "used_s", "user")

    def __init__(self, user: User, account: Account | None, now_s: float) -> None:
        """``account`` is None for a user with a token, who needs none."""
        self.user = user
        self.account = account
        self.began_s = now_s
        self.used_s = now_s


class Tickets:
    """The tickets of a broker."""

    def __init__(
        self,
        access: Access,
        is_withdrawn: Callable[[User], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``is_withdrawn`` tells whether a user's token is of an issuer no longer trusted."""
        self._access = access
        self._is_withdrawn = is_withdrawn
        self._clock = clock
        self._tickets: OrderedDict[bytes, Ticket] = OrderedDict()  # By hash, idle longest first.

    def __len__(self) -> int:
        return len(self._tickets)

    def issue(self, user: User) -> str:
        """Return a new ticket for a user who has just proven a password or token."""
        of_user = [key for key, one in self._tickets.items() if one.user.same_as(user)]
        for key in of_user[: max(0, len(of_user) - OF_USER_MAX + 1)]:
            del self._tickets[key]
        while len(self._tickets) >= TICKETS_MAX:
            self._tickets.popitem(last=False)
        account = None if user.grants is not None else self._access.account(user.name)
        text = secrets.token_urlsafe(TICKET_BYTES)
        self._tickets[key_of(text)] = Ticket(user, account, self._clock())
        return text

    def user_of(self, text: str, peer: RemotePeer | None = None) -> User | None:
        """Return the user of a ticket as of now; None for an unknown or ended one.

        ``peer`` is where the present request comes from: None but for the login's address.
        Without ``peer`` it is where the login came from.
        """
        key = key_of(text)
        ticket = self._tickets.get(key)
        if ticket is None or (peer is not None and peer.host != ticket.user.peer.host):
            return None
        now_s = self._clock()
        if not self._lasts(ticket, now_s):
            del self._tickets[key]
            return None
        ticket.used_s = now_s
        self._tickets.move_to_end(key)
        if ticket.account is None:
            return ticket.user
        try:
            return self._access.admit(ticket.user.name, peer or ticket.user.peer)
        except LoginRefused:
            return None  # As guest from another machine.

    def lasts(self, text: str) -> bool:
        """Return True if a ticket has not ended; it does not count as used."""
        ticket = self._tickets.get(key_of(text))
        return ticket is not None and self._lasts(ticket, self._clock())

    def end(self, text: str) -> None:
        """End a ticket; an unknown one is no error."""
        self._tickets.pop(key_of(text), None)

    def _lasts(self, ticket: Ticket, now_s: float) -> bool:
        if now_s - ticket.used_s > IDLE_S or now_s - ticket.began_s > LIFETIME_S:
            return False
        user, account = ticket.user, ticket.account
        if account is None:
            return not self._access.expired(user) and not self._is_withdrawn(user)
        known = self._access.account(user.name)
        return (
            known is not None
            and known.password_hash == account.password_hash
            and known.tags == account.tags
        )


def key_of(text: str) -> bytes:
    """Return the hash under which a ticket is kept."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
