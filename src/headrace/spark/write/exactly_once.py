# SPDX-License-Identifier: Apache-2.0
"""Exactly-once writes: tasks stage the rows of a batch, and the driver makes them visible at once.

Each attempt of a task stages its rows under sink, batch, partition and attempt. The driver commits
the successful attempts. In one step the broker makes their messages visible and records the batch
as the last one of the sink, so a batch that Spark repeats is skipped. The commit discards the
failed and killed attempts of the batch. docs/guides/spark-sink.md has a drawing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.client.blocking_pipeline import Sink, Stage
from headrace.client.errors import ClientError, ConnectFailed, ConnectionClosed, ConnectionLost
from headrace.client.requests import RequestRefused
from headrace.client.staging import StageError
from headrace.columns.options.kinds import OptionError
from headrace.columns.runtime.connections import Purpose, requests, run_with_retry
from headrace.spark.write.publish import PartitionResult
from headrace.spark.write.rows import RowError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client import blocking
    from headrace.columns.options.options import WriteOptions
    from headrace.spark.runtime.task import Task
    from headrace.spark.write.encode import EncodedBatch

log = logging.getLogger(__name__)

REPLAY_BYTES_MAX: Final = 64 << 20  # A larger partition is not kept in memory for a replay.
BREAKS_MAX: Final = 10  # Lost connections after which the task fails.
FRAME_MAX: Final = 131072  # A broker with smaller frames refuses rows one by one.


class SinkTakenError(RuntimeError):
    """The sink belongs to another query."""


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """The staged messages of one task, which the driver commits by their `branches`."""

    sink: str
    epoch: int
    branches: str  # "" if no messages were staged.
    count: int
    already_committed: bool = False  # True if the broker had committed the batch before.


EMPTY_PARTITION: Final = StagedPartition("", 0, "", 0)


def stage(
    options: WriteOptions,
    batches: Iterator[pa.RecordBatch],
    *,
    sink: str,
    owner: str,
    run: str,
    batch: int,
    task: Task,
) -> StagedPartition:
    """Stage the rows of one partition.

    After a lost connection the rows are staged again if all of them are still in memory.

    Raises:
        PublishError: a row is invalid, or the broker refused it.
        SinkTakenError: the sink belongs to another query.
    """
    first_batch = next(batches, None)
    if first_batch is None:
        return EMPTY_PARTITION  # An empty partition costs no connection.
    epoch, last = _claim_sink(options, sink, owner, run)
    if last is not None and last >= batch:
        for _ in batches:  # Spark must compute all rows to update the state of the query.
            pass
        return StagedPartition(sink, epoch, "", 0, already_committed=True)
    replayable = _ReplayableBatches(first_batch, batches)
    break_count = 0
    while True:
        try:
            return _stage_once(options, replayable, sink, epoch, batch, task)
        except (ConnectionLost, ConnectionClosed, ConnectFailed) as error:
            break_count += 1
            if not replayable.can_replay() or break_count > BREAKS_MAX:
                raise
            log.info("partition %d is staged again: %s", task.partition, error)


def _stage_once(
    options: WriteOptions,
    replayable: _ReplayableBatches,
    sink: str,
    epoch: int,
    batch: int,
    task: Task,
) -> StagedPartition:
    """Stage the rows over one connection."""
    from headrace.spark.write.encode import encode

    result = PartitionResult(task.partition)

    def open_stage(connection: blocking.Connection) -> Stage:
        return Stage(connection, sink, batch, task.partition, task.attempt, epoch=epoch)

    timeout_s = options.reconnect_timeout_s
    encoded: EncodedBatch | None = None
    with run_with_retry(
        options.uri, timeout_s, open_stage, Purpose.ASK, reached_before=True
    ) as staging:
        try:
            for record_batch in replayable:
                encoded = encode(options, record_batch, None, FRAME_MAX)
                for row, error in encoded.errors.items():
                    result.fail(result.row_count + row, error)
                result.row_count += record_batch.num_rows
                if result.failed_count:
                    break
                staging.publish_columns(
                    encoded.count,
                    encoded.body,
                    properties=encoded.properties,
                    routing_key=encoded.routing_key,
                    exchange=encoded.exchange,
                    mandatory=options.mandatory,
                )
            result.check()
            staged = staging.prepare()
        except StageError as error:
            result.fail(error.index, replayable.row_error(options, error.index, error.reason))
            result.check()
            raise
    return StagedPartition(sink, epoch, staged.branches, staged.messages, staged.already)


def _claim_sink(options: WriteOptions, sink: str, owner: str, run: str) -> tuple[int, int | None]:
    """Claim the sink for a run; return its epoch and its last committed batch.

    Every task of the run claims the sink and gets the same epoch.
    """

    def send_request(connection: blocking.Connection) -> tuple[int, int | None]:
        if not isinstance(connection.server_properties.get("headrace_id"), str):
            raise OptionError(
                "option 'deliveryGuarantee': this broker is not Headrace, so it cannot make a "
                "batch visible at once; set it to 'at-least-once'"
            )
        sink_client = Sink(connection, sink, requests=requests(connection))
        if options.sink_id is not None:
            state = sink_client.state()
            if state is not None and state.owner not in ("", owner) and not options.sink_takeover:
                raise SinkTakenError(
                    f"option 'sinkId': sink {sink!r} has the batches of query {state.owner}, and "
                    f"query {owner} counts its own from 0, as a new checkpoint does; go on with "
                    "the checkpoint of that query, or use another sinkId, or set option "
                    "'sinkTakeover' to 'true' to begin anew"
                )
        try:
            state = sink_client.begin(owner, run, force=options.sink_takeover)
        except RequestRefused as error:
            raise SinkTakenError(f"option 'sinkId': {error}") from None
        return state.epoch, state.last

    return run_with_retry(
        options.uri, options.reconnect_timeout_s, send_request, Purpose.ASK, reached_before=True
    )


def commit(options: WriteOptions, partitions: Sequence[StagedPartition], batch: int) -> None:
    """Make the messages of these partitions visible; a repeated call does nothing."""
    staged = [partition for partition in partitions if partition.branches]
    if not staged:
        return
    sink, epoch = staged[0].sink, max(partition.epoch for partition in staged)

    def send_request(connection: blocking.Connection) -> None:
        sink_client = Sink(connection, sink, requests=requests(connection))
        sink_client.epoch = epoch
        sink_client.commit(batch, [partition.branches for partition in staged])

    run_with_retry(
        options.uri, options.reconnect_timeout_s, send_request, Purpose.ASK, reached_before=True
    )


def abort(options: WriteOptions, sink: str, batch: int) -> None:
    """Discard a staged batch; if the request fails, the batch expires at the broker."""

    def send_request(connection: blocking.Connection) -> None:
        Sink(connection, sink, requests=requests(connection)).abort(batch)

    _try_request(
        options, send_request, f"what is staged for batch {batch} of sink {sink!r} will expire"
    )


def forget(options: WriteOptions, sink: str) -> None:
    """Delete the sink of a batch write, which has no further batches."""

    def send_request(connection: blocking.Connection) -> None:
        requests(connection).ask("sink.discard", sink=sink)

    _try_request(options, send_request, f"the broker remembers sink {sink!r}")


def _try_request(
    options: WriteOptions, send_request: Callable[[blocking.Connection], None], consequence: str
) -> None:
    """Send a request without retries; if it fails, log the consequence."""
    try:
        run_with_retry(options.uri, 0.0, send_request, Purpose.ASK, reached_before=True)
    except ClientError as error:
        log.info("%s: %s", consequence, error)


class _ReplayableBatches:
    """The record batches of a partition, kept in memory while they fit `REPLAY_BYTES_MAX`."""

    def __init__(self, first_batch: pa.RecordBatch, remaining: Iterator[pa.RecordBatch]) -> None:
        self._batches: list[pa.RecordBatch] = [first_batch]
        self._remaining = remaining
        self._size = first_batch.nbytes
        self._is_complete: bool = self._size <= REPLAY_BYTES_MAX  # All batches so far are kept.

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from list(self._batches)
        if not self._is_complete:
            self._batches.clear()
        for batch in self._remaining:
            self._size += batch.nbytes
            if self._is_complete and self._size <= REPLAY_BYTES_MAX:
                self._batches.append(batch)
            else:
                self._is_complete = False
                self._batches.clear()
            yield batch

    def can_replay(self) -> bool:
        """Return True if all batches so far are in memory."""
        return self._is_complete

    def row_error(self, options: WriteOptions, row: int, reason: str) -> RowError:
        """Return the error of a refused row, with its keys if its batch is still in memory."""
        from headrace.spark.write.rows import Row, make_rows

        first = 0
        for batch in self._batches if self._is_complete else ():
            if first <= row < first + batch.num_rows:
                (refused_row,) = make_rows(options, batch.slice(row - first, 1))
                if isinstance(refused_row, Row):
                    row_keys = (
                        refused_row.exchange,
                        refused_row.routing_key,
                        refused_row.message.message_id,
                    )
                    return RowError(reason, *row_keys)
            first += batch.num_rows
        return RowError(reason)
