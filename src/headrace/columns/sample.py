# SPDX-License-Identifier: Apache-2.0
"""The schema of a read: given, stored by an earlier read, or inferred from sample records."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.columns.decode import infer
from headrace.columns.decode.codec import strip_framing
from headrace.columns.decode.values import loads
from headrace.columns.options.kinds import OptionError
from headrace.columns.read.open_bodies import decompress
from headrace.columns.runtime.schema_log import SchemaLog
from headrace.columns.schema.columns import CONTENT_HEADER
from headrace.columns.schema.types import BinaryType, DataType, StringType, StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.columns.options.decode_options import DecodeOptions
    from headrace.columns.options.options import ReadOptions

SAMPLE_BYTES_MAX: Final = 16 << 20  # Bytes of all sampled bodies.
RAW: Final = ("body", CONTENT_HEADER)
STREAMS_MAX: Final = 10  # Streams that are sampled.


def value_type(options: ReadOptions, decoding: DecodeOptions) -> DataType:
    """Return the type of the column `value`; only inference reads from the broker."""
    if decoding.format in ("string", "binary"):
        return StringType() if decoding.format == "string" else BinaryType()
    given = decoding.schema()
    if not decoding.location:
        return infer_schema(options, decoding) if given is None else given
    versions = SchemaLog(decoding.location)
    if decoding.format == "avro":
        assert isinstance(given, StructType)
        versions.put_avro(decoding.text, given)
        return given
    if given is not None and not isinstance(given, StructType):
        raise OptionError(
            "option 'schemaLocation' keeps lists of columns: 'valueSchema' must be one"
        )

    def change(newest: StructType | None) -> StructType:
        if given is None:
            return infer_schema(options, decoding) if newest is None else newest
        # Given columns come first and override stored ones; later additions stay.
        return given if newest is None else infer.grow(given, newest)

    return versions.put(decoding.format, change)


def infer_schema(options: ReadOptions, decoding: DecodeOptions) -> StructType:
    """Return the schema of the oldest and newest records; OptionError without records."""
    bodies = list(sample(options, decoding))
    try:
        if not bodies:
            raise infer.InferenceError("there are no records")
        kind = (
            csv_schema(bodies, decoding)
            if decoding.format == "csv"
            else json_schema(bodies, _parser(decoding))
        )
    except infer.InferenceError as error:
        raise OptionError(
            f"option 'valueSchema' is not given, and no schema can be inferred: {error}"
        ) from None
    assert isinstance(kind, StructType)
    return kind


def _parser(decoding: DecodeOptions) -> Callable[[bytes], object]:
    if decoding.format == "json":
        return _framed_json if decoding.framing == "registry" else _json
    from headrace.columns.decode.binary_values import LOADS

    return LOADS[decoding.format]


def _json(body: bytes) -> object:
    return loads(body.decode())


def _framed_json(body: bytes) -> object:
    return _json(strip_framing(body) or b"")


def json_schema(bodies: Iterable[bytes], parse: Callable[[bytes], object] = _json) -> StructType:
    """Infer the schema of bodies that `parse` reads as objects; other bodies are skipped."""

    def parsed() -> Iterable[object]:
        for body in bodies:
            try:
                yield parse(body)
            except (ValueError, RecursionError):
                continue

    return infer.infer(parsed())


def csv_schema(bodies: Iterable[bytes], decoding: DecodeOptions) -> StructType:
    """Infer the schema of records of CSV, with columns `_c0`, `_c1`, …; skip other bodies."""
    kinds: list[DataType] = []
    for body in bodies:
        try:
            texts = decoding.dialect.parse(body)
        except (ValueError, csv.Error):
            continue
        for index, text in enumerate(texts):
            kind = infer.type_of_text("" if text == decoding.dialect.null else text)
            if index < len(kinds):
                kinds[index] = infer.common(kinds[index], kind)
            else:
                kinds.append(kind)
    names = infer.names_of_csv(len(kinds))
    return infer.finalize_schema(StructType(list(map(StructField, names, kinds))))


def sample(options: ReadOptions, decoding: DecodeOptions) -> Iterable[bytes]:
    """Yield decompressed bodies: the oldest and newest of each stream, the first of a queue."""
    from headrace.columns.read.records import Reading, read
    from headrace.columns.schema.offsets import Range
    from headrace.columns.survey import Survey

    count = decoding.sample
    if options.streams is None:
        yield from _of_queue(options, decoding)
        return
    broker = Survey(options, plain=bool(options.streams.names))
    places = broker.places()
    names = sorted(places)[:STREAMS_MAX]
    share = max(1, count // len(names)) if names else 0
    reading = Reading(uri=options.uri, fail_on_data_loss=False)
    size = 0
    for name in names:
        first, end = broker.first_offset(name), places[name].next
        oldest = min(first + (share + 1) // 2, end)
        newest = max(oldest, end - share // 2)
        for piece in (Range(name, first, oldest), Range(name, newest, end)):
            if len(piece) == 0:
                continue
            for batch in read(reading, piece, RAW):
                for body in _bodies(batch, decoding):
                    size += len(body)
                    if size > SAMPLE_BYTES_MAX:
                        return
                    yield body


def _bodies(batch: pa.RecordBatch, decoding: DecodeOptions) -> Iterable[bytes]:
    """Yield the decompressed bodies of a batch; skip bodies that cannot be decompressed."""
    if not decoding.decompressed_max:
        yield from batch.column("body").to_pylist()
        return
    for part in decompress(batch, decoding.decompressed_max):
        yield from (body for at, body in enumerate(part.bodies) if at not in part.faults)


def _of_queue(options: ReadOptions, decoding: DecodeOptions) -> Iterable[bytes]:
    """Browse the first bodies of a queue."""
    from headrace.columns.browse import queue_parts
    from headrace.columns.read.read_range import read_range
    from headrace.columns.schema.columns import Wanted

    plain = replace(options, decoding=None, partitions_min=1, partition_records_max=None)
    count, size = decoding.sample, 0
    for piece in queue_parts(plain):
        for batch in read_range(plain, Wanted(RAW), piece, browse=True):
            for body in _bodies(batch, decoding):
                size += len(body)
                if count == 0 or size > SAMPLE_BYTES_MAX:
                    return
                count -= 1
                yield body
