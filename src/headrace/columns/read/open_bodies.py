# SPDX-License-Identifier: Apache-2.0
"""Decompression of the bodies of a batch.

The property `content_encoding` is read from the content headers. Most messages do not have it, so
one byte of the flags is checked first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.decode.codec import reason
from headrace.columns.decode.inflate import InflateError, inflate, parse_compressions
from headrace.columns.schema.columns import CONTENT_HEADER
from headrace.wire.properties import property_range

FLAGS_AT: Final = 12  # The flags of a content header follow class, weight and body size.
CONTENT_ENCODING: Final = 0x4000  # The flag of the property.
HAS_ENCODING: Final = CONTENT_ENCODING >> 8  # The flag in the first byte of the flags.
PART_BYTES_MAX: Final = 64 << 20  # The size of decompressed bodies at which a part ends.


@dataclass(slots=True)
class DecompressedPart:
    """Rows of a batch with decompressed bodies; `faults` has errors of decompression by index.

    The body of a row with a fault is empty.
    """

    batch: pa.RecordBatch
    bodies: list[bytes]
    faults: dict[int, str] = field(default_factory=dict)


def decompress(batch: pa.RecordBatch, size_max: int) -> Iterator[DecompressedPart]:
    """Decompress a batch, in parts of limited size.

    A body of more than `size_max` bytes becomes a fault.
    """
    bodies: list[bytes] = batch.column("body").to_pylist()
    encodings = _encodings(batch.column(CONTENT_HEADER))
    if not encodings:
        yield DecompressedPart(batch, bodies)
        return
    start, size = 0, 0
    part_bodies: list[bytes] = []
    faults: dict[int, str] = {}
    for row, body in enumerate(bodies):
        compressions = encodings.get(row)
        if compressions:
            if size > PART_BYTES_MAX:
                yield DecompressedPart(batch.slice(start, row - start), part_bodies, faults)
                start, size, part_bodies, faults = row, 0, [], {}
            try:
                body = inflate(body, compressions, size_max)
            except InflateError as error:
                faults[row - start] = reason(
                    f"content_encoding {','.join(compressions[::-1])}: {error}"
                )
                body = b""
            size += len(body)
        part_bodies.append(body)
    yield DecompressedPart(batch.slice(start), part_bodies, faults)


def _encodings(headers: pa.Array) -> dict[int, tuple[str, ...]]:
    """Return the compressions of compressed rows, by index."""
    flags = pc.binary_slice(headers, FLAGS_AT, FLAGS_AT + 1)
    flag_bytes = np.frombuffer(flags.buffers()[2], np.uint8, len(headers))  # Each has one.
    encodings = {}
    for row in np.flatnonzero(flag_bytes & HAS_ENCODING).tolist():
        header = headers[row].as_py()
        start, end = property_range(header, CONTENT_ENCODING)
        compressions = parse_compressions(header[start + 1 : end].decode(errors="replace"))
        if compressions:
            encodings[row] = compressions
    return encodings
