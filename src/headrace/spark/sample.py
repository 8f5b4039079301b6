# SPDX-License-Identifier: Apache-2.0
"""The schema of a read: given, kept from before, or inferred from a sample of the records."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from headrace.spark.decode import infer
from headrace.spark.decode.values import loads
from headrace.spark.options.kinds import OptionError
from headrace.spark.runtime.schema_log import SchemaLog
from headrace.spark.schema.types import nullable

if TYPE_CHECKING:
    from headrace.spark.options.decode_options import DecodeOptions
    from headrace.spark.options.options import ReadOptions

SAMPLE_BYTES_MAX: Final = 16 << 20  # Of bodies.
STREAMS_MAX: Final = 10  # Of which a sample is taken.


def value_type(options: ReadOptions, decoding: DecodeOptions) -> DataType:
    """The type of the column `value`; asks the broker only when it has to be inferred."""
    if decoding.format in ("string", "binary"):
        return StringType() if decoding.format == "string" else BinaryType()
    given = decoding.schema()
    if not decoding.location:
        return inferred(options, decoding) if given is None else given
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
            return inferred(options, decoding) if newest is None else newest
        # The columns that are given come first and count; those that were added since stay.
        return given if newest is None else infer.grow(given, newest)

    return nullable(versions.put(decoding.format, change))


def inferred(options: ReadOptions, decoding: DecodeOptions) -> StructType:
    """The schema of the oldest and newest records there are; OptionError when there are none."""
    bodies = list(sample(options, decoding.sample))
    try:
        if not bodies:
            raise infer.InferenceError("there are no records")
        kind = csv_schema(bodies, decoding) if decoding.format == "csv" else json_schema(bodies)
    except infer.InferenceError as error:
        raise OptionError(
            f"option 'valueSchema' is not given, and no schema can be inferred: {error}"
        ) from None
    assert isinstance(kind, StructType)
    return kind


def json_schema(bodies: Iterable[bytes]) -> StructType:
    """The schema of those bodies that are objects of JSON."""

    def parsed() -> Iterable[object]:
        for body in bodies:
            try:
                yield loads(body.decode())
            except (ValueError, RecursionError):
                continue

    return infer.infer(parsed())


def csv_schema(bodies: Iterable[bytes], decoding: DecodeOptions) -> StructType:
    """The schema of those bodies that are records of CSV; columns are `_c0`, `_c1` and so on."""
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
    return infer.settled(StructType(list(map(StructField, names, kinds))))


def sample(options: ReadOptions, count: int) -> Iterable[bytes]:
    """Some bodies: of each stream the oldest and the newest, of a queue the first."""
    from headrace.spark.driver.broker_queries import Survey
    from headrace.spark.schema.offsets import Range
    from headrace.spark.task.records import Reading, read

    if options.streams is None:
        yield from _of_queue(options, count)
        return
    broker = Survey(options)
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
            for batch in read(reading, piece, ("body",)):
                for body in batch.column("body").to_pylist():
                    size += len(body)
                    if size > SAMPLE_BYTES_MAX:
                        return
                    yield body


def _of_queue(options: ReadOptions, count: int) -> Iterable[bytes]:
    """The first bodies of a queue, which stay in it."""
    from headrace.spark.queue.snapshot import SnapshotReader
    from headrace.spark.schema.columns import Wanted

    plain = replace(options, decoding=None, partitions_min=1, partition_records_max=None)
    reader = SnapshotReader(plain, Wanted(("body",)))
    size = 0
    for partition in reader.partitions():
        for batch in reader.read(partition):
            for body in batch.column("body").to_pylist():
                size += len(body)
                if count == 0 or size > SAMPLE_BYTES_MAX:
                    return
                count -= 1
                yield body
