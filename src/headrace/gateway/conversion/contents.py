# SPDX-License-Identifier: Apache-2.0
"""Reads and rewrites stored messages of every kind, for dead-lettering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.conversion.headers import BasicContents, address_of, shortstr
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
    entries_of_table,
    table_of_entries,
)
from headrace.gateway.conversion.selected import Selected
from headrace.gateway.conversion.stamping import stamp, traced
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
from headrace.protocol.v0_x.frames import FRAME_BODY, FRAME_HEADER, framed
from headrace.wire.errors import MalformedError
from headrace.wire.memory import get32
from headrace.wire.properties import with_header_entry, with_header_entry_at
from headrace.wire.table import Long, Table, check_table, decode_table, encode_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

PERSISTENT_MODE = 2
#: How often a message came back, a number of 64 bits as in RabbitMQ: all there may be.
COUNT_ENTRIES = [encode_entry(DELIVERY_COUNT, Long(n)) for n in range(COUNT_MAX + 1)]
_DELIVERY_COUNT = DELIVERY_COUNT.encode()
REDELIVERED_ENTRY = b"\x0dx-redeliveredt\x01"


class Contents:
    """Contents of every kind."""

    def __init__(self) -> None:
        self._basic = BasicContents()
        self._transfer = TransferContents()
        self._looked: Selected | None = None

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
        """Return a new message: same body, another address and headers.

        Its expiration is left out, unless ``expires``.

        Raises:
            UnreadableError: the headers do not fit.
        """
        headers = with_wide_counts(headers)
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
        return stamp(message, headers, timestamp_s)

    def with_count(self, message: Message, count: int) -> bytes:
        """Return the data of a message with a header that says how often it came back.

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
        """Return a message of class basic with the same body, which tells of another in headers.

        Raises:
            UnreadableError: the message is malformed.
        """
        return traced(message, exchange, routing_key, headers)

    def encode_record(self, message: Message) -> bytes:
        """Return the data of a message as streams keep it: class basic, with its body.

        Raises:
            UnreadableError: class basic has no form for the message.
        """
        if message.flags & KIND_MASK == KIND_TRANSFER:
            return self._transfer.as_basic(message)
        return self._basic.encode_record(message)

    def header(self, message: Message, name: str) -> object:
        """Return the value of a header of a message in memory; None when it has none."""
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

    def values(self, message: Message) -> Selected:
        """Return a message in memory as selectors see it; see :mod:`.selected`.

        Several who look at one message, one after the other, have it read once.
        """
        looked = self._looked
        if looked is None or looked.message is not message:
            looked = self._looked = Selected(message, values_of_entries)
        return looked

    def render_leased(self, message: Message) -> bytes:
        """Return the data of a leased message as its readers see it: as streams keep it.

        The header ``x-redelivered`` says that the message was delivered before.

        Raises:
            UnreadableError: class basic has no form for the message.
        """
        data = self.encode_record(message)
        if not message.flags & REDELIVERED:
            return data
        at = message.address_len + 2
        size = get32(data, at + 3)
        payload = data[at + 7 : at + 7 + size]
        if REDELIVERED_ENTRY in payload:
            return data
        payload = with_header_entry(payload, REDELIVERED_ENTRY)
        return data[:at] + framed(FRAME_HEADER, 0, payload) + data[at + 8 + size :]


