# SPDX-License-Identifier: Apache-2.0
"""The console's certificate, which is read again when its files change."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)


class Certificate:
    """A context of TLS with a certificate from files. Clients need no certificates."""

    def __init__(self, chain: Path, key: Path | None) -> None:
        """Read the files.

        Raises:
            OSError: a file cannot be read, or has no certificate.
        """
        self._chain = chain
        self._key = key
        self._stamps = self._now()
        self.context = context_of(chain, key)

    def renew(self) -> bool:
        """Read the files again; return True if new connections get what they have.

        If a file cannot be used, nothing changes.
        """
        self._stamps = self._now()
        try:
            context_of(self._chain, self._key)  # The context in use must not get half of a pair.
            self.context.load_cert_chain(self._chain, self._key)
        except OSError as error:
            log.warning("the certificate stays as it was: %s: %s", self._chain, error)
            return False
        log.info("the certificate was read again: %s", self._chain)
        return True

    def renew_if_changed(self) -> None:
        """Read the files again if they were written since the last look."""
        if self._stamps != self._now():
            self.renew()

    def _now(self) -> list[tuple[int, int] | None]:
        return [stamp_of(path) for path in (self._chain, self._key) if path is not None]


def stamp_of(path: Path) -> tuple[int, int] | None:
    """Return what tells one content of a file from the next; None without the file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def context_of(chain: Path, key: Path | None) -> ssl.SSLContext:
    """Return a context with a certificate.

    Raises:
        OSError: a file cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(chain, key)
    return context
