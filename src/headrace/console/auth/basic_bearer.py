# SPDX-License-Identifier: Apache-2.0
"""Logins of requests by Basic and Bearer: the broker checks them, and the console keeps them.

A login is kept until its ticket ends, or until 1,024 that were used later push it out. At a
request the broker is asked whether the ticket still holds, unless it was in the last three seconds.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.auth.logins import LoggedIn, LoginFailed, NoCredentials, log_in
from headrace.console.auth.origin import peer_of
from headrace.operator_logins import KeptLogins

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from headrace.console.auth.logins import Identity
    from headrace.console.broker.link import BrokerLink

REMEMBERED_MAX = 1024  # Users with a ticket.


@dataclass(frozen=True, slots=True)
class Credentials:
    """What an Authorization header proves a user by."""

    username: str = ""
    password: str = ""
    token: str = ""


class Authentication:
    """Finds the user of a request."""

    def __init__(self, link: BrokerLink) -> None:
        self._link = link
        self._remembered: KeptLogins[LoggedIn] = KeptLogins()
        self._asking: dict[bytes, asyncio.Lock] = {}

    def remembers(self, request: BaseRequest) -> bool:
        """Return True if the user of a request has logged in from that address before."""
        header = request.headers.get("Authorization")
        return header is not None and key_of(request, header) in self._remembered

    async def identify(self, request: BaseRequest) -> Identity:
        """Return the user of a request.

        Raises:
            LoginFailed: it has no credentials, or wrong ones.
            BrokerGone: the broker does not answer.
        """
        header = request.headers.get("Authorization")
        if header is None:
            raise NoCredentials
        credentials = credentials_in(header)
        if credentials is None:
            raise LoginFailed(is_known=False)
        peer, encrypted = peer_of(request), request.secure
        key = key_of(request, header)
        lock = self._asking.setdefault(key, asyncio.Lock())
        try:
            async with lock:  # Many requests with one password are one login.
                known = await self._still(key)
                if known is not None:
                    return known
                return await self._log_in(key, credentials, peer, encrypted)
        finally:
            # One that waits may be woken and not hold it yet: then two log in, which does no harm.
            if not lock.locked():
                self._asking.pop(key, None)

    def forget(self, identity: Identity) -> None:
        """Have the next request of a user log in again: its ticket has ended."""
        for key, login in list(self._remembered.items()):
            if login.identity.ticket == identity.ticket:
                del self._remembered[key]

    async def _still(self, key: bytes) -> Identity | None:
        login = self._remembered.get(key)
        if login is None:
            return None
        if not await login.holds(self._link, time.monotonic()):
            self._remembered.pop(key, None)
            return None
        self._remembered.move_to_end(key)
        return login.identity

    async def _log_in(
        self, key: bytes, credentials: Credentials, peer: str, encrypted: bool
    ) -> Identity:
        identity = await log_in(
            self._link,
            peer=peer,
            encrypted=encrypted,
            username=credentials.username,
            password=credentials.password,
            token=credentials.token,
        )
        self._remembered.add(key, LoggedIn(identity, time.monotonic()), REMEMBERED_MAX)
        return identity


def key_of(request: BaseRequest, header: str) -> bytes:
    """Return what a user is remembered by: the address and the credentials."""
    host = peer_of(request).rpartition(":")[0]
    return hashlib.sha256(f"{host}\0{request.secure}\0{header}".encode()).digest()


def credentials_in(header: str) -> Credentials | None:
    """Return the credentials of an Authorization header; None when it has none of our schemes."""
    scheme, _, value = header.strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer" and value:
        return Credentials(token=value)
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    username, colon, password = text.partition(":")
    return Credentials(username=username, password=password) if colon else None
