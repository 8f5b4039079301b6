# SPDX-License-Identifier: Apache-2.0
"""The leases of a virtual host, and their operations in slices.

A lease belongs to a queue and a group. Its hidden stream is made by the group's first claim, and
deleted with the queue or by a release with ``forget``. The fact ``lease/<queue id>/<group>`` has
the settled number and the owner's terms.

Owner. One owner at a time may take and settle (:mod:`headrace.model.lease.ownership`). Reading
needs no ownership.

Operations. Taking, settling and releasing are generators: each slice is one transaction of the
store, and the event loop does other work between slices. After each slice the lease is consistent:
repeating an interrupted operation does its remaining slices. Operations on one lease run one after
another.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from headrace.model.errors import (
    IllegalState,
    InvalidArgument,
    NotFound,
    PreconditionFailed,
    ResourceError,
)
from headrace.model.lease.lease import Lease
from headrace.model.lease.log import TAIL
from headrace.model.lease.ownership import (
    KEEP,
    RELEASE,
    TIMEOUT_S,
    LeaseOwnership,
    LeaseOwnerships,
    check_terms,
)
from headrace.model.lease.rejects import Rejects

if TYPE_CHECKING:
    from headrace.model.host import LeaseHost
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

PREFIX = "amq.headrace.lease."  # Prefix of hidden streams' names.
GROUP_BYTES_MAX = 128
NAME_BYTES_MAX = 255
LEASES_MAX = 10_000  # Leases of one virtual host.
MESSAGES_MAX = 1 << 20  # Messages of one take.
BYTES_MAX = 1 << 30  # Bytes of one take.
REJECTS_MAX = 1 << 17  # Rejected numbers of one settle.
SLICE_MESSAGES = 1000
SLICE_SIZE = 1 << 20
SLICE_REJECTS = 200
UNSYNCED_MAX = 32 << 20  # Bytes that a take may be ahead of the disk.
ARGUMENT = "x-lease-of"  # The argument of a hidden stream with the queue's id.
ARGUMENT_GROUP = "x-lease-group"  # The argument of a hidden stream with the group.

Steps = Generator[None, None, None]


class TakeResult(NamedTuple):
    """The result of a take: the numbers ``[first, last)`` and their size."""

    first: int
    last: int
    size: int


class SettleResult(NamedTuple):
    """The positions of a lease after a settle."""

    settled: int  # The lowest number that is not settled.
    next: int  # The number that the next leased message gets.
    rejected: int  # Messages dead-lettered by this call.


class Leases:
    """The leases of one virtual host."""

    def __init__(self, vhost: LeaseHost) -> None:
        self.vhost = vhost
        self.ownerships = LeaseOwnerships(vhost.counters, vhost.scheduler, self._on_owner_timeout)
        self.rejects = Rejects(vhost.facts)
        self._leases: dict[tuple[int, str], Lease] = {}  # By queue id and group.
        self._by_queue: dict[int, dict[str, Lease]] = {}  # By queue id.
        self._busy: set[Lease] = set()
        self._jobs = 0

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    # --- Finding --------------------------------------------------------------------------------

    def find(self, queue: Queue, group: str) -> Lease:
        """Return the lease of a group.

        Raises:
            NotFound: the group has no lease of the queue.
        """
        lease = self._leases.get((queue.id, group))
        if lease is None or lease.deleted:
            raise NotFound(f"group '{group}' has no lease of queue '{queue.name}'")
        return lease

    def find_all(self, queue: Queue) -> list[Lease]:
        """Return the leases of a queue."""
        return list(self._by_queue.get(queue.id, {}).values())

    def is_in_use(self, queue: Queue) -> bool:
        """Return True if a lease of a queue has messages or a live owner."""
        return any(
            lease.count() or self.ownerships.live_owner(lease) for lease in self.find_all(queue)
        )

    # --- Owners ---------------------------------------------------------------------------------

    def claim(
        self,
        queue: Queue,
        group: str,
        owner: str,
        connection: int,
        *,
        timeout_s: int = TIMEOUT_S,
        on_timeout: str = KEEP,
        force: bool = False,
    ) -> Lease:
        """Make ``owner`` the owner of a lease, and make the lease if it does not exist.

        Raises:
            IllegalState: another owner is alive, and ``force`` is not set.
            InvalidArgument, PreconditionFailed: the queue or group cannot have a lease.
            ResourceError: there are too many leases.
        """
        check_terms(timeout_s, on_timeout)
        lease = self._leases.get((queue.id, group))
        if lease is None:
            lease = self._make(queue, group)
        self.ownerships.own_lease(lease, owner, connection, force)
        ownership = self.ownerships[lease]
        ownership.timeout_s = timeout_s
        ownership.on_timeout = on_timeout
        self._store_fact(lease)
        self.ownerships.watch(lease)
        return lease

    def wait_idle(self, lease: Lease) -> Steps:
        """Wait for the end of an operation on a lease, before its owner changes."""
        while lease in self._busy:
            yield

    def own_lease(self, lease: Lease, owner: str, connection: int) -> None:
        """Check that ``owner`` owns a lease; without a live owner it becomes the owner.

        Raises:
            IllegalState: another owner is alive.
        """
        if self.ownerships.own_lease(lease, owner, connection, False):
            self._store_fact(lease)
        self.ownerships.watch(lease)

    def remove_owner(self, lease: Lease, owner: str) -> None:
        """Remove the owner of a lease; its messages stay leased for the next owner."""
        if self.ownerships[lease].remove_owner(owner):
            self._store_fact(lease)

    def _on_owner_timeout(self, lease: Lease) -> None:
        """Store that the owner has timed out; release the messages if the terms require it."""
        self._store_fact(lease)
        if self.ownerships[lease].on_timeout == RELEASE and lease.count():
            self._run(self.release(lease))

    # --- Operations -----------------------------------------------------------------------------

    def take(
        self,
        lease: Lease,
        first: int | None = None,
        messages: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> Generator[None, None, TakeResult]:
        """Take messages under the numbers from ``first`` on, at least one if one is ready.

        ``first`` is the caller's next number. If an earlier call, whose answer was lost, has taken
        messages from ``first`` on, return these within the same limits, and take no more.

        Raises:
            PreconditionFailed: ``first`` is settled or beyond ``next``.
            ResourceError: the disk is full.
            IllegalState: the queue has an exclusive consumer.
        """
        yield from self._begin(lease)
        try:
            start = lease.log.next_offset if first is None else first
            if not lease.settled <= start <= lease.log.next_offset:
                raise PreconditionFailed(
                    f"{start} is not within the lease, {lease.settled} to {lease.log.next_offset}"
                )
            if start < lease.log.next_offset:
                return (yield from self._repeat_take(lease, start, messages, bytes_max))
            return (yield from self._take(lease, messages, bytes_max))
        finally:
            self._busy.discard(lease)

    def settle(
        self, lease: Lease, upto: int, rejects: Iterable[int] = ()
    ) -> Generator[None, None, SettleResult]:
        """Settle every number below ``upto``, dead-lettering ``rejects``.

        Numbers rejected in advance (:mod:`headrace.model.lease.rejects`) are dead-lettered, too.
        The call skips settled numbers, so that a repeated call changes nothing.

        Raises:
            PreconditionFailed: ``upto`` is not taken yet, or a reject is not below it.
        """
        yield from self._begin(lease)
        try:
            numbers = sorted({number for number in rejects if number >= lease.settled})
            if upto > lease.log.next_offset:
                raise PreconditionFailed(
                    f"{upto} is beyond the lease, which ends with {lease.log.next_offset}"
                )
            if numbers and numbers[-1] >= upto:
                raise PreconditionFailed(f"{numbers[-1]} is rejected, but not below {upto}")
            rejected = 0
            for numbers_in_order in self.rejects.merge_in_order(lease, upto, numbers):
                index = 0
                while index < len(numbers_in_order):
                    yield from self._wait_durable(lease, numbers_in_order[index])
                    chunk = numbers_in_order[index : index + SLICE_REJECTS]
                    with self._transaction():
                        count = lease.reject_some(chunk, "rejected")
                        index += count
                        self._move(lease, chunk[count - 1] + 1)
                    self._remove_settled(lease)
                    yield
                    self._check(lease)
                rejected += index
            if upto > lease.settled:
                self._move(lease, upto)
                self._remove_settled(lease)
            return SettleResult(lease.settled, lease.log.next_offset, rejected)
        finally:
            self._busy.discard(lease)

    def release(self, lease: Lease, *, forget: bool = False) -> Generator[None, None, int]:
        """Return all unsettled messages to the queue; return their number.

        They return to their positions, marked redelivered. With ``forget`` the lease is deleted.
        """
        yield from self._begin(lease)
        try:
            count = 0
            upto = lease.log.next_offset
            while lease.settled < upto:
                yield from self._wait_durable(lease, lease.settled)
                with self._transaction():
                    returned = lease.return_some(upto)
                    if not returned:
                        log.error(
                            "%r: leased messages cannot be read: %d to %d",
                            *(lease, lease.settled, upto),
                        )
                        lease.raise_settled(upto)
                    self._store_fact(lease)
                count += returned
                self._remove_settled(lease)
                lease.source.drain()
                yield
            if forget and not lease.deleted:
                self._remove(lease)
            return count
        finally:
            self._busy.discard(lease)

    # --- Life of queues and of the broker ---------------------------------------------------------

    def adopt(self, lease: Lease) -> None:
        """Register the hidden stream of a lease that was loaded with the definitions."""
        queue_id, group = _read_source(lease)
        self._leases[queue_id, group] = lease
        self._by_queue.setdefault(queue_id, {})[group] = lease
        self.ownerships[lease] = LeaseOwnership()

    def restore(self) -> None:
        """Restore the leases from their facts; call before any client."""
        queues = {queue.id: queue for queue in self.vhost.queues.values() if queue.durable}
        for (queue_id, group), lease in list(self._leases.items()):
            source = queues.get(queue_id)
            if source is None:
                log.warning("%r is dropped: its queue does not exist", lease)
                self._remove(lease)
                continue
            lease.set_source(source, group)
            raw = self.vhost.facts.get(_key(lease))
            fields = {} if raw is None else json.loads(raw)
            lease.raise_settled(min(fields.pop("settled", 0), lease.log.next_offset))
            self._remove_settled(lease)
            self.ownerships.restore(lease, fields)

    def on_queue_deletion(self, queue: Queue) -> None:
        """Pass the leased messages of a deleted queue to its alternate exchange."""
        for lease in self.find_all(queue):
            if queue.alternate_exchange is not None and lease.count():
                self._forget(lease)
                self._run(self._orphan(lease))
            else:
                self._remove(lease)

    # --- Inside: taking ---------------------------------------------------------------------------

    def _take(
        self, lease: Lease, messages: int, bytes_max: int
    ) -> Generator[None, None, TakeResult]:
        store, source = self.vhost.store, lease.source
        first = lease.log.next_offset
        if store.full:
            raise ResourceError("the disk is full; nothing was leased")
        if source.exclusive_consumer is not None:
            raise IllegalState(f"queue '{source.name}' is in exclusive use")
        if source.single_active and (source.consumers or self._has_other_leases(lease)):
            raise IllegalState(f"queue '{source.name}' has a single active consumer")
        size_taken = 0
        while lease.log.next_offset - first < messages and size_taken < bytes_max:
            if source.deleted or not source.ready_count or store.full:
                break
            with self._transaction():
                count, size, full = lease.lease_some(
                    min(SLICE_MESSAGES, messages - (lease.log.next_offset - first)),
                    bytes_max - size_taken,
                    lease.log.next_offset == first,
                )
            size_taken += size
            source.release_waiters()
            if full:
                break
            if not count:
                if source.ready_count:
                    yield  # The messages expired or could not be converted. Take the next ones.
                    continue
                break
            if size_taken < bytes_max and lease.log.next_offset - first < messages:
                yield
                while store.appended - store.synced > UNSYNCED_MAX and not store.full:
                    yield
        return TakeResult(first, lease.log.next_offset, size_taken)

    def _repeat_take(
        self, lease: Lease, first: int, messages: int, bytes_max: int
    ) -> Generator[None, None, TakeResult]:
        """Return the result of an earlier take whose answer was lost, within new limits."""
        last = min(lease.log.next_offset, first + messages)
        next_offset, size = first, 0
        while next_offset < last:
            yield from self._wait_durable(lease, next_offset)
            entries = lease.raw_log.read_raw(next_offset, SLICE_SIZE)
            if not entries:
                return TakeResult(first, last, size)
            for offset, raw, *_ in entries:
                if offset >= last:
                    break
                if size + len(raw) - TAIL > bytes_max and offset > first:
                    return TakeResult(first, offset, size)
                size += len(raw) - TAIL
                next_offset = offset + 1
            yield
        return TakeResult(first, last, size)

    def _has_other_leases(self, lease: Lease) -> bool:
        """Return True if another group has leased messages of the same queue."""
        return any(other.count() for other in self.find_all(lease.source) if other is not lease)

    # --- Inside: making and removing --------------------------------------------------------------

    def _make(self, queue: Queue, group: str) -> Lease:
        vhost = self.vhost
        subject = f"queue '{queue.name}' in vhost '{vhost.name}'"
        if not group.isprintable() or not 0 < len(group.encode()) <= GROUP_BYTES_MAX:
            raise PreconditionFailed(f"a group must have 1 to {GROUP_BYTES_MAX} printable bytes")
        if queue.is_stream:
            raise InvalidArgument(f"{subject} is a stream, which any group reads without a lease")
        if queue.browse_only:
            raise InvalidArgument(
                f"{subject} is for browsing only: its messages cannot be consumed"
            )
        if not queue.durable or queue.is_hidden:
            raise InvalidArgument(f"{subject} is not durable, as a lease is")
        if len(self._leases) >= LEASES_MAX:
            raise ResourceError(f"a virtual host may have at most {LEASES_MAX} leases")
        name = f"{PREFIX}{queue.name}.{group}"
        if len(name.encode()) > NAME_BYTES_MAX or name in vhost.queues:
            name = f"{PREFIX}{queue.id}#.{group}"
        arguments = {"x-queue-type": "stream", ARGUMENT: queue.id, ARGUMENT_GROUP: group}
        lease = vhost.make_hidden_stream(name, arguments)
        assert isinstance(lease, Lease)
        self.adopt(lease)
        lease.set_source(queue, group)
        return lease

    def _remove(self, lease: Lease) -> None:
        """Delete a lease."""
        self._forget(lease)
        if not lease.deleted:
            self.vhost.remove_hidden_stream(lease)

    def _forget(self, lease: Lease) -> None:
        """Remove a lease from the registry."""
        queue_id, group = _read_source(lease)
        self.vhost.facts.put(_key(lease), None)
        self.rejects.delete_all(lease)
        self._leases.pop((queue_id, group), None)
        leases = self._by_queue.get(queue_id, {})
        leases.pop(group, None)
        if not leases:
            self._by_queue.pop(queue_id, None)
        self.ownerships.remove(lease)

    def _orphan(self, lease: Lease) -> Steps:
        """Reroute the messages leased from a deleted queue to its alternate exchange."""
        try:
            yield from self._begin(lease)
            while lease.count():
                yield from self._wait_durable(lease, lease.settled)
                end = min(lease.settled + SLICE_REJECTS, lease.log.committed_offset)
                numbers = list(range(lease.settled, end))
                with self._transaction():
                    count = lease.reject_some(numbers, "orphaned")
                    lease.raise_settled(numbers[count - 1] + 1)
                yield
        finally:
            self._busy.discard(lease)
            if not lease.deleted:
                self.vhost.remove_hidden_stream(lease)

    # --- Inside: slices ---------------------------------------------------------------------------

    def _begin(self, lease: Lease) -> Steps:
        """Wait for other operations on a lease to end."""
        while lease in self._busy:
            yield
        self._check(lease)
        self._busy.add(lease)

    def _wait_durable(self, lease: Lease, number: int) -> Steps:
        """Wait until the record with a number is durable."""
        self._check(lease)
        while lease.log.committed_offset <= number:
            yield
            self._check(lease)

    def _check(self, lease: Lease) -> None:
        if lease.deleted:
            raise NotFound(f"the lease of queue '{lease.source.name}' was deleted")

    def _transaction(self) -> _Transaction:
        return _Transaction(self.vhost)

    def _move(self, lease: Lease, settled: int) -> None:
        lease.raise_settled(settled)
        self._store_fact(lease)

    def _remove_settled(self, lease: Lease) -> None:
        """Remove settled records, from memory now, from disk once the fact is durable."""
        memory = lease.log.memory
        lease.raw_log.forget_below(lease.settled, self.vhost.store.appended)
        self.rejects.remove_settled(lease)
        lease.count_memory(memory)

    def _store_fact(self, lease: Lease) -> None:
        """Store the fact of a lease."""
        fields = {"settled": lease.settled, **self.ownerships[lease].terms()}
        self.vhost.facts.put(_key(lease), json.dumps(fields, separators=(",", ":")).encode())

    def _run(self, steps: Generator[None, None, object]) -> None:
        """Run an operation without a caller, slice by slice."""

        def run_step(now_ms: int) -> int:
            try:
                return now_ms if next(steps, _DONE) is None else 0
            except NotFound:
                return 0  # The lease was deleted.

        self._jobs += 1
        self.vhost.scheduler.put(("lease", self, self._jobs), self.vhost.counters.now_ms, run_step)


class _Transaction:
    """A context manager for a transaction of the store."""

    def __init__(self, vhost: LeaseHost) -> None:
        self.store = vhost.store

    def __enter__(self) -> None:
        self.store.begin()

    def __exit__(self, *_: object) -> None:
        self.store.commit()


_DONE = object()


def _read_source(lease: Lease) -> tuple[int, str]:
    """Return the queue id and the group in a lease's arguments; 0 and "" if they are missing."""
    queue_id, group = lease.arguments.get(ARGUMENT, 0), lease.arguments.get(ARGUMENT_GROUP, "")
    return cast("int", queue_id), cast("str", group)


def _key(lease: Lease) -> bytes:
    """Return the key of a lease's fact."""
    return f"lease/{lease.arguments[ARGUMENT]}/{lease.arguments[ARGUMENT_GROUP]}".encode()
