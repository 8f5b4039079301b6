# SPDX-License-Identifier: Apache-2.0
"""Columns of properties and headers, built from content headers in wire form.

A `HeaderColumns` collects the headers of many messages in buffers of Arrow's format. A property
that a message lacks costs no work for that message, because missing rows are filled in later.
"""

import base64
import json
from datetime import datetime
from decimal import Decimal

import cython

from headrace.wire.properties import BasicScan
from headrace.wire.table import Value, decode_table

if not cython.compiled:
    from headrace.client.stream.blocks import Octets
    from headrace.wire.memory import copy, cut, get64, load32, same, store32, store64
    from headrace.wire.properties import scan_basic
    from headrace.wire.table import check_utf8, value_end

INITIAL_BYTES = 1024  # The initial capacity of a column of text.
SECONDS_MAX = 253_402_300_799  # The last second of the year 9999, where the calendar ends.

# Headers that a broker adds to a delivery. They become separate columns, not entries of the map.
OFFSET_HEADER = "x-stream-offset"
ARRIVAL_HEADER = "x-stream-arrival-ms"
REDELIVERED_HEADER = "x-redelivered"  # Leased and browsed messages of a queue may have it.

_OFFSET_KEY = OFFSET_HEADER.encode()
_ARRIVAL_KEY = ARRIVAL_HEADER.encode()
_REDELIVERED_KEY = REDELIVERED_HEADER.encode()


class TextColumn:
    """A nullable column of text.

    `data` and `ends` are as in `client.stream.blocks.Octets`. Bit n of `valid` is set if row n has
    a text. A row that is never set is null; the next `put` or `fill_to` writes its end.
    """

    def __init__(self, rows_max: int) -> None:
        self.data = bytearray(INITIAL_BYTES)
        self.data_size = 0
        self.ends = bytearray(4 * (rows_max + 1))
        self.valid = bytearray((rows_max + 7) >> 3)
        self.rows = 0  # The number of rows whose end is written.
        self.rows_max = rows_max
        self.capacity = INITIAL_BYTES
        self.valid_count = 0  # The number of rows with a text.

    def put(self, row: int, buffer: bytes | bytearray, start: int, end: int) -> int:
        """Set a row to ``buffer[start:end]``; rows are set in ascending order."""
        self.fill_to(row)
        if self.data_size + end - start > self.capacity:
            self.grow_data(end - start)
        copy(self.data, self.data_size, buffer, start, end)
        self.data_size += end - start
        store32(self.ends, 4 * row + 4, self.data_size)
        valid = self.valid
        valid[row >> 3] |= 1 << (row & 7)
        self.rows = row + 1
        self.valid_count += 1
        return 0

    def put_bytes(self, row: int, text: bytes) -> None:
        """Set a row to a text as UTF-8; see `put`."""
        self.put(row, text, 0, len(text))

    def fill_to(self, row: int) -> int:
        """Make null the rows before `row` that are not set."""
        if row >= self.rows_max:
            self.grow_rows(row)
        while self.rows < row:
            store32(self.ends, 4 * self.rows + 4, self.data_size)
            self.rows += 1
        return 0

    def grow_rows(self, row: int) -> None:
        """Double the capacity until it includes `row`."""
        while self.rows_max <= row:
            self.rows_max *= 2
        self.ends.extend(bytes(4 * (self.rows_max + 1) - len(self.ends)))
        self.valid.extend(bytes(((self.rows_max + 7) >> 3) - len(self.valid)))

    def grow_data(self, size: int) -> None:
        """Double the capacity of `data` until `size` more bytes fit."""
        while self.data_size + size > self.capacity:
            self.capacity *= 2
        self.data.extend(bytes(self.capacity - len(self.data)))

    def truncate(self, row: int) -> None:
        """Remove the written rows from `row` on."""
        self.data_size = load32(self.ends, 4 * row)
        for index in range(row, self.rows):
            if self.valid[index >> 3] >> (index & 7) & 1:
                self.valid[index >> 3] &= ~(1 << (index & 7)) & 0xFF
                self.valid_count -= 1
        self.rows = row

    def text_at(self, row: int) -> bytes | None:
        """Return the text of a row as UTF-8; None if the row is null."""
        if not self.valid[row >> 3] >> (row & 7) & 1:
            return None
        start, end = load32(self.ends, 4 * row), load32(self.ends, 4 * row + 4)
        return bytes(self.data[start:end])


