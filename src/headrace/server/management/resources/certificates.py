# SPDX-License-Identifier: Apache-2.0
"""The operation that lists the broker's TLS certificates, with their expiry."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING

from headrace.server.management.operation_table import OperationTable
from headrace.server.net.der_certificates import parse_expiry
from headrace.server.net.tls import read_server_names
from headrace.user_tags import MONITOR

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.management_rows import CertificateRow
    from headrace.server.config.settings import Settings
    from headrace.server.management.call import Call, Steps

operation = OperationTable()

PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@operation("list certificates", MONITOR, reads=True)
def list_certificates(call: Call) -> Steps:
    """List the certificates in the TLS files, each with its expiry."""
    count = 0
    for setting, path in certificate_files(call.broker.settings):
        try:
            certificates = PEM.findall(path.read_text("ascii", "replace"))
            expiries = [
                parse_expiry(ssl.PEM_cert_to_DER_cert(certificate)) for certificate in certificates
            ]
        except (OSError, ValueError) as error:
            call.refuse("precondition", f"{setting} {path} cannot be read: {error}")
        for expiry in expiries:
            count += 1
            row: CertificateRow = {
                "setting": setting,
                "file": str(path),
                "expires": expiry.isoformat(),
            }
            yield row
        yield None
    return {"items": count}


def certificate_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yield the files with certificates, each with the setting that names it."""
    if settings.tls_cert is None:
        return
    yield "tls_cert", settings.tls_cert
    if settings.tls_ca is not None:
        yield "tls_ca", settings.tls_ca
    for server_name in read_server_names(settings.tls_server_names):
        yield "tls_server_names", server_name.chain
