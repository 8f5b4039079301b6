# SPDX-License-Identifier: Apache-2.0
"""The header segment of a message.transfer that a client publishes: reading, checks and rewriting.

The broker adds the exchange, and, unless the client set them, the timestamp and the expiration in
seconds that follows from a ttl. It removes the properties of the transfer (fragments, resume-id).
The delivery properties come first, whatever the client's order, so that a delivery can set
``redelivered`` in place. All other bytes stay unchanged, unknown structs included.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.wire.memory import get16, get32, get64
    from headrace.wire.property_bits import (
        DELIVERY_HAS_DELIVERY_MODE,
        DELIVERY_HAS_EXCHANGE,
        DELIVERY_HAS_EXPIRATION,
        DELIVERY_HAS_PRIORITY,
        DELIVERY_HAS_RESUME_ID,
        DELIVERY_HAS_RESUME_TTL,
        DELIVERY_HAS_ROUTING_KEY,
        DELIVERY_HAS_TIMESTAMP,
        DELIVERY_HAS_TTL,
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

from headrace.gateway.conversion.contents import decode_entries
from headrace.gateway.conversion.selected import SelectorValues
from headrace.model.message import KIND_TRANSFER, new_message
from headrace.protocol.codec_0_10 import MessageProperties, decode_headers
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.wire.errors import MalformedError

if TYPE_CHECKING:
    from headrace.protocol.codec_0_10 import Struct

TTL_MS_MAX = 1 << 50  # Some 35,000 years; a longer time to live is cut to it.
#: The year 5138. A larger expiration is one of milliseconds, as Qpid's client for JMS writes it;
#: the standard has seconds.
MOMENT_S_MAX = 100_000_000_000


class TransferHeader:
    """The fields of one header segment that the broker uses."""

    def __init__(self) -> None:
        self.flags = 0  # The packing flags of the delivery properties.
        self.priority = 0
        self.delivery_mode = 0
        self.ttl_ms = 0
        self.timestamp_s = 0
        self.expiration = 0
        self.routing_key = b""
        self.resume_id = b""
        self.resume_ttl_ms = 0
        self.user_id: bytes | None = None
        self.has_headers = False  # True: the segment has application headers.
        self.first = True  # True: the transfer is the first fragment of its message.
        self.last = True  # True: the transfer is the last fragment of its message.
        self.publishing_id: tuple[bytes, int] | None = None  # The publisher's name, and the id.
        self.other_structs = b""  # All structs except delivery and fragment properties, encoded.

    # Keeps 0-10/s075.
    def read(self, segment: bytes) -> None:
        """Read the payload of a header segment; message-properties are kept as they are.

        Raises:
            ExecutionError: the segment is malformed.
        """
        position = 0
        end = len(segment)
        struct_bits = 0
        other_structs: list[bytes] = []
        while position < end:
            if end - position < 6:
                raise malformed("a struct is cut off")
            size = get32(segment, position)
            stop = position + 4 + size
            if size < 2 or stop > end:
                raise malformed("a struct is cut off")
            code = get16(segment, position + 4)
            if code == 0x0401 or code == 0x0402 or code == 0x0403:
                bit = 1 << (code & 3)
                if struct_bits & bit:
                    raise malformed("a struct comes twice")
                struct_bits |= bit
                if size < 4:
                    raise malformed("a struct is cut off")
            if code == 0x0401:
                self.read_delivery(segment, position + 6, stop)
            elif code == 0x0402:
                flags = segment[position + 6]
                if flags & 0xF8 or segment[position + 7] or size != (12 if flags & 4 else 4):
                    raise malformed("fragment-properties")
                self.first = flags & 1 != 0
                self.last = flags & 2 != 0
            else:
                if code == 0x0403:
                    self.read_message(segment, position + 6, stop)
                other_structs.append(segment[position:stop])
            position = stop
        self.other_structs = b"".join(other_structs)

    def read_delivery(self, segment: bytes, position: int, end: int) -> None:
        """Read the packing flags and fields of delivery-properties."""
        flags = segment[position] | segment[position + 1] << 8
        position += 2
        if flags & 0xF000:
            raise malformed("flags of fields that do not exist")
        self.flags = flags
        fixed_size = (1 if flags & DELIVERY_HAS_PRIORITY else 0) + (
            1 if flags & DELIVERY_HAS_DELIVERY_MODE else 0
        )
        fixed_size += 8 * (
            (1 if flags & DELIVERY_HAS_TTL else 0) + (1 if flags & DELIVERY_HAS_TIMESTAMP else 0)
        ) + (8 if flags & DELIVERY_HAS_EXPIRATION else 0)
        if end - position < fixed_size:
            raise malformed("delivery-properties are cut off")
        if flags & DELIVERY_HAS_PRIORITY:
            self.priority = segment[position]
            position += 1
        if flags & DELIVERY_HAS_DELIVERY_MODE:
            self.delivery_mode = segment[position]
            position += 1
        if flags & DELIVERY_HAS_TTL:
            self.ttl_ms = min(get64(segment, position), TTL_MS_MAX)
            position += 8
        if flags & DELIVERY_HAS_TIMESTAMP:
            self.timestamp_s = get64(segment, position)
            position += 8
        if flags & DELIVERY_HAS_EXPIRATION:
            self.expiration = get64(segment, position)
            position += 8
        if flags & DELIVERY_HAS_EXCHANGE:
            position = skip8(segment, position, end)
        if flags & DELIVERY_HAS_ROUTING_KEY:
            start = position + 1
            position = skip8(segment, position, end)
            self.routing_key = segment[start:position]
        if flags & DELIVERY_HAS_RESUME_ID:
            start = position + 2
            position = skip16(segment, position, end)
            self.resume_id = segment[start:position]
        if flags & DELIVERY_HAS_RESUME_TTL:
            if end - position < 8:
                raise malformed("delivery-properties are cut off")
            self.resume_ttl_ms = get64(segment, position)
            position += 8
        if position != end:
            raise malformed("delivery-properties are longer than their fields")

    def read_message(self, segment: bytes, position: int, end: int) -> None:
        """Read the used fields of message-properties, and check that all are complete."""
        flags = segment[position] | segment[position + 1] << 8
        position += 2
        if flags & 0xFE00:
            raise malformed("flags of fields that do not exist")
        if flags & MESSAGE_HAS_CONTENT_LENGTH:
            position += 8
        if flags & MESSAGE_HAS_MESSAGE_ID:
            position += 16
        if flags & MESSAGE_HAS_CORRELATION_ID:
            position = skip16(segment, position, end)
        if flags & MESSAGE_HAS_REPLY_TO:
            position = skip16(segment, position, end)
        if flags & MESSAGE_HAS_CONTENT_TYPE:
            position = skip8(segment, position, end)
        if flags & MESSAGE_HAS_CONTENT_ENCODING:
            position = skip8(segment, position, end)
        if flags & MESSAGE_HAS_USER_ID:
            start = position + 2
            position = skip16(segment, position, end)
            self.user_id = segment[start:position]
        if flags & MESSAGE_HAS_APP_ID:
            position = skip16(segment, position, end)
        if flags & MESSAGE_HAS_APPLICATION_HEADERS:
            if end - position < 4 or get32(segment, position) > end - position - 4:
                raise malformed("application-headers are cut off")
            position += 4 + get32(segment, position)
            self.has_headers = True
        if position != end:
            raise malformed("message-properties are malformed")

    # Keeps 0-10/s068, 0-10/s075.
    def write(self, exchange: bytes, now_ms: int) -> bytes:
        """Return the header segment that is kept and delivered; the message arrives now."""
        flags = (
            self.flags & ~(DELIVERY_HAS_RESUME_ID | DELIVERY_HAS_RESUME_TTL)
            | DELIVERY_HAS_TIMESTAMP
            | DELIVERY_HAS_EXCHANGE
        )
        timestamp_s = self.timestamp_s if self.flags & DELIVERY_HAS_TIMESTAMP else now_ms // 1000
        fields = b""
        if flags & DELIVERY_HAS_PRIORITY:
            fields += bytes((self.priority,))
        if flags & DELIVERY_HAS_DELIVERY_MODE:
            fields += bytes((self.delivery_mode,))
        if flags & DELIVERY_HAS_TTL:
            fields += self.ttl_ms.to_bytes(8, "big")
            if not self.expiration:
                flags |= DELIVERY_HAS_EXPIRATION
                self.expiration = (now_ms + self.ttl_ms) // 1000
        fields += timestamp_s.to_bytes(8, "big")
        if flags & DELIVERY_HAS_EXPIRATION:
            fields += self.expiration.to_bytes(8, "big")
        fields += bytes((len(exchange),)) + exchange
        if flags & DELIVERY_HAS_ROUTING_KEY:
            fields += bytes((len(self.routing_key),)) + self.routing_key
        head = (4 + len(fields)).to_bytes(4, "big") + b"\x04\x01"
        return head + bytes((flags & 0xFF, flags >> 8)) + fields + self.other_structs

    def deadline_ms(self, now_ms: int) -> int:
        """Return the deadline in milliseconds since 1970; 0 is never."""
        if self.flags & DELIVERY_HAS_TTL:
            return now_ms + self.ttl_ms
        if self.flags & DELIVERY_HAS_EXPIRATION:
            moment = self.expiration
            return min(moment if moment > MOMENT_S_MAX else moment * 1000, TTL_MS_MAX)
        return 0


class TransferHeaders:
    """The application headers of encoded structs, decoded when an exchange needs them."""

    def __init__(
        self, other_structs: bytes, timestamp_s: int = 0, data: bytes = b"", address_len: int = 0
    ) -> None:
        """``data`` is laid out as Message.data, up to the body."""
        self._rest = other_structs
        self._data = data
        self._address_len = address_len
        self._timestamp_s = timestamp_s  # 0 if it is missing.
        self._decoded: list[Struct] | None = None

    def __call__(self) -> dict[str, object]:
        for struct in self._structs():
            headers = getattr(struct, "application_headers", None)
            if headers is not None:
                return dict(headers)
        return {}

    def properties(self) -> dict[str, object]:
        """Return the properties by which exchanges can route."""
        properties: dict[str, object] = {"timestamp": self._timestamp_s or None}
        for struct in self._structs():
            if isinstance(struct, MessageProperties):
                message_id = struct.message_id
                properties["message_id"] = None if message_id is None else str(message_id)
                correlation_id = struct.correlation_id
                properties["correlation_id"] = correlation_id
        return properties

    def values(self) -> SelectorValues:
        """Return the message's values for selectors."""
        message = new_message(self._data, self._address_len, 0)
        message.flags = KIND_TRANSFER
        return SelectorValues(message, decode_entries)

    def _structs(self) -> "list[Struct]":
        if self._decoded is None:
            try:
                self._decoded = decode_headers(self._rest)
            except MalformedError as error:
                raise malformed(str(error)) from None
        return self._decoded


def skip8(segment: bytes, position: int, end: int) -> int:
    """Return the index after the str8 at ``position``."""
    if position >= end or segment[position] > end - position - 1:
        raise malformed("a text is cut off")
    return position + 1 + segment[position]


def skip16(segment: bytes, position: int, end: int) -> int:
    """Return the index after the vbin16 at ``position``."""
    if end - position < 2 or get16(segment, position) > end - position - 2:
        raise malformed("bytes are cut off")
    return position + 2 + get16(segment, position)


def malformed(reason: str) -> ExecutionError:
    """Return the error for a malformed header segment."""
    return ExecutionError(ExecutionCode.ILLEGAL_ARGUMENT, f"malformed header segment: {reason}")
