# SPDX-License-Identifier: Apache-2.0
"""Closes connections whose client certificate is no longer valid.

A certificate is verified at the handshake. If a later revocation list names it, or one of its
intermediate authorities, the broker closes the connection with code 320, whatever the mechanism of
the login. The same happens if one of these authorities is no longer trusted. An expired certificate
closes a connection only with the setting ``certificate_expiry_closes``: unlike a token, a
certificate cannot be renewed on an open connection.

The list is read again with all other TLS files, and when its file changes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.server.net.der_certificates import (
    AUTHORITIES_SIZE_MAX,
    LIST_SIZE_MAX,
    Authority,
    CertificateId,
    Chain,
    DerError,
    find_revoked,
    parse_authorities,
    read_chain,
)
from headrace.server.net.tls import TlsError
from headrace.server.net.transport import clock_ms

if TYPE_CHECKING:
    from headrace.gateway.security.audit import Audit
    from headrace.server.config.settings import Settings
    from headrace.server.net.transport import Transport

log = logging.getLogger(__name__)

CHECK_S = 1.0  # The interval between checks of the file and of the expiry of certificates.


class Revocation:
    """Checks the certificates of a broker's connections."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        transports: Iterable[Transport],
        *,
        audit: Audit,
        read_again: Callable[[], object],
        turn: Callable[[], None],
    ) -> None:
        """Begin with the present state of the list's file.

        Args:
            settings: returns the settings in effect.
            transports: the live set of the transports of all connections.
            audit: the audit log, which records closed connections.
            read_again: reads the TLS files for new connections; raises TlsError if it cannot.
            turn: sends pending output.
        """
        self._settings = settings
        self._transports = transports
        self._audit = audit
        self._read_again = read_again
        self._turn = turn
        self._seen = self._state()
        self._task: asyncio.Task[None] | None = None
        self._check_again = False  # The list was read again during a check.

    # --- The file -------------------------------------------------------------------------------

    def poll(self) -> None:
        """Read the files again if the list has changed, and close expired connections."""
        settings = self._settings()
        state = self._state()
        if state != self._seen:
            self._seen = state
            try:
                if settings.tls_port is None:
                    self.check()  # Check the certificates of earlier connections.
                else:
                    self._read_again()
            except TlsError as error:
                log.error("the revocation list has changed, and is not used: %s", error)
        if settings.certificate_expiry_closes:
            self.expire()

    def _state(self) -> tuple[object, ...] | None:
        """Return values that change with the list's file; None without a readable file."""
        path = self._settings().tls_crl
        try:
            status = None if path is None else path.stat()
        except OSError:
            return None
        return status and (str(path), status.st_ino, status.st_size, status.st_mtime_ns)

    # --- Connections ----------------------------------------------------------------------------

    def check(self) -> None:
        """Check all certificates in a task; a thread reads the list, which may be long."""
        self._seen = self._state()
        if self._task is not None and not self._task.done():
            self._check_again = True
            return
        self._task = asyncio.get_running_loop().create_task(self._check())

    async def _check(self) -> None:
        """Close the connections with invalid certificates; repeat if a check was requested."""
        while True:
            self._check_again = False
            chains = {
                transport: chain
                for transport in self._certified_transports()
                if (chain := verified_chain(transport))
            }
            if chains:
                settings = self._settings()
                try:
                    trusted = await asyncio.to_thread(read_authorities, settings.tls_ca)
                    self._end_withdrawn(chains, trusted)
                    certificates = {
                        certificate for chain in chains.values() for certificate in chain.ids()
                    }
                    revoked = await asyncio.to_thread(read_revoked, settings.tls_crl, certificates)
                    self._end_revoked(chains, revoked)
                except (OSError, DerError) as error:
                    files = f"{settings.tls_ca} and {settings.tls_crl}"
                    log.error("%s: some clients' certificates were not checked: %s", files, error)
                self._turn()
            if not self._check_again:
                return

    def _end_withdrawn(self, chains: dict[Transport, Chain], trusted: set[Authority]) -> None:
        for transport, chain in chains.items():
            if not chain.is_vouched(trusted):
                reason = "an authority of the client's certificate is no longer trusted"
                self._end(transport, "authority.withdrawn", reason)

    def _end_revoked(self, chains: dict[Transport, Chain], revoked: set[CertificateId]) -> None:
        for transport, chain in chains.items():
            ids = chain.ids()
            match = next((certificate for certificate in ids if certificate in revoked), None)
            if match is None:
                continue
            prefix = "" if match == ids[0] else "an authority of "
            self._end(
                transport,
                "certificate.revoked",
                f"{prefix}the client's certificate was revoked",
                serial=f"{match.serial:x}",
            )

    def expire(self) -> None:
        """Close the connections whose certificate has expired."""
        now = clock_ms() / 1000
        any_closed = False
        for transport in self._certified_transports():
            until = (transport.peer.certificate or {}).get("notAfter")
            if until and ssl.cert_time_to_seconds(until) <= now:
                self._end(transport, "certificate.expired", "the client's certificate has expired")
                any_closed = True
        if any_closed:
            self._turn()

    def _certified_transports(self) -> list[Transport]:
        """Return the open connections with a client certificate."""
        return [
            transport
            for transport in self._transports
            if not transport.closing and transport.peer is not None and transport.peer.certificate
        ]

    def _end(self, transport: Transport, event: str, reason: str, **facts: object) -> None:
        """Close a connection because of its certificate, and audit that as ``event``."""
        if transport.closing:
            return
        connection = transport.connection
        if self._audit.active:
            self._audit.record(
                event,
                user=connection.user,
                peer=transport.peer,
                allowed=False,
                reason=reason,
                connection=connection.number,
                **facts,
            )
        if transport.handshake_ticks:
            log.warning("connection %d: %s", connection.number, reason)
            transport.abort()  # The connection is not open, so no close method can be sent.
        else:
            connection.force_close(reason)


def verified_chain(transport: Transport) -> Chain | None:
    """Return the chain of a client's certificate; None without one that can be parsed."""
    chain = read_chain(transport.stream.get_extra_info("ssl_object"))
    try:
        chain.ids()
    except DerError as error:
        log.warning("connection %d: certificate: %s", transport.connection.number, error)
        return None
    return chain if chain.verified else None


def read_revoked(path: Path | None, certificates: set[CertificateId]) -> set[CertificateId]:
    """Return the certificates that the lists in a file revoke; none without a file.

    Raises:
        OSError: the file cannot be read.
        DerError: the file is malformed, or too long.
    """
    if path is None:
        return set()
    return find_revoked(read_contents(path, LIST_SIZE_MAX), certificates)


def read_authorities(path: Path | None) -> set[Authority]:
    """Return the authorities in a file; none without a file.

    Raises:
        OSError: the file cannot be read.
        DerError: the file is malformed, or too long.
    """
    return set() if path is None else parse_authorities(read_contents(path, AUTHORITIES_SIZE_MAX))


def read_contents(path: Path, size_max: int) -> bytes:
    """Read a file.

    Raises:
        OSError: the file cannot be read.
        DerError: the file is longer than ``size_max``.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > size_max:
            raise DerError(f"it has more than {size_max} bytes")
        return file.read()
