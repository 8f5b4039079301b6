# SPDX-License-Identifier: Apache-2.0
"""Decompression of the bodies of a batch, by the property `content_encoding`.

Most messages do not have the property, so the module checks one byte of the flags of each content
header before it parses the header.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.decode.codec import format_reason
from headrace.columns.decode.inflate import InflateError, inflate, parse_compressions
from headrace.columns.schema.columns import CONTENT_HEADER
from headrace.wire.properties import property_range

FLAGS_AT: Final = 12  # The flags of a content header follow class, weight and body size.
CONTENT_ENCODING: Final = 0x4000  # The flag of the property.
HAS_ENCODING: Final = CONTENT_ENCODING >> 8  # The same flag in the first byte of the flags.
PART_BYTES_MAX: Final = 64 << 20  # A part ends when its decompressed bodies exceed this size.


@dataclass(slots=True)
class DecompressedPart:
    """Rows of a batch with their decompressed bodies.

    `faults` has the errors of decompression by row of the part; the body of such a row is empty.
    """

    batch: pa.RecordBatch
    bodies: list[bytes]
    faults: dict[int, str] = field(default_factory=dict)


def decompress(batch: pa.RecordBatch, size_max: int) -> Iterator[DecompressedPart]:
    """Decompress the bodies of a batch, in parts of limited size.

    A body of more than `size_max` decompressed bytes becomes a fault.
    """
    bodies: list[bytes] = batch.column("body").to_pylist()
    compressions_by_row = _find_compressions(batch.column(CONTENT_HEADER))
    if not compressions_by_row:
        yield DecompressedPart(batch, bodies)
        return
    start, size = 0, 0
    part_bodies: list[bytes] = []
    faults: dict[int, str] = {}
    for row, body in enumerate(bodies):
        compressions = compressions_by_row.get(row)
        if compressions:
            if size > PART_BYTES_MAX:
                yield DecompressedPart(batch.slice(start, row - start), part_bodies, faults)
                start, size, part_bodies, faults = row, 0, [], {}
            try:
                body = inflate(body, compressions, size_max)
            except InflateError as error:
                faults[row - start] = format_reason(
                    f"content_encoding {','.join(compressions[::-1])}: {error}"
                )
                body = b""
            size += len(body)
        part_bodies.append(body)
    yield DecompressedPart(batch.slice(start), part_bodies, faults)


def _find_compressions(headers: pa.Array) -> dict[int, tuple[str, ...]]:
    """Return the compressions of each compressed body, by row."""
    flags = pc.binary_slice(headers, FLAGS_AT, FLAGS_AT + 1)
    flag_bytes = np.frombuffer(flags.buffers()[2], np.uint8, len(headers))  # One byte a row.
    compressions_by_row = {}
    for row in np.flatnonzero(flag_bytes & HAS_ENCODING).tolist():
        header = headers[row].as_py()
        start, end = property_range(header, CONTENT_ENCODING)
        compressions = parse_compressions(header[start + 1 : end].decode(errors="replace"))
        if compressions:
            compressions_by_row[row] = compressions
    return compressions_by_row
