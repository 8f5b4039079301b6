# SPDX-License-Identifier: Apache-2.0
"""The operation that lists the certificates of TLS, each with the time at which it expires."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.server.net.tls import read_server_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.server.config.settings import Settings
    from headrace.server.management.call import Call, Operation, Steps

PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
# Tags and lengths of DER (X.690 8.1), as far as a certificate (RFC 5280 4.1) has them here.
VERSION, UTC_TIME = 0xA0, 0x17
LONG_LENGTH = 0x80
CENTURY = 50  # Of a UTCTime: years below are after 2000.


def list_certificates(call: Call) -> Steps:
    """List the certificates in the files of TLS, with ``expires``."""
    count = 0
    for setting, path in files_of(call.broker.settings):
        try:
            found = PEM.findall(path.read_text("ascii", "replace"))
            ends = [expires(ssl.PEM_cert_to_DER_cert(one)) for one in found]
        except (OSError, ValueError, IndexError) as error:
            call.refuse("precondition", f"{setting} {path} cannot be read: {error}")
        for end in ends:
            count += 1
            yield {"setting": setting, "file": str(path), "expires": end.isoformat()}
        yield None
    return {"items": count}


def files_of(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yield the files with certificates, each with the setting that names it."""
    if settings.tls_cert is None:
        return
    yield "tls_cert", settings.tls_cert
    if settings.tls_ca is not None:
        yield "tls_ca", settings.tls_ca
    for each in read_server_names(settings.tls_server_names):
        yield "tls_server_names", each.chain


def expires(der: bytes) -> datetime:
    """Return the end of the validity of a certificate.

    Raises:
        ValueError: it is none.
        IndexError: it is cut off.
    """
    at = element(der, element(der, 0)[1])[1]  # Within the certificate, within what is signed.
    tag, start, end = element(der, at)
    for _ in range(4 if tag == VERSION else 3):  # Version, serial number, algorithm, issuer.
        at = end
        tag, start, end = element(der, at)
    _, _, end = element(der, start)  # Not before,
    tag, start, end = element(der, end)  # and not after.
    text = der[start:end].decode("ascii")
    if tag == UTC_TIME:
        text = ("20" if int(text[:2]) < CENTURY else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of an element of DER, and where its content begins and ends."""
    tag, length, at = der[at], der[at + 1], at + 2
    if length >= LONG_LENGTH:
        width = length - LONG_LENGTH
        length, at = int.from_bytes(der[at : at + width]), at + width
    return tag, at, at + length


OPERATIONS: dict[str, Operation] = {"list certificates": list_certificates}
