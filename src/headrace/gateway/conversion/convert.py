# SPDX-License-Identifier: Apache-2.0
"""Conversion of content headers between the protocol families, for a consumer.

A message is kept in the form in which it was published (see :mod:`headrace.model.message`); it is
converted when it is delivered. Most messages of a queue have the same header as the one before,
except for the size of the body, so each consumer caches one header and its conversion: equal bytes
cost two comparisons. Other headers are read into the neutral set and written in the other form.

docs/reference/conversion.md lists the properties of both families and their conversion.
"""

import cython

from headrace.gateway.conversion.neutral_basic import read_basic, write_basic
from headrace.gateway.conversion.neutral_transfer import read_transfer, write_transfer
from headrace.gateway.conversion.neutral_values import CannotConvert

if not cython.compiled:
    from headrace.wire.memory import cut, get32, same

__all__ = ["CannotConvert", "Converter", "join_body_frames"]

# Index of the property flags in a header frame's payload, after class, weight and body size.
_FLAGS_AT = 12


class Converter:
    """Converts headers for one consumer. ``header_max`` is in bytes; 0 is no limit."""

    def __init__(self, header_max: int = 0) -> None:
        self.header_max = header_max
        self.address = b""
        self.source = b"-"  # The header that ``transfer`` was made of. "-" equals no header.
        self.transfer = b""
        self.transfer_source = b"-"
        self.basic = b""
        self.basic_size = 0

    def header_for_transfer(
        self, buffer: bytes | bytearray, address_len: int, header_at: int, header_size: int
    ) -> bytes:
        """Return the payload of a 0-10 header segment for a message of class basic.

        ``buffer`` starts with the address; the payload of its header frame is the ``header_size``
        bytes from ``header_at`` on.

        Raises:
            CannotConvert: the other family has no form for the message.
        """
        return self.transfer_at(buffer, 0, address_len, header_at, header_size)

    def transfer_at(
        self,
        buffer: bytes | bytearray,
        start: int,
        address_len: int,
        header_at: int,
        header_size: int,
    ) -> bytes:
        """Convert the header of a message whose address starts at ``start``."""
        if same(self.source, buffer, header_at + 12, header_at + header_size) and same(
            self.address, buffer, start, start + address_len
        ):
            return self.transfer
        return self.make_transfer(
            cut(buffer, start, start + address_len), cut(buffer, header_at, header_at + header_size)
        )

    def make_transfer(self, address: bytes, payload: bytes) -> bytes:
        """Convert a header that is not cached."""
        size = 1 + address[0]
        converted = write_transfer(read_basic(payload), address[1:size], address[size + 1 :])
        self.address = address
        self.source = payload[_FLAGS_AT:]
        self.transfer = converted
        return converted

    def header_for_basic(
        self, buffer: bytes | bytearray, address_len: int, position: int, size: int, body_size: int
    ) -> bytes:
        """Return the payload of a header frame of class basic for a message from 0-10.

        The payload of its header segment is ``buffer[position:position + size]``.

        Raises:
            CannotConvert: the other family has no form for the message.
        """
        if not same(self.transfer_source, buffer, position, position + size):
            return self.make_basic(cut(buffer, position, position + size), body_size)
        if body_size != self.basic_size:
            self.basic = self.basic[:4] + body_size.to_bytes(8, "big") + self.basic[_FLAGS_AT:]
            self.basic_size = body_size
        return self.basic

    def make_basic(self, payload: bytes, body_size: int) -> bytes:
        """Convert a header that is not cached."""
        converted = write_basic(read_transfer(payload), body_size)
        if self.header_max and len(converted) > self.header_max:
            raise CannotConvert(
                f"a header of {len(converted)} bytes exceeds the {self.header_max} that the "
                "client takes in one frame"
            )
        self.transfer_source = payload
        self.basic = converted
        self.basic_size = body_size
        return converted


def join_body_frames(buffer: bytes, position: int, end: int) -> bytes:
    """Return the body of a basic message whose body frames are ``buffer[position:end]``."""
    if position == end:
        return b""
    size = get32(buffer, position + 3)
    if position + 8 + size == end:
        return buffer[position + 7 : end - 1]
    parts: list[bytes] = []
    while position < end:
        size = get32(buffer, position + 3)
        parts.append(buffer[position + 7 : position + 7 + size])
        position += 8 + size
    return b"".join(parts)
