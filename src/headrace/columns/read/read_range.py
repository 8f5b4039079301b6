# SPDX-License-Identifier: Apache-2.0
"""Reading of a range of a stream, or of a part of a queue, as the columns of a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.client.stream.blocks import BLOCK_RECORDS_MAX
from headrace.columns.read import records

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.columns.archive.index import OffsetRun
    from headrace.columns.options.options import ReadOptions
    from headrace.columns.read.decoded_rows import RejectRecorder
    from headrace.columns.schema.columns import QueryColumns
    from headrace.columns.schema.offsets import Range


def read_range(
    options: ReadOptions,
    columns: QueryColumns,
    stream_range: Range,
    source: str = "",
    *,
    browse: bool = False,
    reader: str = "",
    rejects: RejectRecorder | None = None,
    pool: int = 0,
    batch_records_max: int = BLOCK_RECORDS_MAX,
    runs: Sequence[OffsetRun] = (),
) -> Iterator[pa.RecordBatch]:
    """Return the records of a range as batches, decoded if the options say so.

    `source` is the queue that is leased or, with `browse`, browsed; "" for a stream. The broker
    counts lost records under the name `reader`. `rejects` records malformed messages. `pool` is a
    pool of connections from `reserve_pool`. With `runs`, which are parts of archived files, the
    range is read from the archive.
    """
    range_read = records.RangeRead(
        uri=options.uri,
        fail_on_data_loss=options.fail_on_data_loss,
        filters=options.filters,
        match_unfiltered=options.match_unfiltered,
        reconnect_timeout_s=options.reconnect_timeout_s,
        browse=browse,
        archive=options.archive,
        reader=reader,
        pool=pool,
        batch_records_max=batch_records_max,
        spooled=bool(options.spool_directory),
    )
    if options.decoding is None:
        return records.read_batches(range_read, stream_range, columns.names, source, runs)
    from headrace.columns.read.decoded_rows import BatchDecoder

    decoder = BatchDecoder(
        options.decoding, columns, source or stream_range.stream, options.uri, rejects
    )
    return decoder.run(records.read_batches(range_read, stream_range, decoder.raw, source, runs))
