# SPDX-License-Identifier: Apache-2.0
"""The range of the next micro-batch of a streaming read of a queue.

A queue forgets a consumed message, so a query leases its messages: the broker numbers them, and
keeps them in order until they are settled. The position of a query is the number after its last
message. A batch can be read again and in parallel, like a range of a stream. Messages are settled
when Spark commits their batch.

Spark commits a batch while it plans the next one. If no message is ready and the last batch is not
settled, the planner makes Spark run an empty batch, with the same positions and the next epoch. The
broker's answer shows whether that is necessary; the checkpoint does not.
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

RECORDS_MAX: Final = 100_000  # Messages of a batch, by default.
OCTETS_MAX: Final = 256 << 20
TAKE_RECORDS_MAX: Final = 1 << 20  # The broker's limit of one request.
TAKE_OCTETS_MAX: Final = 1 << 30


class LeaseState(NamedTuple):
    """The state of a lease: numbers `settled` to before `next`, and `ready` messages to take."""

    broker: str
    id: int  # Never reused, not even by a later lease of the same queue and group.
    settled: int
    next: int
    ready: int


class QueueLease(Protocol):
    """The lease of the messages of one queue for one group, until they are settled."""

    def claim(self, owner: str) -> LeaseState:
        """Become the owner; wait for another owner to leave, up to a GroupInUseError."""

    def leave(self, owner: str) -> None:
        """Give up the ownership."""

    def info(self) -> LeaseState | None:
        """Return the state of the lease; None if there was never one."""

    def take(self, owner: str, first: int, records: int, octets: int) -> int:
        """Lease messages, numbered from `first` on; return the number after the last.

        If `first` is leased already, only messages that are leased already are given.
        """

    def settle(self, owner: str, upto: int) -> int:
        """Settle the messages below `upto`; return the first number that is not settled."""


class QueuePlanner:
    """Decides what each micro-batch of one query covers."""

    def __init__(self, options: ReadOptions, lease: QueueLease, clock: Callable[[], float]) -> None:
        """`clock` returns monotonic seconds."""
        self.options = options
        self._lease = lease
        self._clock = clock
        self._owner = ""  # The name under which this process has claimed the lease.
        self._state = LeaseState("", 0, 0, 0, 0)  # The state at the claim, with later settles.
        self._aiming = False
        self._target: int | None = None
        self._waiting_since: float | None = None

    def initial(self) -> Offset:
        """Return the first offset of a query without checkpoint: the leased messages, if any.

        Spark also calls this when it replays the first batch of a query, which has a name already.
        So nothing is claimed under the new name, unless there was never a lease.
        """
        owner = uuid.uuid4().hex
        state = self._lease.info()
        if state is None:
            self._become(owner)
            state = self._state
        start = {self.options.queue: state.settled}
        ids = {self.options.queue: state.id}
        return Offset(start, start, 0, state.broker, ids, owner=owner)

    def aim(self) -> None:
        """Read only the messages that are ready when the first batch is planned."""
        self._aiming = True  # The target needs a lease, which may not exist yet.

    def latest(self) -> Offset | None:
        """Return the number of the next message to arrive; None before the first batch."""
        state = self._lease.info()
        if state is None:
            return None
        return Offset({self.options.queue: state.next + state.ready}, {}, 0, state.broker)

    def following(self, before: Offset, *, unlimited: bool = False) -> Offset | None:
        """Return the end of the batch after `before`; None if no batch is due."""
        at = self._resume(before)
        last = self._take(at, unlimited)
        if last > at:
            self._waiting_since = None
            return replace(before, positions={self.options.queue: last}, origin=before.begun())
        if self._state.settled < at:
            return replace(before, epoch=before.epoch + 1, origin={})
        return None

    def commit(self, end: Offset) -> None:
        """Settle the messages of a batch: its rows are in the sink."""
        at = self._resume(end)
        settled = self._lease.settle(self._owner, at)
        self._state = self._state._replace(settled=settled)

    def _resume(self, before: Offset) -> int:
        """Claim the lease for the owner in the checkpoint; return the query's position."""
        if not before.owner or self.options.queue not in before.positions:
            raise OffsetError(
                f"the checkpoint is not one of a read of queue {self.options.queue!r}; start with "
                "a new one"
            )
        self._become(before.owner)
        queue, state = self.options.queue, self._state
        if before.broker != state.broker:
            raise OffsetError(
                f"the checkpoint was made with broker {before.broker!r} and this is "
                f"{state.broker!r}, which has other messages; start with a new checkpoint"
            )
        if before.ids.get(queue) != state.id:
            raise OffsetError(
                f"the lease of queue {queue!r} for group {self.options.group!r} is not the one of "
                "the checkpoint: the queue was deleted and made again, or the lease was forgotten; "
                "start with a new checkpoint"
            )
        at = before.positions[queue]
        if at < state.settled:
            raise DataLossError(
                f"messages {at} to {state.settled - 1} that group {self.options.group!r} leased of "
                f"queue {queue!r} are settled, and the checkpoint stands before them: it is an old "
                "one, or another query used the group"
            )
        return at

    def _become(self, owner: str) -> None:
        if owner == self._owner:
            return
        if self._owner:
            self._lease.leave(self._owner)
        self._state = self._lease.claim(owner)
        self._owner = owner

    def _take(self, at: int, unlimited: bool) -> int:
        options = self.options
        records = min(options.records_per_trigger_max or RECORDS_MAX, TAKE_RECORDS_MAX)
        octets = min(options.octets_per_trigger_max or OCTETS_MAX, TAKE_OCTETS_MAX)
        if unlimited:
            records, octets = TAKE_RECORDS_MAX, TAKE_OCTETS_MAX
        elif self._aiming:
            records = min(records, self._aim() - at)
        elif self._must_wait(at):
            return at
        if records <= 0:
            return at
        return self._lease.take(self._owner, at, records, octets)

    def _present(self) -> LeaseState:
        return self._lease.info() or self._state

    def _aim(self) -> int:
        if self._target is None:
            state = self._present()
            self._target = state.next + state.ready
        return self._target

    def _must_wait(self, at: int) -> bool:
        """Return True if the batch has too few messages and the trigger delay has not passed."""
        least = self.options.records_per_trigger_min
        if least == 1:
            return False
        state = self._present()
        backlog = state.next - at + state.ready
        if backlog >= least or backlog == 0:
            return backlog == 0
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since < self.options.trigger_delay_s
