# SPDX-License-Identifier: Apache-2.0
"""Protocol negotiation: the eight bytes that open a connection choose its version."""

from __future__ import annotations

from headrace.spec.tables import V0_8, V0_9, V0_9_1, V0_10, Version

HEADER_SIZE = 8

# A header of the web edition of the 0-8 standard, sent by some clients, follows the regular ones.
HEADERS: dict[bytes, Version] = {
    **{version.header: version for version in Version},
    b"AMQP\x01\x01\x09\x01": V0_8,
}

SERVED: dict[Version, bool] = {V0_8: False, V0_9: False, V0_9_1: True, V0_10: False}

# An unknown header is answered with the best version that we serve.
BEST = V0_9_1


def negotiate(header: bytes) -> Version | bytes:
    """The version to speak after this header, or the header to answer with before closing."""
    version = HEADERS.get(bytes(header))
    if version is not None and SERVED[version]:
        return version
    return BEST.header
