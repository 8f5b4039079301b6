# SPDX-License-Identifier: Apache-2.0
"""The range of the next micro-batch of a streaming read of a queue.

A queue forgets what is taken from it, so a query takes its messages by leases: under numbers that
the broker keeps until they are settled, in order and for as long as it takes. The position of a
query is the number behind the last that it was given; what a batch covers can be read again and in
parallel, as a range of a stream. Messages are settled when Spark commits their batch, no sooner.

Spark commits a batch while it plans the one after it. So when nothing new is there and the last
batch is not settled, the planner makes Spark run a batch without messages: it has the same
positions and the next epoch. The broker reports whether that is needed; it is not stored.
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

RECORDS_MAX: Final = 100_000  # Of a batch, by default.
OCTETS_MAX: Final = 256 << 20
TAKE_RECORDS_MAX: Final = 1 << 20  # What a broker gives at once at most.
TAKE_OCTETS_MAX: Final = 1 << 30


class LeaseState(NamedTuple):
    """The state of a lease: numbers `settled` to before `next`, and `ready` messages to take."""

    broker: str
    id: int  # Of this lease; another one, even of the same queue and group, has another.
    settled: int
    next: int
    ready: int


class QueueLease(Protocol):
    """Lender of the messages of one queue to one group, until they are settled."""

    def claim(self, owner: str) -> LeaseState:
        """Become the owner; waits a while for another to give up, and raises GroupInUseError."""

    def leave(self, owner: str) -> None:
        """Give the ownership up."""

    def info(self) -> LeaseState | None:
        """Return the state of the lease; None if there was never one."""

    def take(self, owner: str, first: int, records: int, octets: int) -> int:
        """Give the numbers from `first` on; return the one behind the last.

        Those that were given before are given again, and none beyond them.
        """

    def settle(self, owner: str, upto: int) -> int:
        """Be done with all numbers below `upto`; return below which all are settled."""


class QueuePlanner:
    """Decides what each micro-batch of one query covers."""

    def __init__(self, options: ReadOptions, lease: QueueLease, clock: Callable[[], float]) -> None:
        """`clock` tells seconds and never goes back."""
        self.options = options
        self._lease = lease
        self._clock = clock
        self._owner = ""  # As which this process has claimed the lease.
        self._state = LeaseState("", 0, 0, 0, 0)  # As it was then; `settled` is kept up to date.
        self._aiming = False
        self._target: int | None = None
        self._waiting_since: float | None = None

    def initial(self) -> Offset:
        """Return the first offset of a query without checkpoint: the leased messages, if any.

        Spark asks for it also when it replays the first batch of a query, which has a name already.
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
        """Read no more than is ready when the first batch is planned."""
        self._aiming = True  # There may be no lease yet.

    def latest(self) -> Offset | None:
        """The number that the message after the newest would get; None before the first batch."""
        state = self._lease.info()
        if state is None:
            return None
        return Offset({self.options.queue: state.next + state.ready}, {}, 0, state.broker)

    def following(self, before: Offset, *, unlimited: bool = False) -> Offset | None:
        """The end of the batch after `before`; None when there is nothing to do."""
        at = self._resume(before)
        last = self._take(at, unlimited)
        if last > at:
            self._waiting_since = None
            return replace(before, positions={self.options.queue: last}, origin=before.begun())
        if self._state.settled < at:
            return replace(before, epoch=before.epoch + 1, origin={})
        return None

    def commit(self, end: Offset) -> None:
        """Settle what a batch covered: it is in the sink."""
        at = self._resume(end)
        settled = self._lease.settle(self._owner, at)
        self._state = self._state._replace(settled=settled)

    def _resume(self, before: Offset) -> int:
        """Be the owner that the checkpoint names; return where the query stands."""
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
        """Return True if there are too few messages and the delay is not over."""
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
