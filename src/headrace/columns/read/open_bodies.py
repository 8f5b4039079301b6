# SPDX-License-Identifier: Apache-2.0
"""Decompressed bodies of a batch.

The property `content_encoding` is read from the content headers. Most messages do not have it: one
byte of each header shows whether they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.decode.codec import reason
from headrace.columns.decode.inflate import InflateError, compressions, inflate
from headrace.columns.schema.columns import CONTENT_HEADER
from headrace.wire.properties import property_range

FLAGS_AT: Final = 12  # The flags of a content header follow class, weight and body size.
CONTENT_ENCODING: Final = 0x4000  # The flag of the property.
HAS_ENCODING: Final = CONTENT_ENCODING >> 8  # The flag in the first byte of the flags.
OPEN_BYTES_MAX: Final = 64 << 20  # Bytes of decompressed bodies that are decoded together.


@dataclass(slots=True)
class DecompressedPart:
    """Rows of a batch, their decompressed bodies, and the faults of the others by index."""

    batch: pa.RecordBatch
    bodies: list[bytes]
    faults: dict[int, str] = field(default_factory=dict)


def decompress(batch: pa.RecordBatch, size_max: int) -> Iterator[DecompressedPart]:
    """Decompress a batch, in parts whose decompressed bodies fit in memory together.

    `size_max` bounds the bytes of one body.
    """
    bodies: list[bytes] = batch.column("body").to_pylist()
    encodings = _encodings(batch.column(CONTENT_HEADER))
    if not encodings:
        yield DecompressedPart(batch, bodies)
        return
    start, size = 0, 0
    part: list[bytes] = []
    faults: dict[int, str] = {}
    for row, body in enumerate(bodies):
        names = encodings.get(row)
        if names:
            if size > OPEN_BYTES_MAX:
                yield DecompressedPart(batch.slice(start, row - start), part, faults)
                start, size, part, faults = row, 0, [], {}
            try:
                body = inflate(body, names, size_max)
            except InflateError as error:
                faults[row - start] = reason(f"content_encoding {','.join(names[::-1])}: {error}")
                body = b""
            size += len(body)
        part.append(body)
    yield DecompressedPart(batch.slice(start), part, faults)


def _encodings(heads: pa.Array) -> dict[int, tuple[str, ...]]:
    """Return the compressions of compressed rows, by index."""
    flags = pc.binary_slice(heads, FLAGS_AT, FLAGS_AT + 1)
    octets = np.frombuffer(flags.buffers()[2], np.uint8, len(heads))  # Each has one.
    encodings = {}
    for row in np.flatnonzero(octets & HAS_ENCODING).tolist():
        head = heads[row].as_py()
        at, end = property_range(head, CONTENT_ENCODING)
        names = compressions(head[at + 1 : end].decode(errors="replace"))
        if names:
            encodings[row] = names
    return encodings
