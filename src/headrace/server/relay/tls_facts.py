# SPDX-License-Identifier: Apache-2.0
"""The facts about a client's TLS connection that a relay process sends to its broker."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, cast

from headrace.server.net.der_certificates import read_chain
from headrace.server.relay.frames import FACTS_MAX

if TYPE_CHECKING:
    import ssl

    from headrace.gateway.security.remote_peer import Certificate


def pack_facts(sock: ssl.SSLSocket, files: int) -> bytes:
    """Return the facts of a connection after its handshake, as JSON.

    ``files`` is the number of the TLS files of the handshake.

    Raises:
        ValueError: the client's certificates are too long.
    """
    chain = read_chain(sock)
    fields = {
        "files": files,
        "version": sock.version(),
        "cipher": sock.cipher(),
        "certificate": sock.getpeercert(),
        "verified": [base64.b64encode(certificate).decode() for certificate in chain.verified],
        "sent": [base64.b64encode(certificate).decode() for certificate in chain.sent],
    }
    data = json.dumps(fields).encode()
    if len(data) > FACTS_MAX:
        raise ValueError(f"its certificates take more than {FACTS_MAX} bytes")
    return data


class RelayedTls:
    """The TLS state of a connection whose socket a relay process owns, as :mod:`ssl` shows it."""

    def __init__(self, data: bytes) -> None:
        """``data`` is a result of :func:`pack_facts`."""
        fields = json.loads(data)
        self.files: int = fields["files"]
        self._version: str | None = fields["version"]
        self._cipher: list[object] | None = fields["cipher"]
        certificate = cast("Certificate | None", tuples(fields["certificate"]))
        self._certificate = certificate or None
        self._verified = [base64.b64decode(encoded) for encoded in fields["verified"]]
        self._sent = [base64.b64decode(encoded) for encoded in fields["sent"]]

    def get_extra_info(self, name: str) -> object:
        """Return the value of this name, as asyncio's transports do; None for other names."""
        return {"ssl_object": self, "peercert": self._certificate}.get(name)

    def version(self) -> str | None:
        """Return the version of TLS, such as ``TLSv1.3``."""
        return self._version

    def cipher(self) -> list[object] | None:
        """Return the cipher's name, the version that defined it, and its secret bits."""
        return self._cipher

    def getpeercert(self, binary_form: bool = False) -> Certificate | bytes | None:
        """Return the client's certificate, or with ``binary_form`` its DER."""
        if binary_form:
            return self._sent[0] if self._sent else None
        return self._certificate

    def get_verified_chain(self) -> list[bytes]:
        """Return the DER of the client's certificate and of the authorities above it."""
        return self._verified

    def get_unverified_chain(self) -> list[bytes]:
        """Return the DER of the certificates that the client sent."""
        return self._sent


def tuples(value: object) -> object:
    """Return a value of JSON with tuples for its lists, as :mod:`ssl` has them."""
    if isinstance(value, list):
        return tuple([tuples(item) for item in cast("list[object]", value)])
    if isinstance(value, dict):
        return {key: tuples(item) for key, item in cast("dict[str, object]", value).items()}
    return value
