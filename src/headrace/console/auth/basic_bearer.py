# SPDX-License-Identifier: Apache-2.0
"""The user of a request by its Authorization header, Basic or Bearer, and the 401 without one.

The broker checks a password or token and issues a ticket (:mod:`.broker_login`). The console keeps
the login for later requests until the ticket ends, or until 1,024 other logins are used more
recently. The broker confirms the ticket before a request, unless it did in the last three seconds.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.auth.addresses import client_address
from headrace.console.auth.broker_login import Login, log_in, refused_login
from headrace.console.http_errors import HttpError
from headrace.operator_logins import LoginCache

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from headrace.console.auth.broker_login import Identity
    from headrace.console.broker.link import BrokerLink

REMEMBERED_MAX = 1024  # Logins; beyond it the least recently used one is forgotten.
CHALLENGE = {"WWW-Authenticate": 'Basic realm="RabbitMQ Management"'}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials in an Authorization header: name and password, or a token."""

    username: str = ""
    password: str = ""
    token: str = ""


class Authentication:
    """Finds the user of a request by its Authorization header."""

    def __init__(self, link: BrokerLink) -> None:
        self._link = link
        self._remembered: LoginCache[Login] = LoginCache()
        self._locks: dict[bytes, asyncio.Lock] = {}

    def remembers(self, request: BaseRequest) -> bool:
        """Return True if the user of a request has logged in from that address before."""
        header = request.headers.get("Authorization")
        return header is not None and login_key(request, header) in self._remembered

    async def identify(self, request: BaseRequest) -> Identity:
        """Return the user of a request.

        Raises:
            HttpError: 401, with a challenge if the request has no Authorization header.
            BrokerGone: the broker does not answer.
        """
        header = request.headers.get("Authorization")
        if header is None:
            raise HttpError(401, "Login failed", error="not_authorised", headers=CHALLENGE)
        credentials = parse_credentials(header)
        if credentials is None:
            raise refused_login()
        key = login_key(request, header)
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:  # Many requests with one password are one login.
                identity = await self._remembered_identity(key)
                return identity or await self._log_in(key, credentials, request)
        finally:
            # Between the release of the lock and its next acquisition the lock looks free. Then two
            # requests may log in, which is harmless.
            if not lock.locked():
                self._locks.pop(key, None)

    def forget(self, identity: Identity) -> None:
        """Make the next request of a user log in again: the ticket has ended."""
        for key, login in list(self._remembered.items()):
            if login.identity.ticket == identity.ticket:
                del self._remembered[key]

    async def _remembered_identity(self, key: bytes) -> Identity | None:
        login = self._remembered.get(key)
        if login is None:
            return None
        if not await login.is_valid(self._link, time.monotonic()):
            self._remembered.pop(key, None)
            return None
        self._remembered.move_to_end(key)
        return login.identity

    async def _log_in(self, key: bytes, credentials: Credentials, request: BaseRequest) -> Identity:
        identity = await log_in(
            self._link,
            peer=client_address(request),
            encrypted=request.secure,
            username=credentials.username,
            password=credentials.password,
            token=credentials.token,
        )
        self._remembered.add(key, Login(identity, time.monotonic()), REMEMBERED_MAX)
        return identity


def login_key(request: BaseRequest, header: str) -> bytes:
    """Return the key of a login: a hash of the client's address and the credentials."""
    host = client_address(request).rpartition(":")[0]
    return hashlib.sha256(f"{host}\0{request.secure}\0{header}".encode()).digest()


def parse_credentials(header: str) -> Credentials | None:
    """Return the credentials of an Authorization header; None unless it is Basic or Bearer."""
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
