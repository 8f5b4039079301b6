# SPDX-License-Identifier: Apache-2.0
"""Planning of the micro-batches of a streaming read of a queue.

A queue deletes a consumed message, so a query leases the messages instead. The broker numbers them
and keeps them in order until they are settled. The position of a query is the number after its last
message. A batch can be read again and in parallel, like a range of a stream. Spark's commit of a
batch settles its messages.

Spark commits a batch while it plans the next one. If no message is ready and the last batch is not
settled, the planner makes Spark run an empty batch, with the same positions and the next epoch. The
broker's answer shows whether the last batch is settled.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headrace.columns.errors import DataLossError
from headrace.columns.schema.offsets import Offset, OffsetError

if TYPE_CHECKING:
    from headrace.columns.options.options import ReadOptions

# The limits of a batch without options.
RECORDS_MAX: Final = 100_000
BYTES_MAX: Final = 256 << 20
# The broker's limits for one request.
TAKE_RECORDS_MAX: Final = 1 << 20
TAKE_BYTES_MAX: Final = 1 << 30


class QueueLeaseState(NamedTuple):
    """The state of a lease, which has the messages with the numbers [settled, next).

    `ready` is the number of ready messages in the queue, which are not leased yet.
    """

    broker: str  # The identity of the broker.
    id: int  # Never reused, not even by a later lease of the same queue and group.
    settled: int
    next: int
    ready: int


class QueueLease(Protocol):
    """The lease of the messages of one queue for one group, until they are settled."""

    def claim(self, owner: str) -> QueueLeaseState:
        """Make `owner` the owner of the lease; wait while the lease has another owner.

        Raises:
            GroupInUseError: the other owner is still there after `group_timeout_s`.
        """

    def release(self, owner: str) -> None:
        """Give up the ownership of the lease."""

    def state(self) -> QueueLeaseState | None:
        """Return the state of the lease; None if it was never created."""

    def take(self, owner: str, first: int, records_max: int, bytes_max: int) -> int:
        """Lease messages, numbered from `first` on; return the number after the last.

        If message `first` is leased already, the call leases no further messages.
        """

    def settle(self, owner: str, upto: int) -> int:
        """Settle the messages below `upto`; return the first number that is not settled."""


class QueuePlanner:
    """The planner of the micro-batches of one query on a queue."""

    def __init__(self, options: ReadOptions, lease: QueueLease, clock: Callable[[], float]) -> None:
        """Make the planner of a query; `clock` returns monotonic seconds."""
        self.options = options
        self._lease = lease
        self._clock = clock
        self._owner = ""  # The name under which this process has claimed the lease.
        self._state = QueueLeaseState("", 0, 0, 0, 0)  # The state at the claim, updated by settles.
        self._has_target = False  # True after `fix_target`.
        self._target: int | None = None
        self._waiting_since: float | None = None

    def initial_offset(self) -> Offset:
        """Return the first offset of a query without checkpoint: the first message of the lease.

        Spark also calls this when it replays the first batch of a query, whose checkpoint names
        another owner. So the new owner claims the lease only if it does not exist yet.
        """
        owner = uuid.uuid4().hex
        state = self._lease.state()
        if state is None:
            self._claim(owner)
            state = self._state
        start = {self.options.queue: state.settled}
        ids = {self.options.queue: state.id}
        return Offset(start, start, 0, state.broker, ids, owner=owner)

    def fix_target(self) -> None:
        """Limit the query to the messages that are ready when the first batch is planned."""
        self._has_target = True  # The target needs a lease, which may not exist yet.

    def latest_offset(self) -> Offset | None:
        """Return the number that the next arriving message will get; None without a lease."""
        state = self._lease.state()
        if state is None:
            return None
        return Offset({self.options.queue: state.next + state.ready}, {}, 0, state.broker)

    def plan_batch(self, previous: Offset, *, unlimited: bool = False) -> Offset | None:
        """Return the end of the batch after `previous`; None if no batch is due."""
        position = self._resume(previous)
        end = self._take(position, unlimited)
        if end > position:
            self._waiting_since = None
            return replace(
                previous, positions={self.options.queue: end}, origin=previous.unread_starts()
            )
        if self._state.settled < position:
            return replace(previous, epoch=previous.epoch + 1, origin={})
        return None

    def commit(self, end: Offset) -> None:
        """Settle the messages of the batch that ends at `end`: its rows are in the sink."""
        position = self._resume(end)
        settled = self._lease.settle(self._owner, position)
        self._state = self._state._replace(settled=settled)

    def _resume(self, previous: Offset) -> int:
        """Claim the lease for the owner in the checkpoint; return the query's position.

        Raises:
            OffsetError: the checkpoint belongs to another read, broker or lease.
            DataLossError: messages after the position are settled.
        """
        if not previous.owner or self.options.queue not in previous.positions:
            raise OffsetError(
                f"the checkpoint is not one of a read of queue {self.options.queue!r}; start with "
                "a new one"
            )
        self._claim(previous.owner)
        queue, state = self.options.queue, self._state
        if previous.broker != state.broker:
            raise OffsetError(
                f"the checkpoint was made with broker {previous.broker!r} and this is "
                f"{state.broker!r}, which has other messages; start with a new checkpoint"
            )
        if previous.ids.get(queue) != state.id:
            raise OffsetError(
                f"the lease of queue {queue!r} for group {self.options.group!r} is not the one of "
                "the checkpoint: the queue was deleted and created again, or the lease was "
                "forgotten; start with a new checkpoint"
            )
        position = previous.positions[queue]
        if position < state.settled:
            raise DataLossError(
                f"messages {position} to {state.settled - 1} that group {self.options.group!r} "
                "leased of "
                f"queue {queue!r} are settled, and the checkpoint is before them: the "
                "checkpoint is old, or another query used the group"
            )
        return position

    def _claim(self, owner: str) -> None:
        """Claim the lease for `owner`, unless this process has claimed it already."""
        if owner == self._owner:
            return
        if self._owner:
            self._lease.release(self._owner)
        self._state = self._lease.claim(owner)
        self._owner = owner

    def _take(self, position: int, unlimited: bool) -> int:
        """Lease the messages of the next batch; return the number after the last."""
        options = self.options
        records_max = min(options.records_per_trigger_max or RECORDS_MAX, TAKE_RECORDS_MAX)
        bytes_max = min(options.bytes_per_trigger_max or BYTES_MAX, TAKE_BYTES_MAX)
        if unlimited:
            records_max, bytes_max = TAKE_RECORDS_MAX, TAKE_BYTES_MAX
        elif self._has_target:
            records_max = min(records_max, self._target_number() - position)
        elif self._must_wait(position):
            return position
        if records_max <= 0:
            return position
        return self._lease.take(self._owner, position, records_max, bytes_max)

    def _current_state(self) -> QueueLeaseState:
        return self._lease.state() or self._state

    def _target_number(self) -> int:
        if self._target is None:
            state = self._current_state()
            self._target = state.next + state.ready
        return self._target

    def _must_wait(self, position: int) -> bool:
        """Return True if the batch has too few messages and the trigger delay has not passed."""
        records_min = self.options.records_per_trigger_min
        if records_min == 1:
            return False
        state = self._current_state()
        backlog = state.next - position + state.ready
        if backlog >= records_min or backlog == 0:
            return backlog == 0
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since < self.options.trigger_delay_s
