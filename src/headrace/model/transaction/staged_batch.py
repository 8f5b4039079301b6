# SPDX-License-Identifier: Apache-2.0
"""Staged batches: many transaction branches that are committed together, exactly once.

A *sink* writes numbered batches. The tasks of a batch publish in transaction branches and prepare
them; a task may have several attempts. Then the owner of the sink names the branches to commit;
one transaction of the store commits them all and stores the number of the batch. Other branches of
the sink, up to that batch, are rolled back.

    xid     format STAGED, global id ``sink NUL batch``, branch ``partition.attempt.token/chunk``
    fact    ``sink/<name>``: {"owner", "run", "epoch", "last", "at_ms"}

Committed messages are enqueued in slices once the decision is durable: a batch may be larger than
memory. A crash between two slices loses nothing: recovery restores committed messages like all
stored messages, and appends the missing ones to streams.

Owners. A sink has one owner, set by :meth:`Sinks.begin`. Each run of an owner has an epoch, and
requests with an earlier epoch are refused. Another owner is refused until the present owner has
been inactive for OWNER_S, or has released the sink. The owner chooses the batch numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.model.errors import (
    IllegalState,
    InvalidArgument,
    NotFound,
    PreconditionFailed,
    ResourceError,
)
from headrace.model.host import TransactionHost
from headrace.model.queue.overflow import OVERFLOW_DROP_HEAD
from headrace.model.transaction.dtx import Branch, Branches, BranchState, XaStatus
from headrace.model.transaction.transaction import settle_all
from headrace.model.transaction.xid import STAGED, Xid

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

KEY = b"sink/"
SINK_BYTES_MAX = 64  # Bytes of a sink's name.
# Bytes of a branch id: the xid must fit into a dtx-identifier in hexadecimal.
STAGE_BYTES_MAX = 33
BATCH_MAX = (1 << 63) - 1
CHUNKS_MAX = 9999  # Branches of one attempt.
OWNER_S = 60.0  # An owner without activity for this long may be replaced.
KEEP_S = 86400.0  # Default time after which undecided branches are rolled back.
PAST_MAX = 8  # Past runs that the fact of a sink has.
SLICE = 2048  # Messages published or dropped at a time.

Steps = Generator[None, None, dict[str, object]]


class StagingHost(TransactionHost, Protocol):
    """A host of transaction branches that batches commit."""

    branches: Branches


class Sink(NamedTuple):
    """The durable state of a sink."""

    owner: str
    run: str
    epoch: int
    last: int  # The last committed batch; -1 is none.
    at_ms: int  # The time of the commit.
    past: tuple[str, ...] = ()  # The owner's latest past runs.

    def encode(self) -> bytes:
        """Return the value of the fact."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, raw: bytes) -> Sink:
        """Parse the value of :meth:`encode`."""
        sink = cls(**json.loads(raw))
        return sink._replace(past=tuple(sink.past))

    def next(self, run: str) -> Sink:
        """Return the sink with the next epoch, for a new run of an owner."""
        past = (*self.past, self.run)[-PAST_MAX:] if self.run else self.past
        return self._replace(run=run, epoch=self.epoch + 1, past=past)


class Stage(NamedTuple):
    """An attempt at a partition: ``partition.attempt.token`` and its number of branches."""

    name: str
    chunks: int

    @classmethod
    def parse(cls, text: str) -> Stage:
        """Parse ``name:chunks``.

        Raises:
            InvalidArgument: the text is malformed.
        """
        name, _, chunks = text.rpartition(":")
        if not name or re.fullmatch(r"[0-9]{1,9}", chunks) is None or int(chunks) > CHUNKS_MAX:
            raise InvalidArgument(f"'{text}' is not a name of staged work")
        return cls(name, int(chunks))


def global_id(sink: str, batch: int) -> bytes:
    """Return the global id shared by the branches of a batch."""
    return b"%b\x00%d" % (sink.encode(), batch)


