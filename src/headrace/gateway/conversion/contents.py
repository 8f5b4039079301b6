# SPDX-License-Identifier: Apache-2.0
"""Reads and rewrites stored messages by their class, mainly for dead-lettering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.conversion.headers import BasicContents, message_address, shortstr
from headrace.gateway.conversion.neutral_basic import write_basic
from headrace.gateway.conversion.neutral_transfer import (
    read_transfer,
    with_application_header,
    write_transfer,
)
from headrace.gateway.conversion.neutral_values import (
    INT64,
    CannotConvert,
    Entry,
    decode_table_entries,
    encode_table_entries,
)
from headrace.gateway.conversion.selected import SelectorValues
from headrace.gateway.conversion.stamping import add_headers, trace_copy
from headrace.model.contents import Content, UnreadableError
from headrace.model.dead_letter_headers import X_DEATH
from headrace.model.message import (
    KIND_MASK,
    KIND_TRANSFER,
    LARGE,
    REDELIVERED,
    Message,
    new_message,
)
from headrace.model.queue.delivery_count import COUNT_MAX
from headrace.model.queue.delivery_count import HEADER as DELIVERY_COUNT
from headrace.protocol.v0_x.frames import FRAME_BODY, FRAME_HEADER, make_frame
from headrace.wire.errors import MalformedError
from headrace.wire.memory import get32
from headrace.wire.properties import with_header_entry, with_header_entry_at
from headrace.wire.table import Long, Table, check_table, decode_table, encode_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

PERSISTENT_MODE = 2
#: Encoded delivery counts, by count; numbers of 64 bits, as in RabbitMQ.
COUNT_ENTRIES = [encode_entry(DELIVERY_COUNT, Long(count)) for count in range(COUNT_MAX + 1)]
_DELIVERY_COUNT = DELIVERY_COUNT.encode()
REDELIVERED_ENTRY = b"\x0dx-redeliveredt\x01"


class Contents:
    """Reads and rewrites messages, by class."""

    def __init__(self) -> None:
        self._basic = BasicContents()
        self._transfer = TransferContents()
        self._values: SelectorValues | None = None

    def read(self, message: Message) -> Content:
        """Return the properties of a message.

        Raises:
            UnreadableError: the message is malformed.
        """
        if message.flags & KIND_MASK == KIND_TRANSFER:
            return self._transfer.read(message)
        return self._basic.read(message)

    def rewrite(
        self,
        message: Message,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object],
        *,
        expires: bool = False,
    ) -> Message:
        """Return a new message with the same body and another address and headers.

        The new message has no expiration, unless ``expires``.

        Raises:
            UnreadableError: the headers do not fit.
        """
        headers = with_64_bit_counts(headers)
        if message.flags & KIND_MASK == KIND_TRANSFER:
            return self._transfer.rewrite(message, exchange, routing_key, headers, expires=expires)
        return self._basic.rewrite(message, exchange, routing_key, headers, expires=expires)

    def stamp(
        self, message: Message, headers: Mapping[str, object], timestamp_s: int | None
    ) -> Message:
        """Return the message with further headers, and with another timestamp unless it is None.

        Raises:
            UnreadableError: the headers have no room for more.
        """
        return add_headers(message, headers, timestamp_s)

    def with_count(self, message: Message, count: int) -> bytes:
        """Return the data of a message with its delivery count in a header.

        ``count`` is 255 at most.

        Raises:
            UnreadableError: the headers have no room for one more.
        """
        if message.flags & KIND_MASK == KIND_TRANSFER:
            return self._transfer.with_count(message, count)
        data = message.data
        assert data is not None, "the message is paged out"
        try:
            return with_header_entry_at(data, message.address_len + 2, COUNT_ENTRIES[count])
        except MalformedError as error:
            raise UnreadableError(str(error)) from error

    def make_trace(
        self, message: Message, exchange: str, routing_key: str, headers: Mapping[str, object]
    ) -> Message:
        """Return a message of class basic with the same body and the properties in its headers.

        Raises:
            UnreadableError: the message is malformed.
        """
        return trace_copy(message, exchange, routing_key, headers)

    def encode_record(self, message: Message) -> bytes:
        """Return the data of a message in the form of streams: class basic, with its body.

        Raises:
            UnreadableError: class basic has no form for the message.
        """
        if message.flags & KIND_MASK == KIND_TRANSFER:
            return self._transfer.convert_to_basic(message)
        return self._basic.encode_record(message)

    def header(self, message: Message, name: str) -> object:
        """Return the value of a header of a message in memory; None if it is missing."""
        data = message.data
        if data is None or name.encode() not in data:
            return None
        try:
            return self.read(message).headers.get(name)
        except UnreadableError:
            return None

    def filter_value(self, data: bytes, address_len: int) -> str | None:
        """Return the filter value that a message of class basic was published with."""
        return self._basic.filter_value(data, address_len)

    def values(self, message: Message) -> SelectorValues:
        """Return the values of a message in memory for selectors; see :mod:`.selected`.

        The result is cached for consecutive calls with one message.
        """
        values = self._values
        if values is None or values.message is not message:
            values = self._values = SelectorValues(message, decode_entries)
        return values

    def render_leased(self, message: Message) -> bytes:
        """Return the data of a leased message for its readers, in the form of streams.

        The header ``x-redelivered`` marks a message that was delivered before.

        Raises:
            UnreadableError: class basic has no form for the message.
        """
        data = self.encode_record(message)
        if not message.flags & REDELIVERED:
            return data
        position = message.address_len + 2
        size = get32(data, position + 3)
        payload = data[position + 7 : position + 7 + size]
        if REDELIVERED_ENTRY in payload:
            return data
        payload = with_header_entry(payload, REDELIVERED_ENTRY)
        return data[:position] + make_frame(FRAME_HEADER, 0, payload) + data[position + 8 + size :]


class TransferContents:
    """Reads and rewrites 0-10 transfers; headers are returned in the form of 0-x messages."""

    def read(self, message: Message) -> Content:
        """Return the properties of a message."""
        try:
            properties = read_transfer(header_segment(message))
        except CannotConvert as error:
            raise UnreadableError(error.reason) from error
        exchange, routing_key = message_address(message)
        return Content(
            exchange,
            routing_key,
            decode_entries(properties.headers or []),
            None if properties.ttl_ms is None else str(properties.ttl_ms),
            properties.delivery_mode == PERSISTENT_MODE,
            properties.priority or 0,
        )

    def with_count(self, message: Message, count: int) -> bytes:
        """Return the data of a message with its delivery count in a header."""
        data = message.data
        assert data is not None, "the message is paged out"
        segment = header_segment(message)
        value = (INT64, count.to_bytes(8, "big"))
        try:
            written = with_application_header(segment, _DELIVERY_COUNT, value)
        except CannotConvert as error:
            raise UnreadableError(error.reason) from error
        position = message.address_len + 2
        size = len(written).to_bytes(4, "big")
        return b"".join((data[:position], size, written, data[position + 4 + len(segment) :]))

    def rewrite(
        self,
        message: Message,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object],
        *,
        expires: bool = False,
    ) -> Message:
        """Return a new message; headers with unchanged values keep their types."""
        data = message.data
        assert data is not None, "the message is paged out"
        segment = header_segment(message)
        try:
            properties = read_transfer(segment)
            if not expires:
                properties.ttl_ms = properties.expiration_text = properties.expiration = None
            properties.headers = rewrite_entries(properties.headers or [], headers)
            written = write_transfer(
                properties, exchange.encode(), routing_key.encode(), message.body_size
            )
        except (CannotConvert, ValueError) as error:
            raise UnreadableError(str(error)) from error
        body = data[message.address_len + 6 + len(segment) :]
        address = shortstr(exchange) + shortstr(routing_key)
        size = len(written).to_bytes(4, "big")
        rewritten = new_message(
            b"".join((address, b"\x00\x00", size, written, body)),
            len(address),
            message.body_size,
        )
        rewritten.parts = message.parts
        rewritten.flags = message.flags & (LARGE | KIND_MASK)
        rewritten.priority = message.priority
        rewritten.publisher = message.publisher
        return rewritten

    def convert_to_basic(self, message: Message) -> bytes:
        """Return the data of the message converted to class basic, with the body."""
        data = message.data
        assert data is not None, "the message is paged out"
        segment = header_segment(message)
        try:
            header = write_basic(read_transfer(segment), message.body_size)
        except CannotConvert as error:
            raise UnreadableError(error.reason) from error
        body = data[message.address_len + 6 + len(segment) :]
        pieces = [body] if body else []
        pieces += message.parts or ()
        return b"".join(
            (
                data[: message.address_len],
                b"\x00\x00",
                make_frame(FRAME_HEADER, 0, header),
                *[make_frame(FRAME_BODY, 0, piece) for piece in pieces],
            )
        )


def with_64_bit_counts(headers: Mapping[str, object]) -> Mapping[str, object]:
    """Return headers whose counts of deaths and deliveries are numbers of 64 bits.

    Programs in Java cast them to that type, which RabbitMQ uses.
    """
    count = headers.get(DELIVERY_COUNT)
    if type(count) is int:
        headers = {**headers, DELIVERY_COUNT: Long(count)}
    deaths = headers.get(X_DEATH)
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict):
        count = deaths[0].get("count")  # The counts of earlier deaths keep their type.
        if type(count) is int:
            latest = {**deaths[0], "count": Long(count)}
            headers = {**headers, X_DEATH: [latest, *deaths[1:]]}
    return headers


def header_segment(message: Message) -> bytes:
    """Return the payload of the header segment of a 0-10 message in memory."""
    data = message.data
    assert data is not None, "the message is paged out"
    position = message.address_len + 2
    segment: bytes = data[position + 4 : position + 4 + get32(data, position)]
    return segment


def decode_entries(entries: list[Entry]) -> Table:
    """Return headers as Python values, without those that a field table has no type for."""
    table = b"".join([raw for raw in map(encode_table_entry, entries) if raw is not None])
    return decode_table(len(table).to_bytes(4, "big") + table)[0]


def encode_table_entry(entry: Entry) -> bytes | None:
    """Return a header as an entry of a field table; None if it has no form there."""
    try:
        raw = encode_table_entries([entry])
    except CannotConvert:
        return None
    table = len(raw).to_bytes(4, "big") + raw
    return raw if raw and check_table(table, 0, len(table)) > 0 else None


def rewrite_entries(entries: list[Entry], headers: Mapping[str, object]) -> list[Entry]:
    """Return ``headers`` as entries; entries with unchanged values keep their types."""
    before = decode_entries(entries)
    rewritten: list[Entry] = []
    kept: set[str] = set()
    for entry in entries:
        name = entry[0].decode("utf-8", "replace")
        if encode_table_entry(entry) is None:
            rewritten.append(entry)
        elif name in headers and headers[name] == before[name]:
            rewritten.append(entry)
            kept.add(name)
    for name, python_value in headers.items():
        if name not in kept:
            raw = encode_entry(name, python_value)
            rewritten += decode_table_entries(raw, 0, len(raw))
    return rewritten
