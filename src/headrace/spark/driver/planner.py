# SPDX-License-Identifier: Apache-2.0
"""Planning of the micro-batches of a streaming read of streams.

The planner opens no connections. It calls a `Broker`, which `broker_streams` implements. The range
of a batch is decided once and stored in its end offset. The partitions of a batch depend on its
start and its end only, so a repeated batch has the same partitions.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from headrace.columns.archive.split import split_ranges
from headrace.columns.archived_broker import ArchivedBroker
from headrace.columns.errors import DataLossError
from headrace.columns.options.kinds import Edge
from headrace.columns.positions import resolve_bound
from headrace.columns.schema.offsets import Offset, OffsetError, batch_start, ranges_between
from headrace.spark.driver.batch_limits import limit_bytes, limit_records

if TYPE_CHECKING:
    from headrace.columns.archive.index import Archive
    from headrace.columns.options.options import ReadOptions
    from headrace.columns.positions import Broker, StreamExtent

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """The store of a group's positions at the broker, where operators see them.

    All mappings are by stream; `ids` are the ids of the streams.
    """

    def begin(self, start: Mapping[str, int], ids: Mapping[str, int]) -> dict[str, int]:
        """Store the first positions of the group if it has none; return its first positions."""

    def join(self, owner: str, start: Mapping[str, int], ids: Mapping[str, int]) -> dict[str, int]:
        """Claim the group on the streams of `start`; return its position in each.

        In a stream that is new to the group, its position is the one in `start`.

        Raises:
            GroupInUseError: the group has another owner.
        """

    def commit(
        self, owner: str, positions: Mapping[str, int], ids: Mapping[str, int]
    ) -> dict[str, int]:
        """Commit the positions of finished batches; return the positions of the group."""


class StreamPlanner:
    """The planner of the micro-batches of one query on streams."""

    def __init__(
        self,
        options: ReadOptions,
        broker: Broker,
        clock: Callable[[], float],
        offset_store: OffsetStore | None = None,
        archive: Archive | None = None,
    ) -> None:
        """Make the planner of a query.

        `clock` returns monotonic seconds. `offset_store` is None for a query without a group.
        `archive` has the records that retention dropped.
        """
        self.options = options
        self.archive = archive
        self._broker = broker if archive is None else ArchivedBroker(broker, archive)
        self._clock = clock
        self._offset_store = offset_store
        self._owner = ""  # The name under which this process owns the group.
        self._group_positions: dict[str, int] = {}  # The group's position in each stream.
        self._target: dict[str, StreamExtent] | None = None
        self._waiting_since: float | None = None  # The time when too few records were ready.
        # The first offset of each stream in the running batch.
        self._batch_start: Mapping[str, int] | None = None
        self._skips_counted = False  # True if the lost records of the batch are counted.

    def initial_offset(self) -> Offset:
        """Return the first offset of a query without checkpoint.

        With a group, "latest" means the end of the stream when the group first began. The group is
        not claimed yet, because Spark also calls this when it replays the first batch of a query,
        whose checkpoint names the owner.
        """
        extents = self._broker.extents()
        ids = _stream_ids(extents)
        start = resolve_bound(self._broker, self.options.starting, extents)
        if self._offset_store is None:
            owner = "" if self.options.fail_on_data_loss else uuid.uuid4().hex
            return Offset(start, start, 0, self._broker.identity(), ids, owner=owner)
        group_starts = self._offset_store.begin(start, ids) if start else {}
        position_by_stream = self.options.starting.for_streams(tuple(extents))
        for stream, position in position_by_stream.items():
            if position is Edge.LATEST:
                start[stream] = min(group_starts[stream], start[stream])
        owner = uuid.uuid4().hex
        return Offset(start, start, 0, self._broker.identity(), ids, owner=owner)

    def fix_target(self) -> None:
        """Fix the current end offsets as the target (trigger availableNow)."""
        self._target = self._broker.extents()

    def latest_offset(self) -> Offset:
        """Return the current end of every stream."""
        extents = self._broker.extents()
        ends = {stream: extent.next for stream, extent in extents.items()}
        return Offset(ends, {}, 0, self._broker.identity(), _stream_ids(extents))

    def plan_batch(self, previous: Offset, *, unlimited: bool = False) -> Offset | None:
        """Return the end of the batch after `previous`; None if no batch is due.

        Raises:
            DataLossError: retention dropped unread records.
            OffsetError: the broker or a stream is not the one of the checkpoint.
        """
        extents = self._broker.extents()
        self._check_identity(previous, extents)
        if self._offset_store is not None:
            previous = self._join_group(previous, extents)
        previous_skipped = previous.skipped
        if not self.options.fail_on_data_loss:
            previous = self._count_skipped(previous, extents)
        previous = replace(previous, archived={}, gaps={})  # Both describe the previous batch.
        end = self._plan_end(previous, extents, unlimited=unlimited)
        if end is None and previous.skipped != previous_skipped:
            return replace(previous, epoch=previous.epoch + 1, origin=previous.unread_starts())
        if end is None and any(
            self._group_positions.get(stream, position) < position
            for stream, position in previous.positions.items()
        ):
            # The group lacks the commit of the last batch; an empty batch makes Spark commit it.
            return replace(previous, epoch=previous.epoch + 1, origin=previous.unread_starts())
        return end

    def commit(self, end: Offset) -> None:
        """Commit the batch that ends at `end` to the group: its rows are in the sink."""
        if self._offset_store is not None:
            extents = self._broker.extents()
            joined = self._join_group(end, extents)
            finished_positions = {
                stream: position for stream, position in end.positions.items() if stream in extents
            }
            if finished_positions:
                self._group_positions.update(
                    self._offset_store.commit(
                        joined.owner, finished_positions, _stream_ids(extents)
                    )
                )

    def _join_group(self, previous: Offset, extents: Mapping[str, StreamExtent]) -> Offset:
        """Claim the group on all streams, under the query's name in the checkpoint."""
        assert self._offset_store is not None
        owner = previous.owner or self._owner or uuid.uuid4().hex
        if owner != self._owner:
            self._owner, self._group_positions = owner, {}
        new_positions = {
            stream: previous.positions.get(stream, extent.first)
            for stream, extent in extents.items()
            if stream not in self._group_positions
        }
        if new_positions:
            self._group_positions.update(
                self._offset_store.join(owner, new_positions, _stream_ids(extents))
            )
        return replace(previous, owner=owner)

    def _plan_end(
        self, previous: Offset, extents: Mapping[str, StreamExtent], *, unlimited: bool
    ) -> Offset | None:
        """Return the end of a batch with records; None if no record is new, or too few are."""
        start = self._find_start(previous, extents)
        first = batch_start(previous, start)
        if self._target is None:
            end = {stream: extent.next for stream, extent in extents.items()}
        else:
            end = {
                # Retention may have passed the target since it was fixed.
                stream: max(self._target[stream].next, start.origin.get(stream, 0))
                for stream in extents
                if stream in self._target
            }
        backlog = sum(map(len, ranges_between(first, end)))
        if not unlimited and self._must_wait(backlog):
            return None
        if not unlimited:
            end = self._apply_limits(first, end)
        if end == previous.positions:
            return None
        if self.archive is not None:
            start, end = self._split_with_archive(start, end, first, extents, self.archive)
        self._waiting_since = None
        self._batch_start, self._skips_counted = first, False
        origin = {stream: position for stream, position in start.origin.items() if stream in end}
        return replace(start, positions=end, origin=origin, ids=_stream_ids(extents))

    def _count_skipped(self, previous: Offset, extents: Mapping[str, StreamExtent]) -> Offset:
        """Return `previous` with the lost records that tasks of the last batch reported.

        If retention has not passed the start of that batch, no record is lost and no request sent.
        """
        owner = previous.owner or uuid.uuid4().hex
        previous = replace(previous, owner=owner)
        last_start, is_counted = self._batch_start, self._skips_counted
        self._skips_counted = True
        if is_counted or (
            last_start is not None
            and all(
                extent.first <= last_start.get(stream, extent.first)
                for stream, extent in extents.items()
            )
        ):
            return previous
        skipped = self._broker.skipped(owner, extents)
        return replace(previous, skipped={**previous.skipped, **skipped})

    def _find_start(self, previous: Offset, extents: Mapping[str, StreamExtent]) -> Offset:
        """Return the start of a batch.

        Its `origin` has the streams that do not start at their position in `previous`: new streams,
        and streams whose next records retention dropped.

        Raises:
            DataLossError: retention dropped unread records, or a stream is gone.
        """
        origin = {
            stream: position
            for stream, position in previous.unread_starts().items()
            if stream in extents
        }
        lost = dict(previous.lost)
        for stream, extent in extents.items():
            if stream not in previous.positions:
                origin[stream] = self._broker.first_offset(stream)
                continue
            position = previous.positions[stream]
            if extent.first > position and self.archive is None:
                self._report_loss(
                    f"stream {stream!r} no longer has the records from offset {position} to "
                    f"{extent.first - 1}: they were dropped by its retention before the query "
                    "read them"
                )
                lost[stream] = lost.get(stream, 0) + extent.first - position
                origin[stream] = extent.first
        missing_streams = sorted(previous.positions.keys() - extents.keys())
        if missing_streams and not (self.options.streams and self.options.streams.names):
            self._report_loss(
                f"stream {missing_streams[0]!r} is gone: it was deleted, or is no longer chosen"
            )
        return replace(previous, origin=origin, lost=lost, broker=self._broker.identity())

    def _split_with_archive(
        self,
        start: Offset,
        end: dict[str, int],
        first: Mapping[str, int],
        extents: Mapping[str, StreamExtent],
        archive: Archive,
    ) -> tuple[Offset, dict[str, int]]:
        """Split a batch between archive and broker; return the start with the split, and the end.

        If a stream has too many gaps, the batch ends early in it.
        """
        oldest = {stream: extent.first for stream, extent in extents.items()}
        fail = self.options.fail_on_data_loss
        archive_split = split_ranges(archive, oldest, ranges_between(first, end), fail=fail)
        end = {
            stream: archive_split.archived[stream]
            if stream in archive_split.cut_short
            else position
            for stream, position in end.items()
        }
        lost = dict(start.lost)
        for stream, records in archive_split.lost_counts().items():
            lost[stream] = lost.get(stream, 0) + records
        return replace(
            start, lost=lost, archived=archive_split.archived, gaps=archive_split.gaps
        ), end

    def _report_loss(self, loss: str) -> None:
        """Raise DataLossError, or log a warning if the options allow lost records."""
        if self.options.fail_on_data_loss:
            raise DataLossError(
                f"{loss}; set option 'failOnDataLoss' to 'false' to go on without them"
            )
        log.warning("%s; going on without them", loss)

    def _check_identity(self, previous: Offset, extents: Mapping[str, StreamExtent]) -> None:
        """Raise OffsetError if the broker or a stream differs from the checkpoint's."""
        identity = self._broker.identity()
        if previous.broker is not None and previous.broker != identity:
            raise OffsetError(
                f"the checkpoint was made with broker {previous.broker or 'of another make'!r} and "
                f"this is {identity or 'one of another make'!r}, whose records have other offsets; "
                "start with a new checkpoint"
            )
        for stream, extent in extents.items():
            previous_id = previous.ids.get(stream)
            if previous_id is not None and previous_id != extent.id:
                raise OffsetError(
                    f"stream {stream!r} is not the one that this query was reading: it was deleted "
                    "and created again; start with a new checkpoint"
                )

    def _must_wait(self, backlog: int) -> bool:
        """Return True if the batch has too few records and the trigger delay has not passed."""
        records_min = self.options.records_per_trigger_min
        if backlog >= records_min or not backlog or self._target is not None:
            return False
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since < self.options.trigger_delay_s

    def _apply_limits(self, first: Mapping[str, int], end: dict[str, int]) -> dict[str, int]:
        """Return the end of a batch within the limits of the options."""
        records_max, bytes_max = (
            self.options.records_per_trigger_max,
            self.options.bytes_per_trigger_max,
        )
        if records_max is not None:
            end = limit_records(first, end, records_max)
        if bytes_max is not None:
            end = limit_bytes(first, end, bytes_max, self._broker.measure)
        return end


def _stream_ids(extents: Mapping[str, StreamExtent]) -> dict[str, int]:
    return {stream: extent.id for stream, extent in extents.items() if extent.id}
