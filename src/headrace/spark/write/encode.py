# SPDX-License-Identifier: Apache-2.0
"""Encode rows of a DataFrame as frames of publishes, column by column.

The encoder works on Arrow buffers and makes no object for a row. Rows that may have a mistake are
checked one by one, with the code of the slow path (`rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.bulk.encode import MANDATORY, Octets, encode_publishes
from headrace.columns.schema.columns import OCTETS, PROPERTIES
from headrace.spark.write.rows import RowError, rows

if TYPE_CHECKING:
    from headrace.columns.options.options import WriteOptions
    from headrace.untyped import Arrow

SHORT_MAX: Final = 255  # Octets of a short string.
OUTPUT_OCTETS: Final = 1 << 20  # Bytes that are encoded at once.
FRAME_ROOM: Final = 32  # Octets of a header frame beside its properties.
EXPIRATION: Final = r"^[0-9]{1,18}$"

_BYTE: Final = pa.array([bytes((n,)) for n in range(256)], pa.binary())
_FLAG: Final = {
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
class Encoded:
    """The rows of one record batch as columns of publishes."""

    count: int
    exchange: Octets
    routing_key: Octets
    properties: Octets
    body: Octets
    flags: int
    rows: Arrow = None  # The row of the batch that each publish is, when some were left out.
    errors: dict[int, RowError] = field(default_factory=dict)  # The errors by row of the batch.

    def frames(
        self, number: int, frame_max: int, octets_max: int = OUTPUT_OCTETS
    ) -> Iterator[tuple[bytearray, int]]:
        """Frames for a channel, and how many publishes they are, piece by piece."""
        at = 0
        while at < self.count:
            octets, following = encode_publishes(
                number,
                frame_max,
                self.exchange,
                self.routing_key,
                self.properties,
                self.body,
                at,
                self.count,
                self.flags,
                octets_max,
            )
            yield octets, following - at
            at = following

    def row_of(self, index: int) -> int:
        """The row of the batch that a publish is."""
        return index if self.rows is None else int(self.rows[index])


def encode(
    options: WriteOptions, batch: pa.RecordBatch, ids: tuple[str, int] | None, frame_max: int
) -> Encoded:
    """Encode a batch. Rows without message id get one, the text of `ids` and a number that counts
    on from the one in it."""
    kept, errors = None, {}
    suspect = np.flatnonzero(_suspects(options, batch, frame_max))
    if len(suspect):
        errors = _look_at(options, batch, suspect.tolist(), frame_max)
        if errors:
            kept = np.setdiff1d(np.arange(batch.num_rows), np.array(list(errors)))
            batch = batch.take(pa.array(kept))
    encoded = Encoded(
        count=batch.num_rows,
        exchange=_address(batch, "exchange", options.exchange),
        routing_key=_address(batch, "routing_key", options.routing_key),
        properties=_properties(options, batch, ids, kept),
        body=Octets.arrow(_body(batch)),
        flags=MANDATORY if options.mandatory else 0,
        rows=kept,
    )
    encoded.errors = errors
    return encoded


def _body(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("body" if "body" in batch.schema.names else "value")


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    return batch.column(name) if name in batch.schema.names else None


def _address(batch: pa.RecordBatch, name: str, default: str | None) -> Octets:
    column = _column(batch, name)
    if column is None:
        return Octets((default or "").encode())
    if column.null_count:
        column = pc.fill_null(column, default or "")
    return Octets.arrow(column)


def _suspects(options: WriteOptions, batch: pa.RecordBatch, frame_max: int) -> Arrow:
    """Return the rows that need a closer look, as a numpy array of booleans."""
    suspects = np.zeros(batch.num_rows, bool)

    def note(mask: pa.Array) -> None:
        np.logical_or(suspects, np.asarray(pc.fill_null(mask, False)), out=suspects)

    note(pc.is_null(_body(batch)))
    for name, default in (("exchange", options.exchange), ("routing_key", "")):
        column = _column(batch, name)
        if column is not None:
            note(pc.greater(pc.binary_length(column), SHORT_MAX))
            if default is None and column.null_count:
                note(pc.is_null(column))
    size = np.full(batch.num_rows, FRAME_ROOM, np.int64)
    properties = _column(batch, "properties")
    if properties is not None:
        for name, column in _fields(properties).items():
            if name in OCTETS:
                low, high = (1, 2) if name == "delivery_mode" else (0, 255)
                note(pc.or_(pc.less(column, low), pc.greater(column, high)))
            elif name == "timestamp":
                note(pc.less(column.cast(pa.int64()), 0))
            else:
                length = pc.fill_null(pc.binary_length(column), 0)
                size += np.asarray(length) + 1
                note(pc.greater(length, SHORT_MAX))
                if name == "expiration":
                    note(pc.invert(pc.match_substring_regex(column, EXPIRATION)))
    headers = _column(batch, "headers")
    if headers is not None and len(headers.keys):
        names = pc.binary_length(headers.keys)
        values = pc.fill_null(pc.binary_length(headers.items), 0)
        ends = np.concatenate(([0], np.cumsum(np.asarray(names) + np.asarray(values) + 6)))
        offsets = np.asarray(headers.offsets)
        size += ends[offsets[1:]] - ends[offsets[:-1]]
        too_long = np.concatenate(([0], np.cumsum(np.asarray(names) > SHORT_MAX)))
        suspects |= too_long[offsets[1:]] > too_long[offsets[:-1]]
    suspects |= size > frame_max
    return suspects


def _look_at(
    options: WriteOptions, batch: pa.RecordBatch, suspects: list[int], frame_max: int
) -> dict[int, RowError]:
    """Return the faults of rows; rows without one are left out."""
    results = rows(options, batch.take(pa.array(suspects)), frame_max - FRAME_ROOM)
    return {
        index: row
        for index, row in zip(suspects, results, strict=True)
        if isinstance(row, RowError)
    }


def _fields(properties: pa.StructArray) -> dict[str, pa.Array]:
    """The columns of a struct; where the struct itself is null so are they."""
    names = [properties.type.field(i).name for i in range(properties.type.num_fields)]
    return dict(zip(names, properties.flatten(), strict=True))


def _properties(
    options: WriteOptions, batch: pa.RecordBatch, ids: tuple[str, int] | None, kept: Arrow
) -> Octets:
    count = batch.num_rows
    properties = _column(batch, "properties")
    if properties is None and ids is None and "headers" not in batch.schema.names:
        return Octets(b"\x10\0\2" if options.persistent else b"\0\0")
    given = {} if properties is None else _fields(properties)
    if options.persistent or "delivery_mode" in given:
        mode = given.get("delivery_mode", pa.nulls(count, pa.int32())).cast(pa.int32())
        given["delivery_mode"] = pc.fill_null(mode, 2) if options.persistent else mode
    if ids is not None:
        numbers = np.arange(count) if kept is None else kept
        made = pc.binary_join_element_wise(
            pa.scalar(ids[0]), pa.array(numbers + ids[1], pa.int64()).cast(pa.string()), ""
        )
        own = given.get("message_id")
        given["message_id"] = made if own is None else pc.coalesce(own, made)
    headers = _column(batch, "headers")
    flags = np.zeros(count, np.uint16)
    constant = 0
    pieces: list[Arrow] = []
    for name in (*PROPERTIES[:2], "headers", *PROPERTIES[2:]):
        column = headers if name == "headers" else given.get(name)
        if column is None or column.null_count == count:
            continue
        if name == "headers":
            is_present = np.diff(np.asarray(column.offsets)) > 0
        elif column.null_count:
            is_present = np.asarray(pc.is_valid(column))
        else:
            constant |= 1 << _FLAG[name]
            pieces.append(_piece(name, column))
            continue
        flags |= is_present.astype(np.uint16) << _FLAG[name]
        pieces.append(pc.fill_null(_piece(name, column), b""))
    if not pieces:
        return Octets(b"\0\0")
    flags |= np.uint16(constant)
    head: Arrow = pa.scalar(constant.to_bytes(2, "big"), pa.binary())
    if np.any(flags != constant):
        head = _fixed_width_column(flags.astype(">u2"), 2)
    return Octets.arrow(pc.binary_join_element_wise(head, *pieces, b""))


def _piece(name: str, column: pa.Array) -> pa.Array:
    """Return a property as on the wire; null where a row has none."""
    if name == "headers":
        return _table(column)
    if name in OCTETS:
        return _BYTE.take(column.cast(pa.int32()))
    if name == "timestamp":
        micros = np.asarray(pc.fill_null(column.cast(pa.timestamp("us")).cast(pa.int64()), 0))
        seconds = _fixed_width_column((micros // 1_000_000).astype(">u8"), 8)
        return pc.if_else(pc.is_valid(column), seconds, pa.scalar(None, pa.binary()))
    text = column.cast(pa.binary())
    return pc.binary_join_element_wise(_BYTE.take(pc.binary_length(text)), text, b"")


def _table(column: pa.MapArray) -> pa.Array:
    """Maps of strings as tables; nothing for an empty one."""
    offsets = np.asarray(column.offsets)
    names, values = column.keys.cast(pa.binary()), column.items.cast(pa.binary())
    lengths = np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(">u4")
    heads = np.empty((len(names), 5), np.uint8)
    heads[:, 0] = ord("S")
    heads[:, 1:] = lengths.view(np.uint8).reshape(len(names), 4)
    kinds: Arrow = _fixed_width_column(heads, 5)
    if values.null_count:
        kinds = pc.if_else(pc.is_null(values), pa.scalar(b"V", pa.binary()), kinds)
        values = pc.fill_null(values, b"")
    keys = _BYTE.take(pc.binary_length(names))
    entries = pc.binary_join_element_wise(keys, names, kinds, values, b"")
    places = np.frombuffer(entries.buffers()[1], np.int32)[entries.offset :][: len(entries) + 1]
    ends = places[offsets]
    whole = pa.Array.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(ends.tobytes()), entries.buffers()[2]]
    )
    sizes = _fixed_width_column(np.diff(ends).astype(">u4"), 4)
    tables = pc.binary_join_element_wise(sizes, whole, b"")
    return pc.if_else(pa.array(np.diff(ends) > 0), tables, pa.scalar(b"", pa.binary()))


def _fixed_width_column(values: Arrow, width: int) -> pa.Array:
    """Octets of the same length in every row as a column of binary."""
    count = len(values)
    ends = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(values).tobytes())
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends.tobytes()), data])
