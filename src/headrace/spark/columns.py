# SPDX-License-Identifier: Apache-2.0
"""Content headers, as they were on the wire, taken apart into columns.

One `Columns` gathers the headers of many messages. A property becomes a list only once a message
has it, and a message without it costs nothing: what is missing is filled in with None later. Text
stays in bytes; Arrow takes it as it is.
"""

import base64
import json
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

import cython

from headrace.wire.properties import BasicScan
from headrace.wire.table import Value, decode_table

if not cython.compiled:
    from headrace.wire.memory import cut, get32, get64, same
    from headrace.wire.properties import scan_basic
    from headrace.wire.table import value_end

T = TypeVar("T")

# What a stream adds to the headers of a delivery; columns of their own, so left out of the map.
OFFSET_HEADER = "x-stream-offset"
ARRIVAL_HEADER = "x-stream-arrival-ms"

_OFFSET_KEY = OFFSET_HEADER.encode()
_ARRIVAL_KEY = ARRIVAL_HEADER.encode()


class Columns:
    """The properties and headers of `count` messages, column by column."""

    __slots__ = (
        "_scan",
        "app_id",
        "arrival_ms",
        "cluster_id",
        "content_encoding",
        "content_type",
        "correlation_id",
        "count",
        "delivery_mode",
        "expiration",
        "header_ends",
        "header_names",
        "header_values",
        "message_id",
        "priority",
        "reply_to",
        "timestamp",
        "type",
        "user_id",
    )

    def __init__(self) -> None:
        self._scan = BasicScan()
        self.count = 0
        self.content_type: list[bytes | None] = []
        self.content_encoding: list[bytes | None] = []
        self.delivery_mode: list[int | None] = []
        self.priority: list[int | None] = []
        self.correlation_id: list[bytes | None] = []
        self.reply_to: list[bytes | None] = []
        self.expiration: list[bytes | None] = []
        self.message_id: list[bytes | None] = []
        self.timestamp: list[int | None] = []
        self.type: list[bytes | None] = []
        self.user_id: list[bytes | None] = []
        self.app_id: list[bytes | None] = []
        self.cluster_id: list[bytes | None] = []
        self.arrival_ms: list[int | None] = []
        # The headers of message i are those from header_ends[i] to header_ends[i + 1].
        self.header_ends: list[int] = [0]
        self.header_names: list[bytes] = []
        self.header_values: list[bytes | None] = []

    def add(self, header: bytes) -> bool:
        """Take the payload of one header frame; False when it is malformed."""
        scan = self._scan
        if not scan_basic(header, 0, len(header), scan):
            return False
        row = self.count
        flags = scan.flags
        if flags & 0x8000:
            at = scan.content_type_at
            _put(self.content_type, row, cut(header, at, at + scan.content_type_len))
        if flags & 0x4000:
            at = scan.content_encoding_at
            _put(self.content_encoding, row, cut(header, at, at + scan.content_encoding_len))
        if flags & 0x2000:
            self._add_headers(header, scan.headers_at, scan.headers_end)
        self.header_ends.append(len(self.header_names))
        if flags & 0x1000:
            _put(self.delivery_mode, row, scan.delivery_mode)
        if flags & 0x0800:
            _put(self.priority, row, scan.priority)
        if flags & 0x0400:
            at = scan.correlation_id_at
            _put(self.correlation_id, row, cut(header, at, at + scan.correlation_id_len))
        if flags & 0x0200:
            at = scan.reply_to_at
            _put(self.reply_to, row, cut(header, at, at + scan.reply_to_len))
        if flags & 0x0100:
            at = scan.expiration_at
            _put(self.expiration, row, cut(header, at, at + scan.expiration_len))
        if flags & 0x0080:
            at = scan.message_id_at
            _put(self.message_id, row, cut(header, at, at + scan.message_id_len))
        if flags & 0x0040:
            _put(self.timestamp, row, scan.timestamp)
        if flags & 0x0020:
            at = scan.type_at
            _put(self.type, row, cut(header, at, at + scan.type_len))
        if flags & 0x0010:
            at = scan.user_id_at
            _put(self.user_id, row, cut(header, at, at + scan.user_id_len))
        if flags & 0x0008:
            at = scan.app_id_at
            _put(self.app_id, row, cut(header, at, at + scan.app_id_len))
        if flags & 0x0004:
            at = scan.cluster_id_at
            _put(self.cluster_id, row, cut(header, at, at + scan.cluster_id_len))
        self.count = row + 1
        return True

    def _add_headers(self, header: bytes, at: int, end: int) -> None:
        """Take the entries of the table header[at..end], which has been checked."""
        start = at
        at += 4
        nested = False
        first = len(self.header_names)
        while at < end:
            key_at = at + 1
            value_at = key_at + header[at]
            at = value_end(header, value_at)
            tag = header[value_at]
            if tag == 108 and same(_OFFSET_KEY, header, key_at, value_at):
                continue
            if tag == 108 and same(_ARRIVAL_KEY, header, key_at, value_at):
                _put(self.arrival_ms, self.count, get64(header, value_at + 1))
                continue
            self.header_names.append(cut(header, key_at, value_at))
            if tag == 83:  # A long string: the text itself, if it is text.
                text = cut(header, value_at + 5, value_at + 5 + get32(header, value_at + 1))
                if not is_text(text):
                    text = base64.b64encode(text)
                self.header_values.append(text)
            else:
                self.header_values.append(None)
                nested = True
        if nested:
            self._add_values(decode_table(header, start)[0], first)
        if len(self.header_names) - first > 1:
            self._drop_repeated(first)

    def _add_values(self, table: dict[str, Value], first: int) -> None:
        """Fill in the values, from the header `first` on, that are no strings on the wire."""
        for index in range(first, len(self.header_names)):
            if self.header_values[index] is None:
                value = table[self.header_names[index].decode()]
                if value is not None:
                    self.header_values[index] = value_text(value).encode()

    def _drop_repeated(self, first: int) -> None:
        """Of headers with the same name keep the last: a map has each name once."""
        last = dict(zip(self.header_names[first:], self.header_values[first:], strict=True))
        if len(last) < len(self.header_names) - first:
            self.header_names[first:] = last.keys()
            self.header_values[first:] = last.values()


def _put(column: list[T | None], row: int, value: T) -> None:
    """Set the value of row `row`, the last; a column may end before it."""
    while len(column) <= row:
        column.append(None)
    column[row] = value


def is_text(raw: bytes) -> bool:
    """Whether the bytes are UTF-8."""
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
