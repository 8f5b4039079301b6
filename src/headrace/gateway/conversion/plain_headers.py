# SPDX-License-Identifier: Apache-2.0
"""Headers for clients that read only the value types of 0-8 and 0-9: S, I, D, T and F.

Such a client can read the rest of a content only if it can read all its headers. Messages are
stored unchanged; headers with other types are converted at delivery::

    t b B s u i l L  I when it fits into 32 bits, else S in decimal
    f d              S in decimal
    x                S
    A                F with the keys "1", "2" ...
    V                left out
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from headrace.wire.property_bits import HAS_CONTENT_ENCODING, HAS_CONTENT_TYPE
from headrace.wire.table import Timestamp, decode_table, encode_entry, encode_timestamp

FLAGS_AT = 12
PROPERTIES_AT = 14
# In every class that has headers.
BEFORE_HEADERS = (HAS_CONTENT_TYPE, HAS_CONTENT_ENCODING)
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def plain_header(payload: bytes) -> bytes:
    """Return the payload of a content header frame with plain types in its headers."""
    flags = int.from_bytes(payload[FLAGS_AT:PROPERTIES_AT], "big")
    position = PROPERTIES_AT
    for flag in BEFORE_HEADERS:
        if flags & flag:
            position += 1 + payload[position]
    table, end = decode_table(payload, position)
    return payload[:position] + plain_table(table) + payload[end:]


def plain_table(table: Mapping[str, object]) -> bytes:
    """Encode a table with plain types only."""
    entries = b"".join(
        len(raw := key.encode()).to_bytes(1, "big") + raw + plain_value(value)
        for key, value in table.items()
        if value is not None
    )
    return len(entries).to_bytes(4, "big") + entries


def plain_value(value: object) -> bytes:
    """Encode a value with its tag."""
    if isinstance(value, Mapping):
        return b"F" + plain_table(value)
    if isinstance(value, list | tuple):
        return b"F" + plain_table({str(n): item for n, item in enumerate(value, 1)})
    if isinstance(value, Timestamp | datetime):
        return b"T" + encode_timestamp(value).to_bytes(8, "big")
    if isinstance(value, int) and INT_MIN <= value <= INT_MAX:
        return b"I" + int(value).to_bytes(4, "big", signed=True)
    if isinstance(value, Decimal):
        return encode_entry("", value)[1:]
    raw = value if isinstance(value, bytes) else plain_text(value).encode()
    return b"S" + len(raw).to_bytes(4, "big") + raw


def plain_text(value: object) -> str:
    """Return the text in place of a value without a plain type."""
    return value if isinstance(value, str) else str(value)
