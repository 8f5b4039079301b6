# SPDX-License-Identifier: Apache-2.0
"""Tickets: proofs of a login that stand for a user on the management socket.

A ticket is 256 random bits; the broker keeps only its hash. It is valid from the address of the
login only. It ends at a logout, after ``IDLE_S`` without use, and at the latest ``LIFE_S`` after
the login. It also ends when the user's password, tags or account change, and when the token of the
login expires or its issuer is no longer trusted. :mod:`headrace.operator_logins` has the times. A
broker with a data directory keeps the tickets of its own accounts over a restart
(:mod:`headrace.server.management.ticket_file`); the time without a broker counts as idle.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from typing import TYPE_CHECKING

from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer, is_loopback
from headrace.operator_logins import IDLE_S, LoginCache, is_over
from headrace.server.management.ticket_file import StoredTicket, account_digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from headrace.gateway.security.access import Access
    from headrace.gateway.security.user import User
    from headrace.model.policy.accounts import Account
    from headrace.server.management.ticket_file import TicketFile

log = logging.getLogger(__name__)

TICKETS_MAX = 4096  # Tickets of all users; a further one replaces the one idle longest.
OF_USER_MAX = 256  # Tickets of one user.
TICKET_BYTES = 32
# The file's time of a use may be older by this, so an active ticket survives a kill of the broker.
UNWRITTEN_USE_S = IDLE_S / 3


class Ticket:
    """A ticket and the login that it stands for."""

    __slots__ = ("account", "began_s", "used_s", "user", "written_s")

    def __init__(self, user: User, account: Account | None, now_s: float) -> None:
        """``account`` is None for a user with a token."""
        self.user = user
        self.account = account
        self.began_s = now_s
        self.used_s = now_s
        self.written_s = now_s  # The time of the use that the file has.


class Tickets:
    """The tickets of a broker."""

    def __init__(
        self,
        access: Access,
        is_withdrawn: Callable[[User], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        file: TicketFile | None = None,
        writer: Executor | None = None,
    ) -> None:
        """Restore the tickets of a file, if one is given.

        Args:
            access: the accounts, which tell whether a user has changed since its login.
            is_withdrawn: returns True if the issuer of a user's token is no longer trusted.
            clock: returns seconds of a monotonic clock.
            file: the file that keeps the tickets over a restart, if any.
            writer: the executor of the thread that writes the file.
        """
        self._access = access
        self._is_withdrawn = is_withdrawn
        self._clock = clock
        self._tickets: LoginCache[Ticket] = LoginCache()
        self._file = file
        self._writer = writer
        self._pending_write: Future[None] | None = None  # It includes changes until it starts.
        if file is not None:
            self._restore(file.read())

    def __len__(self) -> int:
        return len(self._tickets)

    def issue(self, user: User) -> str:
        """Return a new ticket for a user who has just logged in with a password or token."""
        self._tickets.make_room(lambda ticket: ticket.user.same_as(user), OF_USER_MAX)
        account = None if user.grants is not None else self._access.account(user.name)
        text = secrets.token_urlsafe(TICKET_BYTES)
        self._tickets.add(hash_ticket(text), Ticket(user, account, self._clock()), TICKETS_MAX)
        self._schedule_write()
        return text

    def find_user(self, text: str, peer: RemotePeer | None = None) -> User | None:
        """Return the user of a ticket, with its present rights, and count the ticket as used.

        ``peer`` is the address of the request, by default that of the login. Return None if the
        ticket is unknown or has ended, or if ``peer`` has another host than the login.
        """
        key = hash_ticket(text)
        ticket = self._tickets.get(key)
        if ticket is None or (peer is not None and peer.host != ticket.user.peer.host):
            return None
        now_s = self._clock()
        if not self._is_valid(ticket, now_s):
            del self._tickets[key]
            return None
        ticket.used_s = now_s
        self._tickets.move_to_end(key)
        if ticket.account is None:
            return ticket.user
        if now_s - ticket.written_s > UNWRITTEN_USE_S:
            self._schedule_write()
        try:
            return self._access.admit(ticket.user.name, peer or ticket.user.peer)
        except LoginRefused:
            return None  # The user may not log in from this address, as guest from another machine.

    def is_valid(self, text: str) -> bool:
        """Return True if a ticket has not ended, without counting it as used."""
        ticket = self._tickets.get(hash_ticket(text))
        return ticket is not None and self._is_valid(ticket, self._clock())

    def end(self, text: str) -> Future[None] | None:
        """End a ticket; return a future that ends when the file is written.

        Return None if the ticket does not exist, or if no file keeps tickets.
        """
        if self._tickets.pop(hash_ticket(text), None) is None:
            return None
        return self._schedule_write()

    def close(self) -> None:
        """Write the tickets with the times of their last use, as the broker stops; blocks."""
        if self._writer is not None:
            self._writer.submit(self._write).result()

    # --- The file -----------------------------------------------------------------------------

    def _schedule_write(self) -> Future[None] | None:
        """Schedule a write of the tickets, which includes all changes until it starts."""
        if self._writer is None:
            return None
        pending = self._pending_write
        if pending is None or pending.running() or pending.done():
            self._pending_write = pending = self._writer.submit(self._write)
        return pending

    def _write(self) -> None:
        """Write the tickets of accounts; runs on the thread of ``writer``."""
        tickets = list(self._tickets.items())
        offset_s = time.time() - self._clock()
        stored = [
            StoredTicket(
                key=key.hex(),
                user=ticket.user.name,
                account=account_digest(ticket.account),
                host=ticket.user.peer.host,
                port=ticket.user.peer.port,
                encrypted=ticket.user.peer.encrypted,
                began_ms=round(1000 * (ticket.began_s + offset_s)),
                used_ms=round(1000 * (ticket.used_s + offset_s)),
            )
            for key, ticket in tickets
            if ticket.account is not None
        ]
        for _, ticket in tickets:
            ticket.written_s = ticket.used_s  # Also of a write that fails: uses must not repeat it.
        assert self._file is not None
        try:
            self._file.write(stored)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._file.path, error)

    def _restore(self, stored: list[StoredTicket]) -> None:
        """Restore the valid tickets whose accounts have not changed."""
        now_s = self._clock()
        offset_s = time.time() - now_s
        for row in sorted(stored, key=lambda ticket: ticket.used_ms)[-TICKETS_MAX:]:
            account = self._access.account(row.user)
            if account is None or account_digest(account) != row.account:
                continue
            peer = RemotePeer(row.host, row.port, is_loopback(row.host), row.encrypted)
            try:
                user = self._access.admit(row.user, peer)
            except LoginRefused:
                continue
            ticket = Ticket(user, account, min(now_s, row.began_ms / 1000 - offset_s))
            ticket.used_s = ticket.written_s = min(now_s, row.used_ms / 1000 - offset_s)
            if self._is_valid(ticket, now_s):
                self._tickets[bytes.fromhex(row.key)] = ticket

    def _is_valid(self, ticket: Ticket, now_s: float) -> bool:
        if is_over(ticket.began_s, ticket.used_s, now_s):
            return False
        user, account = ticket.user, ticket.account
        if account is None:
            return not self._access.has_expired(user) and not self._is_withdrawn(user)
        current = self._access.account(user.name)
        return (
            current is not None
            and current.password_hash == account.password_hash
            and current.tags == account.tags
        )


def hash_ticket(text: str) -> bytes:
    """Return the hash by which the broker finds a ticket."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
