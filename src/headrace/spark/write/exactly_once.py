# SPDX-License-Identifier: Apache-2.0
"""Exactly once: a batch is staged by its tasks and made visible at once by the driver.

Each attempt of a task stages its rows under sink, batch, partition and attempt. The driver commits
the successful attempts. The broker makes them visible, and records the batch as the sink's last
one, in one step; so a batch that Spark runs again is skipped. The commit discards the other
attempts of the batch, which failed or were killed. docs/guides/spark.md has a drawing.
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
    from headrace.spark.write.encode import Encoded

log = logging.getLogger(__name__)

KEPT_OCTETS_MAX: Final = 64 << 20  # Bytes of a partition that are kept, to be staged again.
BREAKS_MAX: Final = 10  # Connections in a row that may break while a task is staged.
FRAME_MAX: Final = 131072  # A broker with smaller frames refuses rows one by one.


class SinkTakenError(RuntimeError):
    """Another query counts the batches of this sink."""


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """The messages that one task staged; the driver hands it to `commit`."""

    sink: str
    epoch: int
    branches: str  # Empty when nothing was staged.
    count: int
    already: bool = False  # The batch had been committed before.


NOTHING: Final = StagedPartition("", 0, "", 0)


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
    """Stage the rows of one partition; PublishError when the broker did not take a row.

    After a lost connection the rows are staged again, if all of them are still in memory.
    """
    first = next(batches, None)
    if first is None:
        return NOTHING  # An empty partition costs no connection.
    epoch, last = _begin(options, sink, owner, run)
    if last is not None and last >= batch:
        for _ in batches:  # The state of a query needs all of its rows computed.
            pass
        return StagedPartition(sink, epoch, "", 0, already=True)
    replayable = _ReplayableBatches(first, batches)
    breaks = 0
    while True:
        try:
            return _stage_once(options, replayable, sink, epoch, batch, task)
        except (ConnectionLost, ConnectionClosed, ConnectFailed) as error:
            breaks += 1
            if not replayable.can_replay() or breaks > BREAKS_MAX:
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
    from headrace.spark.write.encode import encode

    result = PartitionResult(task.partition)

    def begin(connection: blocking.Connection) -> Stage:
        return Stage(connection, sink, batch, task.partition, task.attempt, epoch=epoch)

    timeout_s = options.reconnect_timeout_s
    encoded: Encoded | None = None
    with run_with_retry(options.uri, timeout_s, begin, Purpose.ASK, known=True) as staging:
        try:
            for record_batch in replayable:
                encoded = encode(options, record_batch, None, FRAME_MAX)
                for row, error in encoded.errors.items():
                    result.fail(result.seen + row, error)
                result.seen += record_batch.num_rows
                if result.failed:
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


def _begin(options: WriteOptions, sink: str, owner: str, run: str) -> tuple[int, int | None]:
    """Claim the sink, in every task of a run; return its epoch and its last committed batch."""

    def ask(connection: blocking.Connection) -> tuple[int, int | None]:
        if not isinstance(connection.server_properties.get("headrace_id"), str):
            raise OptionError(
                "option 'deliveryGuarantee': this broker is not Headrace, so it cannot make a "
                "batch visible at once; set it to 'at-least-once'"
            )
        asked = Sink(connection, sink, requests=requests(connection))
        if options.sink_id is not None:
            state = asked.state()
            if state is not None and state.owner not in ("", owner) and not options.sink_takeover:
                raise SinkTakenError(
                    f"option 'sinkId': sink {sink!r} has the batches of query {state.owner}, and "
                    f"query {owner} counts its own from 0, as a new checkpoint does; go on with "
                    "the checkpoint of that query, or use another sinkId, or set option "
                    "'sinkTakeover' to 'true' to begin anew"
                )
        try:
            state = asked.begin(owner, run, force=options.sink_takeover)
        except RequestRefused as error:
            raise SinkTakenError(f"option 'sinkId': {error}") from None
        return state.epoch, state.last

    return run_with_retry(options.uri, options.reconnect_timeout_s, ask, Purpose.ASK, known=True)


def commit(options: WriteOptions, parts: Sequence[StagedPartition], batch: int) -> None:
    """Make a batch visible, with exactly these parts; a repeated call does nothing."""
    staged = [part for part in parts if part.branches]
    if not staged:
        return
    sink, epoch = staged[0].sink, max(part.epoch for part in staged)

    def ask(connection: blocking.Connection) -> None:
        asked = Sink(connection, sink, requests=requests(connection))
        asked.epoch = epoch
        asked.commit(batch, [part.branches for part in staged])

    run_with_retry(options.uri, options.reconnect_timeout_s, ask, Purpose.ASK, known=True)


def abort(options: WriteOptions, sink: str, batch: int) -> None:
    """Abort a staged batch, whichever writer staged it; otherwise it expires."""

    def ask(connection: blocking.Connection) -> None:
        Sink(connection, sink, requests=requests(connection)).abort(batch)

    _try(options, ask, f"what is staged for batch {batch} of sink {sink!r} will expire")


def forget(options: WriteOptions, sink: str) -> None:
    """Delete a sink that had one batch."""

    def ask(connection: blocking.Connection) -> None:
        requests(connection).ask("sink.discard", sink=sink)

    _try(options, ask, f"the broker remembers sink {sink!r}")


def _try(options: WriteOptions, ask: Callable[[blocking.Connection], None], otherwise: str) -> None:
    """Try a request whose failure does no harm; log a failure as `otherwise`."""
    try:
        run_with_retry(options.uri, 0.0, ask, Purpose.ASK, known=True)
    except ClientError as error:
        log.info("%s: %s", otherwise, error)


class _ReplayableBatches:
    """The batches of a partition, of which the first are kept to be read again."""

    def __init__(self, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> None:
        self._kept: list[pa.RecordBatch] = [first]
        self._rest = rest
        self._octets = first.nbytes
        self._whole: bool = self._octets <= KEPT_OCTETS_MAX  # All batches so far are kept.

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from list(self._kept)
        if not self._whole:
            self._kept.clear()
        for batch in self._rest:
            self._octets += batch.nbytes
            if self._whole and self._octets <= KEPT_OCTETS_MAX:
                self._kept.append(batch)
            else:
                self._whole = False
                self._kept.clear()
            yield batch

    def can_replay(self) -> bool:
        """Return True if the rows can be read again."""
        return self._whole

    def row_error(self, options: WriteOptions, row: int, reason: str) -> RowError:
        """Return the row that the broker refused, if its batch is still in memory."""
        from headrace.spark.write.rows import Row
        from headrace.spark.write.rows import rows as rows_of

        first = 0
        for batch in self._kept if self._whole else ():
            if first <= row < first + batch.num_rows:
                (refused_row,) = rows_of(options, batch.slice(row - first, 1))
                if isinstance(refused_row, Row):
                    keys = (
                        refused_row.exchange,
                        refused_row.routing_key,
                        refused_row.message.message_id,
                    )
                    return RowError(reason, *keys)
            first += batch.num_rows
        return RowError(reason)
