# SPDX-License-Identifier: Apache-2.0
"""Content headers, as they were on the wire, taken apart into columns.

One `Columns` gathers the headers of many messages, in buffers that Arrow takes as they are. A
message without a property costs nothing: what is missing is filled in later.
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

ROOM = 1024  # Octets that a column has at first.
SECONDS_MAX = 253_402_300_799  # The last second of the year 9999: the calendar ends there.

# What a stream adds to the headers of a delivery; columns of their own, so left out of the map.
OFFSET_HEADER = "x-stream-offset"
ARRIVAL_HEADER = "x-stream-arrival-ms"
REDELIVERED_HEADER = "x-redelivered"  # On messages of a queue, leased or browsed.

_OFFSET_KEY = OFFSET_HEADER.encode()
_ARRIVAL_KEY = ARRIVAL_HEADER.encode()
_REDELIVERED_KEY = REDELIVERED_HEADER.encode()


class Texts:
    """A column of text, or of nothing where a message has none.

    `data` and `ends` are as in `client.stream.blocks.Octets`; bit n of `valid` says that row n has
    a text. Rows that are not set have none; they are filled in when a later one is, or by `finish`.
    """

    def __init__(self, rows_max: int) -> None:
        self.data = bytearray(ROOM)
        self.used = 0
        self.ends = bytearray(4 * (rows_max + 1))
        self.valid = bytearray((rows_max + 7) >> 3)
        self.rows = 0  # As many ends are written.
        self.rows_max = rows_max
        self.room = ROOM
        self.known = 0  # Rows with a text.

    def put(self, row: int, d: bytes | bytearray, lo: int, hi: int) -> int:
        """Set a row, not before the last one that was set, to ``d[lo:hi]``."""
        self.reach(row)
        if self.used + hi - lo > self.room:
            self.grow(hi - lo)
        copy(self.data, self.used, d, lo, hi)
        self.used += hi - lo
        store32(self.ends, 4 * row + 4, self.used)
        valid = self.valid
        valid[row >> 3] |= 1 << (row & 7)
        self.rows = row + 1
        self.known += 1
        return 0

    def put_bytes(self, row: int, text: bytes) -> None:
        """Set a row."""
        self.put(row, text, 0, len(text))

    def reach(self, row: int) -> int:
        """The rows up to `row` that were not set have no text."""
        if row >= self.rows_max:
            self.widen(row)
        while self.rows < row:
            store32(self.ends, 4 * self.rows + 4, self.used)
            self.rows += 1
        return 0

    def widen(self, row: int) -> None:
        """Make room for more rows."""
        while self.rows_max <= row:
            self.rows_max *= 2
        self.ends.extend(bytes(4 * (self.rows_max + 1) - len(self.ends)))
        self.valid.extend(bytes(((self.rows_max + 7) >> 3) - len(self.valid)))

    def grow(self, size: int) -> None:
        """Make room for `size` more octets."""
        while self.used + size > self.room:
            self.room *= 2
        self.data.extend(bytes(self.room - len(self.data)))

    def cut_back(self, row: int) -> None:
        """Forget the rows from `row` on; there are some."""
        self.used = load32(self.ends, 4 * row)
        for at in range(row, self.rows):
            if self.valid[at >> 3] >> (at & 7) & 1:
                self.valid[at >> 3] &= ~(1 << (at & 7)) & 0xFF
                self.known -= 1
        self.rows = row

    def row(self, row: int) -> bytes | None:
        """The text of a row."""
        if not self.valid[row >> 3] >> (row & 7) & 1:
            return None
        lo, hi = load32(self.ends, 4 * row), load32(self.ends, 4 * row + 4)
        return bytes(self.data[lo:hi])


class Numbers:
    """A column of 64-bit numbers, or of nothing where a message has none."""

    def __init__(self, rows_max: int) -> None:
        self.data = bytearray(8 * rows_max)
        self.valid = bytearray((rows_max + 7) >> 3)
        self.known = 0

    def put(self, row: int, value: int) -> int:
        """Set a row."""
        store64(self.data, 8 * row, value)
        valid = self.valid
        valid[row >> 3] |= 1 << (row & 7)
        self.known += 1
        return 0


class Columns:
    """The properties and headers of up to `rows_max` messages, column by column."""

    def __init__(self, rows_max: int) -> None:
        self._scan = BasicScan()
        self.rows_max = rows_max
        self.count = 0
        self.content_type = Texts(rows_max)
        self.content_encoding = Texts(rows_max)
        self.delivery_mode = Numbers(rows_max)
        self.priority = Numbers(rows_max)
        self.correlation_id = Texts(rows_max)
        self.reply_to = Texts(rows_max)
        self.expiration = Texts(rows_max)
        self.message_id = Texts(rows_max)
        self.timestamp = Numbers(rows_max)  # Seconds; -1 where it has no place in a calendar.
        self.type = Texts(rows_max)
        self.user_id = Texts(rows_max)
        self.app_id = Texts(rows_max)
        self.cluster_id = Texts(rows_max)
        self.arrival_ms = Numbers(rows_max)
        self.redelivered = Numbers(rows_max)  # Known where it was.
        # The headers of message i are those from header_ends[i] to header_ends[i + 1].
        self.header_ends = bytearray(4 * (rows_max + 1))
        self.header_count = 0
        self.header_names = Texts(rows_max)
        self.header_values = Texts(rows_max)

    def add_all(self, heads: Octets, count: int) -> int:
        """Take the headers of a block; return how many were taken before a malformed one."""
        lo = 0
        for row in range(count):
            hi = load32(heads.ends, 4 * row + 4)
            if not self.add(heads.data, lo, hi):
                return row
            lo = hi
        return count

    def add(self, d: bytes | bytearray, lo: int, hi: int) -> bool:
        """Take ``d[lo:hi]``, the payload of a header frame; False when it is malformed."""
        scan = self._scan
        if not scan_basic(d, lo, hi, scan):
            return False
        row = self.count
        flags = scan.flags
        if flags & 0x8000:
            at = scan.content_type_at
            self._add_text(self.content_type, row, d, at, at + scan.content_type_len)
        if flags & 0x4000:
            at = scan.content_encoding_at
            self._add_text(self.content_encoding, row, d, at, at + scan.content_encoding_len)
        if flags & 0x2000:
            self._add_headers(d, scan.headers_at, scan.headers_end)
        store32(self.header_ends, 4 * row + 4, self.header_count)
        if flags & 0x1000:
            self.delivery_mode.put(row, scan.delivery_mode)
        if flags & 0x0800:
            self.priority.put(row, scan.priority)
        if flags & 0x07BC:
            self._add_rare(row, d, scan)
        if flags & 0x0040:
            seconds = scan.timestamp
            self.timestamp.put(row, seconds if seconds <= SECONDS_MAX else -1)
        self.count = row + 1
        return True

    def _add_rare(self, row: int, d: bytes | bytearray, scan: BasicScan) -> None:
        flags = scan.flags
        if flags & 0x0400:
            at = scan.correlation_id_at
            self._add_text(self.correlation_id, row, d, at, at + scan.correlation_id_len)
        if flags & 0x0200:
            at = scan.reply_to_at
            self._add_text(self.reply_to, row, d, at, at + scan.reply_to_len)
        if flags & 0x0100:
            at = scan.expiration_at
            self._add_text(self.expiration, row, d, at, at + scan.expiration_len)
        if flags & 0x0080:
            at = scan.message_id_at
            self._add_text(self.message_id, row, d, at, at + scan.message_id_len)
        if flags & 0x0020:
            at = scan.type_at
            self._add_text(self.type, row, d, at, at + scan.type_len)
        if flags & 0x0010:
            at = scan.user_id_at
            self._add_text(self.user_id, row, d, at, at + scan.user_id_len)
        if flags & 0x0008:
            at = scan.app_id_at
            self._add_text(self.app_id, row, d, at, at + scan.app_id_len)
        if flags & 0x0004:
            at = scan.cluster_id_at
            self._add_text(self.cluster_id, row, d, at, at + scan.cluster_id_len)

    def _add_text(self, column: Texts, row: int, d: bytes | bytearray, lo: int, hi: int) -> None:
        """Set a property; bytes that are no UTF-8 become U+FFFD."""
        if check_utf8(d, lo, hi):
            column.put(row, d, lo, hi)
        else:
            column.put_bytes(row, cut(d, lo, hi).decode("utf-8", "replace").encode())

    def _add_headers(self, d: bytes | bytearray, at: int, end: int) -> None:
        """Take the entries of the table d[at..end], which has been checked."""
        start = at
        at += 4
        nested = False
        first = self.header_count
        while at < end:
            key_at = at + 1
            value_at = key_at + d[at]
            at = value_end(d, value_at)
            tag = d[value_at]
            if tag == 108 and same(_OFFSET_KEY, d, key_at, value_at):
                continue
            if tag == 108 and same(_ARRIVAL_KEY, d, key_at, value_at):
                self.arrival_ms.put(self.count, get64(d, value_at + 1))
                continue
            if tag == 116 and d[at - 1] and same(_REDELIVERED_KEY, d, key_at, value_at):
                self.redelivered.put(self.count, 1)
                continue
            self.header_names.put(self.header_count, d, key_at, value_at)
            if tag == 83 and check_utf8(d, value_at + 5, at):  # A long string that is text.
                self.header_values.put(self.header_count, d, value_at + 5, at)
            else:
                nested = True
            self.header_count += 1
        if nested:
            self._add_values(decode_table(cut(d, start, end), 0)[0], first)
        if self.header_count - first > 1:
            self._drop_repeated(first)

    def _add_values(self, table: dict[str, Value], first: int) -> None:
        """Set the values that are not text on the wire, from the header `first` on."""
        names = [self.header_names.row(at) or b"" for at in range(first, self.header_count)]
        texts = [
            self.header_values.row(at) if at < self.header_values.rows else None
            for at in range(first, self.header_count)
        ]
        if self.header_values.rows > first:
            self.header_values.cut_back(first)
        for index, name in enumerate(names):
            text = texts[index]
            if text is None:
                value = table[name.decode()]
                text = None if value is None else value_text(value).encode()
            if text is not None:
                self.header_values.put_bytes(first + index, text)

    def _drop_repeated(self, first: int) -> None:
        """Of headers with the same name keep the last: a map has each name once."""
        names, count = self.header_names, self.header_count
        if not repeats(names, first, count):
            return
        values = self.header_values
        values.reach(count)
        last = {names.row(at): values.row(at) for at in range(first, count)}
        names.cut_back(first)
        values.cut_back(first)
        self.header_count = first
        for name, value in last.items():
            names.put_bytes(self.header_count, name or b"")
            if value is not None:
                values.put_bytes(self.header_count, value)
            self.header_count += 1


def repeats(names: Texts, first: int, count: int) -> bool:
    """Return True if two names from `first` to `count` are equal."""
    d = names.data
    for a in range(first + 1, count):
        lo = load32(names.ends, 4 * a)
        size = load32(names.ends, 4 * a + 4) - lo
        for b in range(first, a):
            at = load32(names.ends, 4 * b)
            if load32(names.ends, 4 * b + 4) - at == size and alike(d, lo, at, size):
                return True
    return False


def alike(d: bytearray, a: int, b: int, size: int) -> bool:
    """Return True if the bytes at two places are equal."""
    for i in range(size):  # noqa: SIM110 - Compiled it is a loop in C.
        if d[a + i] != d[b + i]:
            return False
    return True


def is_text(raw: bytes) -> bool:
    """Return True if the bytes are UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def value_text(value: Value) -> str:
    """A header's value as text: strings as they are, all else as JSON has it.

    Bytes that are no UTF-8 are in base64, and moments in ISO 8601, inside JSON as well.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | datetime | Decimal):
        return _plain(value)
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert isinstance(value, Decimal), value
    return str(value)
