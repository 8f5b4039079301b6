# SPDX-License-Identifier: Apache-2.0
"""Tickets on disk, so that logins survive a restart of the broker.

The file ``tickets`` of the data directory has a line of JSON for each ticket: the hash of the
ticket, the user, the address of the login, times in Unix milliseconds, and a hash of the user's
password hash and tags. Neither a ticket nor a password can be computed from these. Tickets of
logins by a token are not kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.disk import Disk
from headrace.store.replacement import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.model.policy.accounts import Account

log = logging.getLogger(__name__)

NAME = "tickets"
SIZE_MAX = 4 << 20  # Bytes; a larger file is not read.


class StoredTicket(NamedTuple):
    """A ticket in the file."""

    key: str  # The hash of the ticket, in hexadecimal digits.
    user: str
    account: str  # See :func:`account_digest`.
    host: str
    port: int
    encrypted: bool
    began_ms: int
    used_ms: int


class TicketFile:
    """The file of tickets in a data directory."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def read(self) -> list[StoredTicket]:
        """Return the tickets; if the file cannot be read, none, so that all users log in again."""
        try:
            if self.path.stat().st_size > SIZE_MAX:
                raise ValueError(f"it has more than {SIZE_MAX} bytes")
            lines = self.path.read_text("utf-8").splitlines()
            return [StoredTicket(**json.loads(line)) for line in lines]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            log.warning("%s is left out, so users log in again: %s", self.path, error)
            return []

    def write(self, tickets: list[StoredTicket]) -> None:
        """Replace the tickets durably.

        Raises:
            OSError: the tickets could not be written.
        """
        lines = [json.dumps(ticket._asdict(), separators=(",", ":")) + "\n" for ticket in tickets]
        write_whole(Disk(), str(self.path), "".join(lines).encode())


def account_digest(account: Account) -> str:
    """Return a hash that changes with an account's password and tags."""
    text = json.dumps([account.name, account.password_hash, account.tags])
    return hashlib.sha256(text.encode()).hexdigest()
