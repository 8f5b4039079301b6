# SPDX-License-Identifier: Apache-2.0
"""The range of the next micro-batch of a streaming read of streams.

The planner opens no connection: it calls a `Broker`, which `survey` implements. The range of a
batch is decided once and stored in its end offset. Its partitions follow from its start and its end
alone.
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
from headrace.columns.positions import positions
from headrace.columns.schema.offsets import Offset, OffsetError, first_of, ranges
from headrace.spark.driver.batch_limits import limit_bytes, limit_records

if TYPE_CHECKING:
    from headrace.columns.archive.index import Archive
    from headrace.columns.options.options import ReadOptions
    from headrace.columns.positions import Broker, StreamBounds

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """The committed offsets of a group of readers, for operators to see."""

    def begin(self, start: Mapping[str, int], ids: Mapping[str, int]) -> dict[str, int]:
        """Store the first position of the group in each stream; return its initial positions."""

    def join(self, owner: str, start: Mapping[str, int], ids: Mapping[str, int]) -> dict[str, int]:
        """Claim the group on some streams; return its position in each.

        In a new stream the group begins at `start`. GroupInUseError when it has another owner.
        """

    def commit(
        self, owner: str, positions: Mapping[str, int], ids: Mapping[str, int]
    ) -> dict[str, int]:
        """Commit the positions of finished batches; return the positions of the group."""


class Planner:
    """Decides what each micro-batch of one query covers."""

    def __init__(
        self,
        options: ReadOptions,
        broker: Broker,
        clock: Callable[[], float],
        offset_store: OffsetStore | None = None,
        archive: Archive | None = None,
    ) -> None:
        """`clock` returns monotonic seconds; `offset_store` is None for a query without a group.

        `archive` has the records that retention dropped.
        """
        self.options = options
        self.archive = archive
        self._broker = broker if archive is None else ArchivedBroker(broker, archive)
        self._clock = clock
        self._offset_store = offset_store
        self._owner = ""  # The name under which this process owns the group.
        self._kept: dict[str, int] = {}  # The group's position in each stream.
        self._target: dict[str, StreamBounds] | None = None
        self._waiting_since: float | None = None  # The time when too few records were ready.
        self._begun: Mapping[str, int] | None = None  # The first offsets of the running batch.
        self._counted = False  # Whether the lost records of that batch are counted.

    def initial(self) -> Offset:
        """Return the first offset of a query without checkpoint; with a group, the group's first.

        Nothing is claimed yet: Spark also calls this when it replays the first batch of a query,
        whose checkpoint names the owner.
        """
        places = self._broker.places()
        ids = _ids(places)
        start = positions(self._broker, self.options.starting, places)
        if self._offset_store is None:
            owner = "" if self.options.fail_on_data_loss else uuid.uuid4().hex
            return Offset(start, start, 0, self._broker.identity(), ids, owner=owner)
        remembered = self._offset_store.begin(start, ids) if start else {}
        bound_by_stream = self.options.starting.of(tuple(places))
        for stream, at in bound_by_stream.items():
            if at is Edge.LATEST:
                start[stream] = min(remembered[stream], start[stream])
        owner = uuid.uuid4().hex
        return Offset(start, start, 0, self._broker.identity(), ids, owner=owner)

    def aim(self) -> None:
        """Fix the current end offsets as the target (trigger availableNow)."""
        self._target = self._broker.places()

    def latest(self) -> Offset:
        """Return the ends of the streams."""
        places = self._broker.places()
        ends = {stream: place.next for stream, place in places.items()}
        return Offset(ends, {}, 0, self._broker.identity(), _ids(places))

    def following(self, before: Offset, *, unlimited: bool = False) -> Offset | None:
        """Return the end of the batch after `before`; None if no batch is due.

        DataLossError when retention dropped unread records, OffsetError when the broker or a stream
        is not the one of the checkpoint.
        """
        places = self._broker.places()
        self._check_identity(before, places)
        if self._offset_store is not None:
            before = self._join_group(before, places)
        skipped_before = before.skipped
        if not self.options.fail_on_data_loss:
            before = self._count_skipped(before, places)
        before = replace(before, archived={}, gaps={})  # They belong to the batch before.
        end = self._end(before, places, unlimited=unlimited)
        if end is None and before.skipped != skipped_before:
            return replace(before, epoch=before.epoch + 1, origin=before.begun())
        if end is None and any(
            self._kept.get(stream, at) < at for stream, at in before.positions.items()
        ):
            # The group lacks the commit of the last batch; an empty batch makes Spark commit it.
            return replace(before, epoch=before.epoch + 1, origin=before.begun())
        return end

    def commit(self, end: Offset) -> None:
        """Commit a batch, by its end: its rows are in the sink."""
        if self._offset_store is not None:
            places = self._broker.places()
            joined = self._join_group(end, places)
            done = {stream: at for stream, at in end.positions.items() if stream in places}
            if done:
                self._kept.update(self._offset_store.commit(joined.owner, done, _ids(places)))

    def _join_group(self, before: Offset, places: Mapping[str, StreamBounds]) -> Offset:
        """Claim the group on all streams, under the query's name in the checkpoint."""
        assert self._offset_store is not None
        owner = before.owner or self._owner or uuid.uuid4().hex
        if owner != self._owner:
            self._owner, self._kept = owner, {}
        fresh = {
            stream: before.positions.get(stream, place.first)
            for stream, place in places.items()
            if stream not in self._kept
        }
        if fresh:
            self._kept.update(self._offset_store.join(owner, fresh, _ids(places)))
        return replace(before, owner=owner)

    def _end(
        self, before: Offset, places: Mapping[str, StreamBounds], *, unlimited: bool
    ) -> Offset | None:
        """Return the end of a batch with records; None if there are none, or too few yet."""
        start = self._start(before, places)
        first = first_of(before, start)
        if self._target is None:
            end = {stream: place.next for stream, place in places.items()}
        else:
            end = {
                # Retention may have passed the target since then.
                stream: max(self._target[stream].next, start.origin.get(stream, 0))
                for stream in places
                if stream in self._target
            }
        backlog = sum(map(len, ranges(first, end)))
        if not unlimited and self._must_wait(backlog):
            return None
        if not unlimited:
            end = self._apply_limits(first, end)
        if end == before.positions:
            return None
        if self.archive is not None:
            start, end = self._with_archived(start, end, first, places, self.archive)
        self._waiting_since = None
        self._begun, self._counted = first, False
        origin = {stream: at for stream, at in start.origin.items() if stream in end}
        return replace(start, positions=end, origin=origin, ids=_ids(places))

    def _count_skipped(self, before: Offset, places: Mapping[str, StreamBounds]) -> Offset:
        """Count the lost records that tasks of the last batch reported, unless none can be lost."""
        owner = before.owner or uuid.uuid4().hex
        before = replace(before, owner=owner)
        batch_start, counted = self._begun, self._counted
        self._counted = True
        if counted or (
            batch_start is not None
            and all(
                place.first <= batch_start.get(stream, place.first)
                for stream, place in places.items()
            )
        ):
            return before
        skipped = self._broker.skipped(owner, places)
        return replace(before, skipped={**before.skipped, **skipped})

    def _start(self, before: Offset, places: Mapping[str, StreamBounds]) -> Offset:
        """Return the start of a batch; `origin` has the streams that start at another offset."""
        origin = {stream: at for stream, at in before.begun().items() if stream in places}
        lost = dict(before.lost)
        for stream, place in places.items():
            if stream not in before.positions:
                origin[stream] = self._broker.first_offset(stream)
                continue
            at = before.positions[stream]
            if place.first > at and self.archive is None:
                self._lose(
                    f"stream {stream!r} no longer has the records from offset {at} to "
                    f"{place.first - 1}: they were dropped by its retention before the query "
                    "read them"
                )
                lost[stream] = lost.get(stream, 0) + place.first - at
                origin[stream] = place.first
        gone = sorted(before.positions.keys() - places.keys())
        if gone and not (self.options.streams and self.options.streams.names):
            self._lose(f"stream {gone[0]!r} is gone: it was deleted, or is no longer chosen")
        return replace(before, origin=origin, lost=lost, broker=self._broker.identity())

    def _with_archived(
        self,
        start: Offset,
        end: dict[str, int],
        first: Mapping[str, int],
        places: Mapping[str, StreamBounds],
        archive: Archive,
    ) -> tuple[Offset, dict[str, int]]:
        """Split a batch with the archive; it ends before it would have too many gaps."""
        oldest = {stream: place.first for stream, place in places.items()}
        fail = self.options.fail_on_data_loss
        split = split_ranges(archive, oldest, ranges(first, end), fail=fail)
        end = {
            stream: split.archived[stream] if stream in split.cut_short else at
            for stream, at in end.items()
        }
        lost = dict(start.lost)
        for stream, records in split.lost().items():
            lost[stream] = lost.get(stream, 0) + records
        return replace(start, lost=lost, archived=split.archived, gaps=split.gaps), end

    def _lose(self, what: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLossError(
                f"{what}; set option 'failOnDataLoss' to 'false' to go on without them"
            )
        log.warning("%s; going on without them", what)

    def _check_identity(self, before: Offset, places: Mapping[str, StreamBounds]) -> None:
        identity = self._broker.identity()
        if before.broker is not None and before.broker != identity:
            raise OffsetError(
                f"the checkpoint was made with broker {before.broker or 'of another make'!r} and "
                f"this is {identity or 'one of another make'!r}, whose records have other offsets; "
                "start with a new checkpoint"
            )
        for stream, place in places.items():
            id_before = before.ids.get(stream)
            if id_before is not None and id_before != place.id:
                raise OffsetError(
                    f"stream {stream!r} is not the one that this query was reading: it was deleted "
                    "and made again; start with a new checkpoint"
                )

    def _must_wait(self, backlog: int) -> bool:
        """Return True if the batch has too few records and the trigger delay has not passed."""
        least = self.options.records_per_trigger_min
        if backlog >= least or not backlog or self._target is not None:
            return False
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since < self.options.trigger_delay_s

    def _apply_limits(self, first: Mapping[str, int], end: dict[str, int]) -> dict[str, int]:
        records, octets = self.options.records_per_trigger_max, self.options.octets_per_trigger_max
        if records is not None:
            end = limit_records(first, end, records)
        if octets is not None:
            end = limit_bytes(first, end, octets, self._broker.measure)
        return end


def _ids(places: Mapping[str, StreamBounds]) -> dict[str, int]:
    return {stream: place.id for stream, place in places.items() if place.id}
