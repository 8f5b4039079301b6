# SPDX-License-Identifier: Apache-2.0
"""Protocol negotiation: the eight bytes that open a connection choose its version."""

from __future__ import annotations

from headrace.spec.tables import V0_8, V0_9, V0_9_1, V0_10, Version

# A header of the web edition of the 0-8 standard, sent by some clients, follows the regular ones.
HEADERS: dict[bytes, Version] = {
    **{version.header: version for version in Version},
    b"AMQP\x01\x01\x09\x01": V0_8,
}

SERVED: dict[Version, bool] = {V0_8: True, V0_9: True, V0_9_1: True, V0_10: True}

# The version of the answer to an unknown header, unless that names an older version.
BEST = V0_9_1

# Major, minor and revision, in the numbering of 0-9-1.
NUMBERS: dict[Version, tuple[int, int, int]] = {
    V0_8: (0, 8, 0),
    V0_9: (0, 9, 0),
    V0_9_1: (0, 9, 1),
    V0_10: (0, 10, 0),
}

HTTP = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI ")
TLS_RECORD = b"\x16\x03"  # A handshake of SSL 3 or any TLS.
SHOWN_BYTES = 16  # The logged bytes of a peer with another protocol.


# Keeps 0-9-1/connection.start#01, 0-9-1/connection.start#02, 0-9/connection.start#protocol-name,
# 0-9/connection.start#server-support, 0-10/s006.
def negotiate(header: bytes) -> Version | bytes:
    """Return the version of a protocol header, or the header to answer before closing.

    The answer is never a later version than the requested one, unless all served ones are later.
    """
    header = bytes(header)
    version = HEADERS.get(header)
    if version is not None and SERVED[version]:
        return version
    if version is None and header[:4] == b"AMQP":
        numbers = version_numbers(header)
        older = [v for v in Version if SERVED[v] and NUMBERS[v] <= numbers]
        if older and BEST not in older:
            return older[-1].header
    return BEST.header


def version_numbers(header: bytes) -> tuple[int, int, int]:
    """Return major, minor and revision of a protocol header.

    Before 0-9-1 its last four bytes were class, instance, major and minor.
    """
    if header[4:6] == b"\x01\x01":
        return header[6], header[7], 0
    return header[5], header[6], header[7]


def describe_unserved(first_bytes: bytes) -> str:
    """Return a sentence about the first bytes of a peer that is not served."""
    if first_bytes.startswith(TLS_RECORD):
        return "TLS on a port without TLS"
    if first_bytes[:4] in HTTP:
        return "HTTP on an AMQP port"
    if first_bytes.startswith(b"AMQP"):
        numbers = "-".join(map(str, version_numbers(first_bytes)))
        return f"a client asks for AMQP {numbers}, which is not served"
    return f"the first bytes are not an AMQP header: {first_bytes[:SHOWN_BYTES]!r}"
