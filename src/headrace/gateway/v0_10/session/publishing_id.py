# SPDX-License-Identifier: Apache-2.0
"""The publishing id of a message of 0-10: read and removed from its application headers."""

from __future__ import annotations

from headrace.gateway.messages.publishing_id import ID_KEY, NAME_KEY
from headrace.gateway.v0_10.session.transfer_header import malformed
from headrace.model.errors import PreconditionFailed
from headrace.model.vhost.publishing_ids import PublishingId, parse_publishing_id
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.wire.memory import get16, get32
from headrace.wire.property_bits import (
    MESSAGE_HAS_APP_ID,
    MESSAGE_HAS_APPLICATION_HEADERS,
    MESSAGE_HAS_CONTENT_ENCODING,
    MESSAGE_HAS_CONTENT_LENGTH,
    MESSAGE_HAS_CONTENT_TYPE,
    MESSAGE_HAS_CORRELATION_ID,
    MESSAGE_HAS_MESSAGE_ID,
    MESSAGE_HAS_REPLY_TO,
    MESSAGE_HAS_USER_ID,
)
from headrace.wire.types_0_10 import check_map, decode_map, value_size

_MESSAGE_PROPERTIES = 0x0403

_BEFORE_HEADERS = (  # Fields of message-properties, each with the bytes of its size.
    (MESSAGE_HAS_CORRELATION_ID, 2),
    (MESSAGE_HAS_REPLY_TO, 2),
    (MESSAGE_HAS_CONTENT_TYPE, 1),
    (MESSAGE_HAS_CONTENT_ENCODING, 1),
    (MESSAGE_HAS_USER_ID, 2),
    (MESSAGE_HAS_APP_ID, 2),
)


def take_number_0_10(segment: bytes) -> tuple[bytes, PublishingId | None]:
    """Return a header segment of 0-10 without its publishing id, and its number; None without one.

    Raises:
        ExecutionError: the segment is malformed, or its publishing id is not a number.
    """
    struct, start, stop = find_headers(segment)
    return _take_from_map(segment, struct, start, stop) if start else (segment, None)


def _headers_at(d: bytes, at: int, end: int) -> int:
    """Return the index of the application headers in message-properties; 0 without any."""
    if end - at < 2:
        raise malformed("a struct is cut off")
    flags = d[at] | d[at + 1] << 8
    if not flags & MESSAGE_HAS_APPLICATION_HEADERS:
        return 0
    at += 2 + (8 if flags & MESSAGE_HAS_CONTENT_LENGTH else 0)
    at += 16 if flags & MESSAGE_HAS_MESSAGE_ID else 0
    for bit, wide in _BEFORE_HEADERS:
        if flags & bit:
            if end - at < wide:
                raise malformed("message-properties are cut off")
            at += wide + (get16(d, at) if wide == 2 else d[at])
    if end - at < 4 or at + 4 + get32(d, at) != end or check_map(d, at, end) != end:
        raise malformed("application-headers are malformed")
    return at


def _take_from_map(
    d: bytes, struct: int, start: int, stop: int
) -> tuple[bytes, PublishingId | None]:
    """As :func:`take_number_0_10`, of the map at ``start`` in the struct at ``struct``."""
    headers = decode_map(d, start)[0]
    if ID_KEY not in headers:
        return d, None
    try:
        number = parse_publishing_id(headers.get(NAME_KEY), headers[ID_KEY])
    except PreconditionFailed as error:
        raise ExecutionError(ExecutionCode.PRECONDITION_FAILED, error.text) from None
    return without_entry(d, struct, start, stop, ID_KEY.encode()), number


def without_entry(d: bytes, struct: int, start: int, stop: int, key: bytes) -> bytes:
    """Return a header segment without an entry of the map at ``start``.

    The map is the last field of the struct at ``struct``, which ends at ``stop``.
    """
    kept = []
    at = start + 8
    while at < stop:
        value = at + 1 + d[at] + 1
        following = value + value_size(d, d[value - 1], value, stop)
        if d[at + 1 : value - 1] != key:
            kept.append(d[at:following])
        at = following
    entries = b"".join(kept)
    table = (4 + len(entries)).to_bytes(4, "big") + len(kept).to_bytes(4, "big") + entries
    fields = d[struct + 4 : start] + table
    return d[:struct] + len(fields).to_bytes(4, "big") + fields + d[stop:]


def find_headers(segment: bytes) -> tuple[int, int, int]:
    """Return struct, start and end of the application headers of a segment; zeros without them.

    Raises:
        ExecutionError: the segment is malformed.
    """
    at = 0
    while at + 6 <= len(segment):
        stop = at + 4 + get32(segment, at)
        if get16(segment, at + 4) == _MESSAGE_PROPERTIES and stop <= len(segment):
            start = _headers_at(segment, at + 6, stop)
            return (at, start, stop) if start else (0, 0, 0)
        at = stop
    return 0, 0, 0