def build_xid(sink: str, batch: int, branch: str) -> Xid:
    """Return the xid of a branch.

    Raises:
        InvalidArgument: a name or number is out of bounds.
    """
    if not 0 < len(sink.encode()) <= SINK_BYTES_MAX or not sink.isprintable():
        raise InvalidArgument(f"a sink's name has 1 to {SINK_BYTES_MAX} printable bytes")
    if not 0 <= batch <= BATCH_MAX:
        raise InvalidArgument(f"a batch must be a number from 0 to {BATCH_MAX}")
    if not 0 < len(branch.encode()) <= STAGE_BYTES_MAX:
        raise InvalidArgument(f"staged work has a name of 1 to {STAGE_BYTES_MAX} bytes")
    return Xid(STAGED, global_id(sink, batch), branch.encode())


def read_xid(xid: Xid) -> tuple[str, int, str]:
    """Return sink, batch and branch of an xid of format STAGED."""
    sink, _, batch = xid.global_id.rpartition(b"\x00")
    number = int(batch) if batch.isdigit() else -1
    return sink.decode("utf-8", "replace"), number, xid.branch_id.decode("utf-8", "replace")


class Sinks:
    """The sinks of one virtual host; methods may raise any error of the model."""

    def __init__(self, vhost: StagingHost) -> None:
        self.vhost = vhost
        self.keep_ms = int(KEEP_S * 1000)
        # The time of each owner's last activity since the start.
        self._active_ms: dict[str, int] = {}
        self._deciding: set[str] = set()  # Sinks with a decided batch that is not yet published.

    # --- Owners -------------------------------------------------------------------------------

    def find(self, name: str) -> Sink:
        """Return a sink.

        Raises:
            NotFound: the sink does not exist.
        """
        raw = self.vhost.facts.get(KEY + name.encode())
        if raw is None:
            raise NotFound(f"there is no sink '{name}' in vhost '{self.vhost.name}'")
        return Sink.decode(raw)

    def __iter__(self) -> Iterator[tuple[str, Sink]]:
        for key, raw in self.vhost.facts.items(KEY):
            yield key[len(KEY) :].decode(), Sink.decode(raw)

    def begin(self, name: str, owner: str, run: str, *, force: bool = False) -> Steps:
        """Set the owner of a sink, making it if it does not exist; return it with the epoch.

        The current run keeps its epoch. For another run or owner, undecided branches of earlier
        ones are rolled back.
        """
        build_xid(name, 0, "-")
        now_ms = self.vhost.counters.now_ms
        try:
            former = self.find(name)
        except NotFound:
            former = Sink("", "", 0, -1, 0)
        if former.owner != owner:
            if former.owner and not force and self.is_live(name):
                raise IllegalState(
                    f"sink '{name}' belongs to '{former.owner}', which was active less than "
                    f"{OWNER_S:.0f} s ago"
                )
            self._put(name, Sink(owner, run, former.epoch + 1, -1, 0))
        elif run in former.past:
            raise IllegalState(f"run '{run}' of '{owner}' is over: sink '{name}' has a later one")
        elif former.run != run or not run:
            self._put(name, former.next(run))
        sink = self.find(name)
        self._active_ms[name] = now_ms
        if sink.epoch != former.epoch:
            yield from self._drop(
                [b for b in self.undecided_branches(name) if b.state is not BranchState.ACTIVE]
            )
        return self.describe(name)

    def release(self, name: str, owner: str) -> dict[str, object]:
        """End the ownership of a sink, so that another owner may begin at once."""
        sink = self.find(name)
        if sink.owner == owner:
            self._active_ms[name] = self.vhost.counters.now_ms - int(OWNER_S * 1000)
        return self.describe(name)

    def is_live(self, name: str) -> bool:
        """Return True if the owner may be active; after a start all owners count as active."""
        active_ms = self._active_ms.setdefault(name, self.vhost.counters.now_ms)
        return self.vhost.counters.now_ms - active_ms < OWNER_S * 1000

    def check_epoch(self, name: str, epoch: int) -> Sink:
        """Refuse the epoch of a former owner or run; 0 means the current epoch."""
        sink = self.find(name)
        if epoch and sink.epoch != epoch:
            raise IllegalState(
                f"sink '{name}' is at epoch {sink.epoch} (owner '{sink.owner}'): epoch "
                f"{epoch} has ended"
            )
        self._active_ms[name] = self.vhost.counters.now_ms
        return sink

    # --- Operations -----------------------------------------------------------------------------

    def prepare(self, name: str, epoch: int, batch: int, branch: str, count: int) -> bool:
        """Prepare a branch with ``count`` publishes; durable like :meth:`Branches.prepare`.

        Return False if the batch was committed before; then the branch is rolled back.

        Raises:
            PreconditionFailed: a message cannot be published; ``text`` begins with its number.
            ResourceError: a queue has no room.
        """
        branches = self.vhost.branches
        xid = build_xid(name, batch, branch)
        existing = branches.find(xid)
        if existing.state is BranchState.PREPARED:
            self.check_epoch(name, epoch)
            return True  # A repeated request.
        try:
            sink = self.check_epoch(name, epoch)
            if batch <= sink.last:
                branches.rollback(xid)
                return False
            self._check(existing, count)
            status = branches.prepare(xid, keep_empty=True)
        except (IllegalState, PreconditionFailed, ResourceError):
            if xid in branches and existing.state is BranchState.ACTIVE:
                branches.rollback(xid)
            raise
        if status is not XaStatus.OK:
            branches.rollback(xid)
            raise IllegalState(f"the branch {xid} can only be rolled back (xa-{status.name})")
        self.expect(existing)
        return True

    def _check(self, branch: Branch, count: int) -> None:
        """Refuse a branch that lacks some of its publishes."""
        transaction = branch.transaction
        if transaction.error_index >= 0:
            raise PreconditionFailed(f"message {transaction.error_index}: {transaction.error_text}")
        if not branch.rollback_reason and transaction.publish_count != count:
            raise PreconditionFailed(
                f"{count} messages were published, {transaction.publish_count} have come"
            )
        limited = any(
            queue.limits is not None and queue.limits.policy
            for queues in transaction.publishes.routes()
            for queue in queues
        )
        if not limited:
            return
        pending: dict[Queue, list[int]] = {}  # Messages and bytes, by queue.
        for place, (message, queues, _) in enumerate(transaction.publishes):
            for queue in queues:
                limits = queue.limits
                if limits is None or limits.policy == OVERFLOW_DROP_HEAD:
                    continue  # Such queues reject no message.
                totals = pending.setdefault(queue, [queue.pending_count, 0])
                totals[0] += 1
                totals[1] += message.body_size
                too_many = 0 <= limits.max_length < queue.ready_count + totals[0]
                too_much = 0 <= limits.max_length_bytes < queue.ready_bytes + totals[1]
                if too_many or too_much:
                    raise PreconditionFailed(f"message {place}: queue '{queue.name}' is full")

    def expect(self, branch: Branch) -> None:
        """Schedule the rollback of a prepared branch that stays undecided."""

        def overdue(_: int) -> int:
            if branch.state is BranchState.PREPARED and branch.xid in self.vhost.branches:
                self.vhost.branches.rollback(branch.xid)
            return 0

        key = ("branch", self.vhost.branches, branch.xid)
        self.vhost.scheduler.put(key, self.vhost.counters.now_ms + self.keep_ms, overdue)

    def resume(self) -> None:
        """Schedule the rollback of recovered branches."""
        for branch in self.vhost.branches:
            if branch.xid.format == STAGED and branch.state is BranchState.PREPARED:
                self.expect(branch)

    def undecided_branches(self, name: str) -> list[Branch]:
        """Return the undecided branches of a sink."""
        prefix = name.encode() + b"\x00"
        return [
            branch
            for branch in self.vhost.branches
            if branch.xid.format == STAGED
            and branch.xid.global_id.startswith(prefix)
            and branch.state in (BranchState.ACTIVE, BranchState.PREPARED)
        ]

    # --- Decisions ------------------------------------------------------------------------------

    def commit(self, name: str, epoch: int, batch: int, stages: Iterable[Stage]) -> Steps:
        """Commit a batch: exactly the named branches.

        The steps end when all messages are enqueued. A repeated call returns ``already`` as True.

        Raises:
            NotFound: a branch is missing; nothing is committed.
            PreconditionFailed: a branch is incomplete or not prepared; nothing is committed.
        """
        sink = self.check_epoch(name, epoch)
        while name in self._deciding:
            yield
        sink = self.check_epoch(name, epoch)
        if batch <= sink.last:
            return {"already": True, **self.describe(name)}
        selected = self._select_branches(name, batch, stages)
        store, facts = self.vhost.store, self.vhost.facts
        now_ms = self.vhost.counters.now_ms
        key, value = KEY + name.encode(), sink._replace(last=batch, at_ms=now_ms).encode()
        facts.check(key, value)
        store.begin()
        try:
            for branch in selected:
                store.decide(branch.xid.encode(), 0, now_ms)
                branch.state = BranchState.COMMITTING
            facts.change(key, value)
        finally:
            store.commit()
        self._deciding.add(name)
        try:
            decided_at = store.appended
            while store.synced < decided_at:
                yield  # Deliver nothing that a crash could undo.
            count = 0
            for branch in selected:
                count += len(branch.publishes)
                yield from self._publish(branch)
        finally:
            self._deciding.discard(name)
        leftovers = [b for b in self.undecided_branches(name) if read_xid(b.xid)[1] <= batch]
        yield from self._drop(leftovers)
        return {"already": False, "messages": count, **self.describe(name)}

    def abort(self, name: str, epoch: int, batch: int) -> Steps:
        """Roll back the undecided branches of a batch."""
        self.check_epoch(name, epoch)
        while name in self._deciding:
            yield
        leftovers = self.vhost.branches.find_global(STAGED, global_id(name, batch))
        dropped = yield from self._drop([b for b in leftovers if b.state is BranchState.PREPARED])
        return {"branches": dropped, **self.describe(name)}

    def discard(self, name: str) -> Steps:
        """Delete a sink: roll back its undecided branches, and remove its fact."""
        self.find(name)
        dropped = yield from self._drop(self.undecided_branches(name))
        self.vhost.facts.put(KEY + name.encode(), None)
        self._active_ms.pop(name, None)
        return {"branches": dropped}

    def describe(self, name: str) -> dict[str, object]:
        """Return the description of a sink for operators."""
        sink = self.find(name)
        return {
            "sink": name,
            "owner": sink.owner,
            "epoch": sink.epoch,
            "last": None if sink.last < 0 else sink.last,
            "at_ms": sink.at_ms,
        }

    # --- Inside ---------------------------------------------------------------------------------

    def _put(self, name: str, sink: Sink) -> None:
        self.vhost.facts.put(KEY + name.encode(), sink.encode())

    def _select_branches(self, name: str, batch: int, stages: Iterable[Stage]) -> list[Branch]:
        """Return the branches to commit, in the order of their messages."""
        selected: dict[Branch, None] = {}
        branches = self.vhost.branches
        for stage in stages:
            for chunk in range(stage.chunks):
                xid = build_xid(name, batch, f"{stage.name}/{chunk}")
                branch = branches.find(xid)
                if branch.state is not BranchState.PREPARED:
                    raise PreconditionFailed(f"the branch {xid} is {branch.state.value}")
                if branch.damaged:
                    raise PreconditionFailed(f"a part of the branch {xid} was lost on the disk")
                selected[branch] = None
        return sorted(selected, key=first_seq)

    def _publish(self, branch: Branch) -> Generator[None, None, None]:
        """Publish the messages of a decided branch in slices."""
        store, counters = self.vhost.store, self.vhost.counters
        publishes = branch.publishes
        first = 0
        while first < len(publishes):
            if first:
                yield
            end = min(len(publishes), first + SLICE)
            store.begin()
            try:
                publishes.admit(first, end, store, counters)
            finally:
                store.commit()
            if not publishes.files:
                publishes.free(first, end)
            first = end
        settle_all(branch.settles)
        self.vhost.branches.remove_done(branch)

    def _drop(self, branches: list[Branch]) -> Generator[None, None, int]:
        """Roll branches back; return their number."""
        count = 0
        for branch in branches:
            if branch.xid not in self.vhost.branches or branch.state is BranchState.COMMITTING:
                continue
            if branch.state is BranchState.ACTIVE and branch.workers:
                continue  # Still in use: its prepare will be refused.
            self.vhost.branches.rollback(branch.xid)
            count += 1
            yield
        return count


def first_seq(branch: Branch) -> int:
    """Return the sort key of a prepared branch, the seq of its first message."""
    return branch.publishes.messages[0].seq if len(branch.publishes) else 0
