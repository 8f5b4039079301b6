# SPDX-License-Identifier: Apache-2.0
"""Encoding of the rows of a DataFrame as frames of publishes, column by column.

The encoder works on Arrow buffers and creates no Python object for a row. Rows that may be invalid
are checked one by one with `rows.make_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.bulk.encode import MANDATORY, Octets, encode_publishes
from headrace.columns.schema.columns import OCTET_PROPERTIES, PROPERTIES
from headrace.spark.write.rows import RowError, make_rows

if TYPE_CHECKING:
    from headrace.columns.options.options import WriteOptions
    from headrace.untyped import Arrow

SHORT_STRING_BYTES_MAX: Final = 255
OUTPUT_BYTES: Final = 1 << 20  # The size of a chunk of encoded frames.
FRAME_OVERHEAD_BYTES: Final = 32  # At least the size of a header frame without its properties.
ENTRY_OVERHEAD_BYTES: Final = 6  # The lengths of name and value, and the kind of the value.
EXPIRATION_PATTERN: Final = r"^[0-9]{1,18}$"

# Taking from this array converts numbers below 256 to bytes.
_BYTES: Final = pa.array([bytes((n,)) for n in range(256)], pa.binary())
# The bit of each property in the flags of a content header.
_FLAG_BITS: Final = {
    "content_type": 15,
    "content_encoding": 14,
    "headers": 13,
    "delivery_mode": 12,
    "priority": 11,
    "correlation_id": 10,
    "reply_to": 9,
    "expiration": 8,
    "message_id": 7,
    "timestamp": 6,
    "type": 5,
    "user_id": 4,
    "app_id": 3,
    "cluster_id": 2,
}


@dataclass(slots=True)
class EncodedBatch:
    """The rows of one record batch as columns of publishes."""

    count: int
    exchange: Octets
    routing_key: Octets
    properties: Octets
    body: Octets
    flags: int
    rows: Arrow = None  # The row of each publish in the batch; None if every row is published.
    errors: dict[int, RowError] = field(default_factory=dict)  # The errors by row of the batch.

    def frames(
        self, number: int, frame_max: int, bytes_max: int = OUTPUT_BYTES
    ) -> Iterator[tuple[bytearray, int]]:
        """Yield frames for the channel `number`, in chunks, each with its number of publishes."""
        first = 0
        while first < self.count:
            frames, next_index = encode_publishes(
                number,
                frame_max,
                self.exchange,
                self.routing_key,
                self.properties,
                self.body,
                first,
                self.count,
                self.flags,
                bytes_max,
            )
            yield frames, next_index - first
            first = next_index

    def row_number(self, index: int) -> int:
        """Return the row of the batch from which a publish was made."""
        return index if self.rows is None else int(self.rows[index])


def encode(
    options: WriteOptions, batch: pa.RecordBatch, ids: tuple[str, int] | None, frame_max: int
) -> EncodedBatch:
    """Encode a batch; invalid rows are left out, and their errors returned.

    `ids` is the prefix and the first number of generated message ids. A row without message id gets
    the prefix followed by its number. If `ids` is None, the row stays without message id.
    """
    valid_rows, errors = None, {}
    suspect_rows = np.flatnonzero(_find_suspects(options, batch, frame_max))
    if len(suspect_rows):
        errors = _check_rows(options, batch, suspect_rows.tolist(), frame_max)
        if errors:
            valid_rows = np.setdiff1d(np.arange(batch.num_rows), np.array(list(errors)))
            batch = batch.take(pa.array(valid_rows))
    encoded = EncodedBatch(
        count=batch.num_rows,
        exchange=_address_column(batch, "exchange", options.exchange),
        routing_key=_address_column(batch, "routing_key", options.routing_key),
        properties=_encode_properties(options, batch, ids, valid_rows),
        body=Octets.arrow(_body_column(batch)),
        flags=MANDATORY if options.mandatory else 0,
        rows=valid_rows,
    )
    encoded.errors = errors
    return encoded


def _body_column(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("body" if "body" in batch.schema.names else "value")


def _find_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    return batch.column(name) if name in batch.schema.names else None


def _address_column(batch: pa.RecordBatch, name: str, default: str | None) -> Octets:
    column = _find_column(batch, name)
    if column is None:
        return Octets((default or "").encode())
    if column.null_count:
        column = pc.fill_null(column, default or "")
    return Octets.arrow(column)


def _find_suspects(options: WriteOptions, batch: pa.RecordBatch, frame_max: int) -> Arrow:
    """Return a numpy array of booleans, True for each row that may be invalid.

    The check is cheap and may name valid rows; `_check_rows` decides.
    """
    suspects = np.zeros(batch.num_rows, bool)

    def add_suspects(mask: pa.Array) -> None:
        np.logical_or(suspects, np.asarray(pc.fill_null(mask, False)), out=suspects)

    add_suspects(pc.is_null(_body_column(batch)))
    for name, default in (("exchange", options.exchange), ("routing_key", "")):
        column = _find_column(batch, name)
        if column is not None:
            add_suspects(pc.greater(pc.binary_length(column), SHORT_STRING_BYTES_MAX))
            if default is None and column.null_count:
                add_suspects(pc.is_null(column))
    size = np.full(batch.num_rows, FRAME_OVERHEAD_BYTES, np.int64)
    properties = _find_column(batch, "properties")
    if properties is not None:
        for name, column in _property_columns(properties).items():
            if name in OCTET_PROPERTIES:
                low, high = (1, 2) if name == "delivery_mode" else (0, 255)
                add_suspects(pc.or_(pc.less(column, low), pc.greater(column, high)))
            elif name == "timestamp":
                add_suspects(pc.less(column.cast(pa.int64()), 0))
            else:
                length = pc.fill_null(pc.binary_length(column), 0)
                size += np.asarray(length) + 1
                add_suspects(pc.greater(length, SHORT_STRING_BYTES_MAX))
                if name == "expiration":
                    add_suspects(pc.invert(pc.match_substring_regex(column, EXPIRATION_PATTERN)))
    headers = _find_column(batch, "headers")
    if headers is not None and len(headers.keys):
        names = pc.binary_length(headers.keys)
        values = pc.fill_null(pc.binary_length(headers.items), 0)
        ends = np.concatenate(
            ([0], np.cumsum(np.asarray(names) + np.asarray(values) + ENTRY_OVERHEAD_BYTES))
        )
        offsets = np.asarray(headers.offsets)
        size += ends[offsets[1:]] - ends[offsets[:-1]]
        too_long = np.concatenate(([0], np.cumsum(np.asarray(names) > SHORT_STRING_BYTES_MAX)))
        suspects |= too_long[offsets[1:]] > too_long[offsets[:-1]]
    suspects |= size > frame_max
    return suspects


def _check_rows(
    options: WriteOptions, batch: pa.RecordBatch, suspects: list[int], frame_max: int
) -> dict[int, RowError]:
    """Return the errors of invalid rows among the suspects, by row."""
    results = make_rows(options, batch.take(pa.array(suspects)), frame_max - FRAME_OVERHEAD_BYTES)
    return {
        index: row
        for index, row in zip(suspects, results, strict=True)
        if isinstance(row, RowError)
    }


def _property_columns(properties: pa.StructArray) -> dict[str, pa.Array]:
    """Return the fields of a struct as columns, null where the struct is null."""
    names = [properties.type.field(i).name for i in range(properties.type.num_fields)]
    return dict(zip(names, properties.flatten(), strict=True))


def _encode_properties(
    options: WriteOptions, batch: pa.RecordBatch, ids: tuple[str, int] | None, valid_rows: Arrow
) -> Octets:
    """Return the property list of each publish in wire form: flags, then the properties present.

    `valid_rows` has the original numbers of the batch's rows, for message ids; None if no row was
    left out.
    """
    count = batch.num_rows
    properties = _find_column(batch, "properties")
    if properties is None and ids is None and "headers" not in batch.schema.names:
        return Octets(b"\x10\0\2" if options.persistent else b"\0\0")
    columns = {} if properties is None else _property_columns(properties)
    if options.persistent or "delivery_mode" in columns:
        mode = columns.get("delivery_mode", pa.nulls(count, pa.int32())).cast(pa.int32())
        columns["delivery_mode"] = pc.fill_null(mode, 2) if options.persistent else mode
    if ids is not None:
        numbers = np.arange(count) if valid_rows is None else valid_rows
        generated_ids = pc.binary_join_element_wise(
            pa.scalar(ids[0]), pa.array(numbers + ids[1], pa.int64()).cast(pa.string()), ""
        )
        message_ids = columns.get("message_id")
        columns["message_id"] = (
            generated_ids if message_ids is None else pc.coalesce(message_ids, generated_ids)
        )
    headers = _find_column(batch, "headers")
    flags = np.zeros(count, np.uint16)
    constant_flags = 0
    encoded_properties: list[Arrow] = []
    for name in (*PROPERTIES[:2], "headers", *PROPERTIES[2:]):
        column = headers if name == "headers" else columns.get(name)
        if column is None or column.null_count == count:
            continue
        if name == "headers":
            is_present = np.diff(np.asarray(column.offsets)) > 0
        elif column.null_count:
            is_present = np.asarray(pc.is_valid(column))
        else:
            constant_flags |= 1 << _FLAG_BITS[name]
            encoded_properties.append(_encode_property(name, column))
            continue
        flags |= is_present.astype(np.uint16) << _FLAG_BITS[name]
        encoded_properties.append(pc.fill_null(_encode_property(name, column), b""))
    if not encoded_properties:
        return Octets(b"\0\0")
    flags |= np.uint16(constant_flags)
    flag_bytes: Arrow = pa.scalar(constant_flags.to_bytes(2, "big"), pa.binary())
    if np.any(flags != constant_flags):
        flag_bytes = _fixed_width_column(flags.astype(">u2"), 2)
    return Octets.arrow(pc.binary_join_element_wise(flag_bytes, *encoded_properties, b""))


def _encode_property(name: str, column: pa.Array) -> pa.Array:
    """Return a property in wire form; null where a row lacks the property."""
    if name == "headers":
        return _encode_tables(column)
    if name in OCTET_PROPERTIES:
        return _BYTES.take(column.cast(pa.int32()))
    if name == "timestamp":
        micros = np.asarray(pc.fill_null(column.cast(pa.timestamp("us")).cast(pa.int64()), 0))
        seconds = _fixed_width_column((micros // 1_000_000).astype(">u8"), 8)
        return pc.if_else(pc.is_valid(column), seconds, pa.scalar(None, pa.binary()))
    text = column.cast(pa.binary())
    return pc.binary_join_element_wise(_BYTES.take(pc.binary_length(text)), text, b"")


def _encode_tables(column: pa.MapArray) -> pa.Array:
    """Return maps of strings as tables in wire form; empty bytes for an empty map."""
    offsets = np.asarray(column.offsets)
    names, values = column.keys.cast(pa.binary()), column.items.cast(pa.binary())
    lengths = np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(">u4")
    long_string_heads = np.empty((len(names), 5), np.uint8)  # The kind "S" and the length.
    long_string_heads[:, 0] = ord("S")
    long_string_heads[:, 1:] = lengths.view(np.uint8).reshape(len(names), 4)
    value_heads: Arrow = _fixed_width_column(long_string_heads, 5)
    if values.null_count:
        value_heads = pc.if_else(pc.is_null(values), pa.scalar(b"V", pa.binary()), value_heads)
        values = pc.fill_null(values, b"")
    keys = _BYTES.take(pc.binary_length(names))
    entries = pc.binary_join_element_wise(keys, names, value_heads, values, b"")
    entry_ends = np.frombuffer(entries.buffers()[1], np.int32)[entries.offset :][: len(entries) + 1]
    ends = entry_ends[offsets]
    row_entries = pa.Array.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(ends.tobytes()), entries.buffers()[2]]
    )
    sizes = _fixed_width_column(np.diff(ends).astype(">u4"), 4)
    tables = pc.binary_join_element_wise(sizes, row_entries, b"")
    return pc.if_else(pa.array(np.diff(ends) > 0), tables, pa.scalar(b"", pa.binary()))


def _fixed_width_column(values: Arrow, width: int) -> pa.Array:
    """Return a binary column of values that all have `width` bytes."""
    count = len(values)
    ends = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(values).tobytes())
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends.tobytes()), data])