class TransferContents:
    """Contents of 0-10 transfers. Headers are returned in the form of 0-x messages."""

    def read(self, message: Message) -> Content:
        """Return the properties of a message."""
        try:
            p = read_transfer(segment_of(message))
        except CannotConvert as error:
            raise UnreadableError(error.reason) from error
        exchange, routing_key = address_of(message)
        return Content(
            exchange,
            routing_key,
            values_of_entries(p.headers or []),
            None if p.ttl_ms is None else str(p.ttl_ms),
            p.delivery_mode == PERSISTENT_MODE,
            p.priority or 0,
        )

    def with_count(self, message: Message, count: int) -> bytes:
        """Return the data of a message with a header that says how often it came back."""
        data = message.data
        assert data is not None, "the message is paged out"
        segment = segment_of(message)
        value = (INT64, count.to_bytes(8, "big"))
        try:
            written = with_application_header(segment, _DELIVERY_COUNT, value)
        except CannotConvert as error:
            raise UnreadableError(error.reason) from error
        at = message.address_len + 2
        size = len(written).to_bytes(4, "big")
        return b"".join((data[:at], size, written, data[at + 4 + len(segment) :]))

    def rewrite(
        self,
        message: Message,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object],
        *,
        expires: bool = False,
    ) -> Message:
        """Return a new message; a header whose value is the same keeps its type."""
        data = message.data
        assert data is not None, "the message is paged out"
        segment = segment_of(message)
        try:
            p = read_transfer(segment)
            if not expires:
                p.ttl_ms = p.expiration_text = p.expiration = None
            p.headers = rewritten(p.headers or [], headers)
            written = write_transfer(p, exchange.encode(), routing_key.encode(), message.body_size)
        except (CannotConvert, ValueError) as error:
            raise UnreadableError(str(error)) from error
        body = data[message.address_len + 6 + len(segment) :]
        address = shortstr(exchange) + shortstr(routing_key)
        size = len(written).to_bytes(4, "big")
        made = new_message(
            b"".join((address, b"\x00\x00", size, written, body)),
            len(address),
            message.body_size,
        )
        made.parts = message.parts
        made.flags = message.flags & (LARGE | KIND_MASK)
        made.priority = message.priority
        made.publisher = message.publisher
        return made

    def as_basic(self, message: Message) -> bytes:
        """Return the data of a message of class basic that says the same, with the body."""
        data = message.data
        assert data is not None, "the message is paged out"
        segment = segment_of(message)
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
                framed(FRAME_HEADER, 0, header),
                *[framed(FRAME_BODY, 0, piece) for piece in pieces],
            )
        )


def with_wide_counts(headers: Mapping[str, object]) -> Mapping[str, object]:
    """Return headers whose counts of deaths and deliveries are numbers of 64 bits.

    So they are in RabbitMQ, and programs in Java and the like cast them to that.
    """
    count = headers.get(DELIVERY_COUNT)
    if type(count) is int:
        headers = {**headers, DELIVERY_COUNT: Long(count)}
    deaths = headers.get(X_DEATH)
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict):
        count = deaths[0].get("count")  # Those of earlier deaths are as they came.
        if type(count) is int:
            latest = {**deaths[0], "count": Long(count)}
            headers = {**headers, X_DEATH: [latest, *deaths[1:]]}
    return headers


def segment_of(message: Message) -> bytes:
    """Return the payload of the header segment of a 0-10 message in memory."""
    data = message.data
    assert data is not None, "the message is paged out"
    at = message.address_len + 2
    segment: bytes = data[at + 4 : at + 4 + get32(data, at)]
    return segment


def values_of_entries(entries: list[Entry]) -> Table:
    """Return headers as Python values; what a field table cannot say is left out."""
    table = b"".join([raw for raw in map(as_entry, entries) if raw is not None])
    return decode_table(len(table).to_bytes(4, "big") + table)[0]


def as_entry(entry: Entry) -> bytes | None:
    """Return the entry of a field table that says a header; None when none does."""
    try:
        raw = table_of_entries([entry])
    except CannotConvert:
        return None
    table = len(raw).to_bytes(4, "big") + raw
    return raw if raw and check_table(table, 0, len(table)) > 0 else None


def rewritten(entries: list[Entry], headers: Mapping[str, object]) -> list[Entry]:
    """Return entries that say ``headers``; those that stay the same stay as they are."""
    before = values_of_entries(entries)
    made: list[Entry] = []
    kept: set[str] = set()
    for entry in entries:
        name = entry[0].decode("utf-8", "replace")
        if as_entry(entry) is None:
            made.append(entry)
        elif name in headers and headers[name] == before[name]:
            made.append(entry)
            kept.add(name)
    for name, python_value in headers.items():
        if name not in kept:
            raw = encode_entry(name, python_value)
            made += entries_of_table(raw, 0, len(raw))
    return made