class NumberColumn:
    """A nullable column of 64-bit integers; bit n of `valid` is set if row n has a number."""

    def __init__(self, rows_max: int) -> None:
        self.data = bytearray(8 * rows_max)
        self.valid = bytearray((rows_max + 7) >> 3)
        self.valid_count = 0

    def put(self, row: int, value: int) -> int:
        """Set a row to a number."""
        store64(self.data, 8 * row, value)
        valid = self.valid
        valid[row >> 3] |= 1 << (row & 7)
        self.valid_count += 1
        return 0


class HeaderColumns:
    """The properties and headers of up to `rows_max` messages, column by column."""

    def __init__(self, rows_max: int) -> None:
        self._scan = BasicScan()
        self.rows_max = rows_max
        self.count = 0
        self.content_type = TextColumn(rows_max)
        self.content_encoding = TextColumn(rows_max)
        self.delivery_mode = NumberColumn(rows_max)
        self.priority = NumberColumn(rows_max)
        self.correlation_id = TextColumn(rows_max)
        self.reply_to = TextColumn(rows_max)
        self.expiration = TextColumn(rows_max)
        self.message_id = TextColumn(rows_max)
        self.timestamp = NumberColumn(rows_max)  # Seconds; -1 for a time after the year 9999.
        self.type = TextColumn(rows_max)
        self.user_id = TextColumn(rows_max)
        self.app_id = TextColumn(rows_max)
        self.cluster_id = TextColumn(rows_max)
        self.arrival_ms = NumberColumn(rows_max)
        self.redelivered = NumberColumn(rows_max)  # Valid for redelivered messages only.
        # The headers of message i are those from header_ends[i] to header_ends[i + 1].
        self.header_ends = bytearray(4 * (rows_max + 1))
        self.header_count = 0
        self.header_names = TextColumn(rows_max)
        self.header_values = TextColumn(rows_max)

    def add_all(self, headers: Octets, count: int) -> int:
        """Add the content headers of a block; return the number of valid headers at its start."""
        start = 0
        for row in range(count):
            end = load32(headers.ends, 4 * row + 4)
            if not self.add(headers.data, start, end):
                return row
            start = end
        return count

    def add(self, buffer: bytes | bytearray, start: int, end: int) -> bool:
        """Add ``buffer[start:end]``, the payload of a header frame; return False if malformed."""
        scan = self._scan
        if not scan_basic(buffer, start, end, scan):
            return False
        row = self.count
        flags = scan.flags
        if flags & 0x8000:
            position = scan.content_type_at
            self._add_text(
                self.content_type, row, buffer, position, position + scan.content_type_len
            )
        if flags & 0x4000:
            position = scan.content_encoding_at
            self._add_text(
                self.content_encoding, row, buffer, position, position + scan.content_encoding_len
            )
        if flags & 0x2000:
            self._add_headers(buffer, scan.headers_at, scan.headers_end)
        store32(self.header_ends, 4 * row + 4, self.header_count)
        if flags & 0x1000:
            self.delivery_mode.put(row, scan.delivery_mode)
        if flags & 0x0800:
            self.priority.put(row, scan.priority)
        if flags & 0x07BC:
            self._add_rare_properties(row, buffer, scan)
        if flags & 0x0040:
            seconds = scan.timestamp
            self.timestamp.put(row, seconds if seconds <= SECONDS_MAX else -1)
        self.count = row + 1
        return True

    def _add_rare_properties(self, row: int, buffer: bytes | bytearray, scan: BasicScan) -> None:
        """Add the properties that few messages have, from correlation_id to cluster_id."""
        flags = scan.flags
        if flags & 0x0400:
            position = scan.correlation_id_at
            self._add_text(
                self.correlation_id, row, buffer, position, position + scan.correlation_id_len
            )
        if flags & 0x0200:
            position = scan.reply_to_at
            self._add_text(self.reply_to, row, buffer, position, position + scan.reply_to_len)
        if flags & 0x0100:
            position = scan.expiration_at
            self._add_text(self.expiration, row, buffer, position, position + scan.expiration_len)
        if flags & 0x0080:
            position = scan.message_id_at
            self._add_text(self.message_id, row, buffer, position, position + scan.message_id_len)
        if flags & 0x0020:
            position = scan.type_at
            self._add_text(self.type, row, buffer, position, position + scan.type_len)
        if flags & 0x0010:
            position = scan.user_id_at
            self._add_text(self.user_id, row, buffer, position, position + scan.user_id_len)
        if flags & 0x0008:
            position = scan.app_id_at
            self._add_text(self.app_id, row, buffer, position, position + scan.app_id_len)
        if flags & 0x0004:
            position = scan.cluster_id_at
            self._add_text(self.cluster_id, row, buffer, position, position + scan.cluster_id_len)

    def _add_text(
        self, column: TextColumn, row: int, buffer: bytes | bytearray, start: int, end: int
    ) -> None:
        """Set a property; bytes that are not UTF-8 become U+FFFD."""
        if check_utf8(buffer, start, end):
            column.put(row, buffer, start, end)
        else:
            column.put_bytes(row, cut(buffer, start, end).decode("utf-8", "replace").encode())

    def _add_headers(self, buffer: bytes | bytearray, position: int, end: int) -> None:
        """Add the entries of the valid table ``buffer[position:end]``."""
        start = position
        position += 4
        has_other_values = False
        first = self.header_count
        while position < end:
            key_at = position + 1
            value_at = key_at + buffer[position]
            position = value_end(buffer, value_at)
            tag = buffer[value_at]
            # The tags are l (64-bit integer), t (boolean) and S (long string).
            if tag == 108 and same(_OFFSET_KEY, buffer, key_at, value_at):
                continue
            if tag == 108 and same(_ARRIVAL_KEY, buffer, key_at, value_at):
                self.arrival_ms.put(self.count, get64(buffer, value_at + 1))
                continue
            if (
                tag == 116
                and buffer[position - 1]
                and same(_REDELIVERED_KEY, buffer, key_at, value_at)
            ):
                self.redelivered.put(self.count, 1)
                continue
            self.header_names.put(self.header_count, buffer, key_at, value_at)
            if tag == 83 and check_utf8(buffer, value_at + 5, position):
                self.header_values.put(self.header_count, buffer, value_at + 5, position)
            else:
                has_other_values = True
            self.header_count += 1
        if has_other_values:
            self._add_values(decode_table(cut(buffer, start, end), 0)[0], first)
        if self.header_count - first > 1:
            self._drop_repeated_names(first)

    def _add_values(self, table: dict[str, Value], first: int) -> None:
        """Set the values from the header `first` on that are not strings, from the table."""
        names = [
            self.header_names.text_at(index) or b"" for index in range(first, self.header_count)
        ]
        texts = [
            self.header_values.text_at(index) if index < self.header_values.rows else None
            for index in range(first, self.header_count)
        ]
        if self.header_values.rows > first:
            self.header_values.truncate(first)
        for index, name in enumerate(names):
            text = texts[index]
            if text is None:
                value = table[name.decode()]
                text = None if value is None else value_text(value).encode()
            if text is not None:
                self.header_values.put_bytes(first + index, text)

    def _drop_repeated_names(self, first: int) -> None:
        """Keep the last of headers with the same name, because a map has each name once."""
        names, count = self.header_names, self.header_count
        if not has_repeats(names, first, count):
            return
        values = self.header_values
        values.fill_to(count)
        value_by_name = {
            names.text_at(index): values.text_at(index) for index in range(first, count)
        }
        names.truncate(first)
        values.truncate(first)
        self.header_count = first
        for name, value in value_by_name.items():
            names.put_bytes(self.header_count, name or b"")
            if value is not None:
                values.put_bytes(self.header_count, value)
            self.header_count += 1


def has_repeats(names: TextColumn, first: int, count: int) -> bool:
    """Return True if two names from `first` to `count` are equal."""
    buffer = names.data
    for index in range(first + 1, count):
        start = load32(names.ends, 4 * index)
        size = load32(names.ends, 4 * index + 4) - start
        for earlier in range(first, index):
            earlier_start = load32(names.ends, 4 * earlier)
            if load32(names.ends, 4 * earlier + 4) - earlier_start == size and equal_bytes(
                buffer, start, earlier_start, size
            ):
                return True
    return False


def equal_bytes(buffer: bytearray, first: int, second: int, size: int) -> bool:
    """Return True if the `size` bytes at two positions are equal."""
    for index in range(size):  # noqa: SIM110 - Compiled it is a loop in C.
        if buffer[first + index] != buffer[second + index]:
            return False
    return True


def value_text(value: Value) -> str:
    """Return the value of a header as text: a string unchanged, any other value as JSON.

    Bytes are in base64 and moments in ISO 8601, without quotes if they are the whole value.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | datetime | Decimal):
        return _json_text(value)
    return json.dumps(value, default=_json_text, ensure_ascii=False, separators=(",", ":"))


def _json_text(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert isinstance(value, Decimal), value
    return str(value)
