# SPDX-License-Identifier: Apache-2.0
"""The schema of a read: from the options, stored by an earlier read, or inferred from a sample."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.columns.decode import infer
from headrace.columns.decode.codec import strip_framing
from headrace.columns.decode.values import loads
from headrace.columns.options.kinds import OptionError
from headrace.columns.read.decompression import decompress
from headrace.columns.runtime.schema_log import SchemaLog
from headrace.columns.schema.columns import CONTENT_HEADER
from headrace.columns.schema.types import BinaryType, DataType, StringType, StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.columns.options.decode_options import DecodeOptions
    from headrace.columns.options.options import ReadOptions

SAMPLE_BYTES_MAX: Final = 16 << 20  # The size of all sampled bodies together.
RAW_COLUMNS: Final = ("body", CONTENT_HEADER)
STREAMS_MAX: Final = 10  # Sampled streams.


def find_value_type(options: ReadOptions, decoding: DecodeOptions) -> DataType:
    """Return the type of the column `value`; sample the broker only if it must be inferred.

    With `schemaLocation` the type is stored there if it is new.
    """
    if decoding.format in ("string", "binary"):
        return StringType() if decoding.format == "string" else BinaryType()
    stated_type = decoding.schema()
    if not decoding.location:
        return infer_schema(options, decoding) if stated_type is None else stated_type
    schema_log = SchemaLog(decoding.location)
    if decoding.format == "avro":
        assert isinstance(stated_type, StructType)
        schema_log.put_avro(decoding.text, stated_type)
        return stated_type
    if stated_type is not None and not isinstance(stated_type, StructType):
        raise OptionError(
            "option 'schemaLocation' keeps lists of columns: 'valueSchema' must be one"
        )

    def choose_schema(newest: StructType | None) -> StructType:
        if stated_type is None:
            return infer_schema(options, decoding) if newest is None else newest
        # Columns in the options come first and override stored columns; other stored ones stay.
        return stated_type if newest is None else infer.grow(stated_type, newest)

    return schema_log.put(decoding.format, choose_schema)


def infer_schema(options: ReadOptions, decoding: DecodeOptions) -> StructType:
    """Return the schema of a sample of records.

    Raises:
        OptionError: there are no records, or no schema fits them.
    """
    bodies = list(sample(options, decoding))
    try:
        if not bodies:
            raise infer.InferenceError("the stream has no records")
        schema = (
            infer_csv_schema(bodies, decoding)
            if decoding.format == "csv"
            else infer_json_schema(bodies, _choose_parser(decoding))
        )
    except infer.InferenceError as error:
        raise OptionError(
            f"option 'valueSchema' is not given, and no schema can be inferred: {error}"
        ) from None
    assert isinstance(schema, StructType)
    return schema


def _choose_parser(decoding: DecodeOptions) -> Callable[[bytes], object]:
    if decoding.format == "json":
        return _parse_framed_json if decoding.framing == "registry" else _parse_json
    from headrace.columns.decode.binary_values import PARSERS

    return PARSERS[decoding.format]


def _parse_json(body: bytes) -> object:
    return loads(body.decode())


def _parse_framed_json(body: bytes) -> object:
    return _parse_json(strip_framing(body) or b"")


def infer_json_schema(
    bodies: Iterable[bytes], parse: Callable[[bytes], object] = _parse_json
) -> StructType:
    """Infer the schema of the bodies that `parse` parses to objects; skip other bodies."""

    def parse_all() -> Iterable[object]:
        for body in bodies:
            try:
                yield parse(body)
            except (ValueError, RecursionError):
                continue

    return infer.infer(parse_all())


def infer_csv_schema(bodies: Iterable[bytes], decoding: DecodeOptions) -> StructType:
    """Infer the schema of CSV records, with columns `_c0`, `_c1`, …; skip malformed bodies."""
    kinds: list[DataType] = []
    for body in bodies:
        try:
            texts = decoding.dialect.parse(body)
        except (ValueError, csv.Error):
            continue
        for index, text in enumerate(texts):
            kind = infer.infer_text_type("" if text == decoding.dialect.null else text)
            if index < len(kinds):
                kinds[index] = infer.common_type(kinds[index], kind)
            else:
                kinds.append(kind)
    names = infer.make_csv_names(len(kinds))
    return infer.finalize_schema(StructType(list(map(StructField, names, kinds))))


def sample(options: ReadOptions, decoding: DecodeOptions) -> Iterable[bytes]:
    """Yield the oldest and newest bodies of streams, or the first bodies of a queue, decompressed.

    The sample has about `decoding.sample` bodies, of `SAMPLE_BYTES_MAX` at most.
    """
    from headrace.columns.broker_streams import BrokerStreams
    from headrace.columns.read.records import RangeRead, read_batches
    from headrace.columns.schema.offsets import Range

    count = decoding.sample
    if options.streams is None:
        yield from _sample_queue(options, decoding)
        return
    broker = BrokerStreams(options, plain=bool(options.streams.names))
    extents = broker.extents()
    names = sorted(extents)[:STREAMS_MAX]
    sample_size = max(1, count // len(names)) if names else 0
    range_read = RangeRead(uri=options.uri, fail_on_data_loss=False)
    size = 0
    for name in names:
        first, end = broker.first_offset(name), extents[name].next
        oldest = min(first + (sample_size + 1) // 2, end)
        newest = max(oldest, end - sample_size // 2)
        for stream_range in (Range(name, first, oldest), Range(name, newest, end)):
            if len(stream_range) == 0:
                continue
            for batch in read_batches(range_read, stream_range, RAW_COLUMNS):
                for body in _decompressed_bodies(batch, decoding):
                    size += len(body)
                    if size > SAMPLE_BYTES_MAX:
                        return
                    yield body


def _decompressed_bodies(batch: pa.RecordBatch, decoding: DecodeOptions) -> Iterable[bytes]:
    """Yield the decompressed bodies of a batch; skip bodies that cannot be decompressed."""
    if not decoding.decompressed_max:
        yield from batch.column("body").to_pylist()
        return
    for part in decompress(batch, decoding.decompressed_max):
        yield from (body for index, body in enumerate(part.bodies) if index not in part.faults)


def _sample_queue(options: ReadOptions, decoding: DecodeOptions) -> Iterable[bytes]:
    """Yield the first bodies of a queue, without consuming them."""
    from headrace.columns.browse import find_queue_parts
    from headrace.columns.read.read_range import read_range
    from headrace.columns.schema.columns import QueryColumns

    undecoded_options = replace(
        options, decoding=None, partitions_min=1, partition_records_max=None
    )
    count, size = decoding.sample, 0
    for stream_range in find_queue_parts(undecoded_options):
        for batch in read_range(
            undecoded_options, QueryColumns(RAW_COLUMNS), stream_range, browse=True
        ):
            for body in _decompressed_bodies(batch, decoding):
                size += len(body)
                if count == 0 or size > SAMPLE_BYTES_MAX:
                    return
                count -= 1
                yield body
