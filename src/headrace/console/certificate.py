# SPDX-License-Identifier: Apache-2.0
"""The console's TLS certificate, read again when its files change."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)


class Certificate:
    """A TLS context with a certificate from files. Clients need no certificate."""

    def __init__(self, chain: Path, key: Path | None) -> None:
        """Read the files.

        Raises:
            OSError: a file cannot be read, or is not a certificate or key.
        """
        self._chain = chain
        self._key = key
        self._stamps = self._file_stamps()
        self.context = make_context(chain, key)

    def renew(self) -> bool:
        """Read the files again; return True if new connections get the new certificate.

        If a file cannot be used, new connections get the present one.
        """
        self._stamps = self._file_stamps()
        try:
            make_context(self._chain, self._key)  # A wrong pair must not reach the context in use.
            self.context.load_cert_chain(self._chain, self._key)
        except OSError as error:
            log.warning("the certificate stays as it was: %s: %s", self._chain, error)
            return False
        log.info("the certificate was read again: %s", self._chain)
        return True

    def renew_if_changed(self) -> None:
        """Read the files again if they changed since the last check."""
        if self._stamps != self._file_stamps():
            self.renew()

    def _file_stamps(self) -> list[tuple[int, int] | None]:
        return [file_stamp(path) for path in (self._chain, self._key) if path is not None]


def file_stamp(path: Path) -> tuple[int, int] | None:
    """Return time and inode of a file, which change with its content; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def make_context(chain: Path, key: Path | None) -> ssl.SSLContext:
    """Return a context with a certificate.

    Raises:
        OSError: a file cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(chain, key)
    return context
