# SPDX-License-Identifier: Apache-2.0
"""Peers with another protocol than our versions of AMQP: a sentence for the log."""

from headrace.protocol.negotiate import numbers_of

HTTP = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI ")
TLS_RECORD = b"\x16\x03"  # A handshake of SSL 3 or any TLS.
SHOWN_OCTETS = 16


def stranger(octets: bytes) -> str:
    """Return a sentence about the first bytes of a peer that is not served."""
    if octets.startswith(TLS_RECORD):
        return "TLS on a port without TLS"
    if octets[:4] in HTTP:
        return "HTTP on an AMQP port"
    if octets.startswith(b"AMQP"):
        numbers = "-".join(map(str, numbers_of(octets)))
        return f"a client asks for AMQP {numbers}, which is not served"
    return f"the first bytes are not an AMQP header: {octets[:SHOWN_OCTETS]!r}"
