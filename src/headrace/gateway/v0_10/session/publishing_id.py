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


def extract_publishing_id_0_10(segment: bytes) -> tuple[bytes, PublishingId | None]:
    """Return a header segment of 0-10 without its publishing id, and its number; None without one.

    Raises:
        ExecutionError: the segment is malformed, or its publishing id is not a number.
    """
    struct, start, stop = find_headers(segment)
    return _extract_from_map(segment, struct, start, stop) if start else (segment, None)


def _headers_at(buffer: bytes, position: int, end: int) -> int:
    """Return the index of the application headers in message-properties; 0 without any."""
    if end - position < 2:
        raise malformed("a struct is cut off")
    flags = buffer[position] | buffer[position + 1] << 8
    if not flags & MESSAGE_HAS_APPLICATION_HEADERS:
        return 0
    position += 2 + (8 if flags & MESSAGE_HAS_CONTENT_LENGTH else 0)
    position += 16 if flags & MESSAGE_HAS_MESSAGE_ID else 0
    for bit, wide in _BEFORE_HEADERS:
        if flags & bit:
            if end - position < wide:
                raise malformed("message-properties are cut off")
            position += wide + (get16(buffer, position) if wide == 2 else buffer[position])
    if (
        end - position < 4
        or position + 4 + get32(buffer, position) != end
        or check_map(buffer, position, end) != end
    ):
        raise malformed("application-headers are malformed")
    return position


def _extract_from_map(
    buffer: bytes, struct: int, start: int, stop: int
) -> tuple[bytes, PublishingId | None]:
    """Do the work of :func:`extract_publishing_id_0_10` for the map at ``start``.

    The map is in the struct at ``struct``.
    """
    headers = decode_map(buffer, start)[0]
    if ID_KEY not in headers:
        return buffer, None
    try:
        number = parse_publishing_id(headers.get(NAME_KEY), headers[ID_KEY])
    except PreconditionFailed as error:
        raise ExecutionError(ExecutionCode.PRECONDITION_FAILED, error.text) from None
    return without_entry(buffer, struct, start, stop, ID_KEY.encode()), number


def without_entry(buffer: bytes, struct: int, start: int, stop: int, key: bytes) -> bytes:
    """Return a header segment without an entry of the map at ``start``.

    The map is the last field of the struct at ``struct``, which ends at ``stop``.
    """
    kept_entries = []
    position = start + 8
    while position < stop:
        value = position + 1 + buffer[position] + 1
        following = value + value_size(buffer, buffer[value - 1], value, stop)
        if buffer[position + 1 : value - 1] != key:
            kept_entries.append(buffer[position:following])
        position = following
    entries = b"".join(kept_entries)
    table = (4 + len(entries)).to_bytes(4, "big") + len(kept_entries).to_bytes(4, "big") + entries
    fields = buffer[struct + 4 : start] + table
    return buffer[:struct] + len(fields).to_bytes(4, "big") + fields + buffer[stop:]


def find_headers(segment: bytes) -> tuple[int, int, int]:
    """Return struct, start and end of the application headers of a segment; zeros without them.

    Raises:
        ExecutionError: the segment is malformed.
    """
    position = 0
    while position + 6 <= len(segment):
        stop = position + 4 + get32(segment, position)
        if get16(segment, position + 4) == _MESSAGE_PROPERTIES and stop <= len(segment):
            start = _headers_at(segment, position + 6, stop)
            return (position, start, stop) if start else (0, 0, 0)
        position = stop
    return 0, 0, 0
