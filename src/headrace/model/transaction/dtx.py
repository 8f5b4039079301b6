# SPDX-License-Identifier: Apache-2.0
"""Transaction branches: distributed transactions as X/Open XA has them (0-10, class dtx).

The name of a branch is its xid. Sessions work for a branch between start and end, several at once
if they join. A coordinator, on any session, decides its outcome::

                  start                    prepare
    (unknown) ------------> ACTIVE ------------------------> PREPARED
        ^                    |  |                             |  |
        |  commit one-phase, |  | fail, timeout,              |  | an operator decides
        |  rollback          |  | session lost                |  v
        |                    |  v                             | COMPLETED
        |                    | ACTIVE, rollback-only          |  |
        |                    v  v                             v  v
        +------------------------------- commit, rollback, forget

The publishes of an active branch are not in their queues yet, and the messages that it settles are
in no queue. When a branch becomes rollback-only, its messages are released at once. Its xid stays
known for `KEPT_MS`, so that the coordinator gets the reason.

A prepared branch is in the journal with its durable publishes and settlements: it survives the
process, and only its coordinator or an operator completes it. Its publishes get their positions
when it is prepared. An operator's decision (a heuristic outcome in XA's words) is stored until the
coordinator forgets the xid.
"""

from __future__ import annotations

import logging
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Protocol

from headrace.model.counters import memory_weight
from headrace.model.errors import IllegalState, NotAllowed, NotFound, ResourceError
from headrace.model.message import KIND_FILE, KIND_MASK, SCRATCH
from headrace.model.queue_kinds.content_lanes import get_lane
from headrace.model.transaction.publishes import TransactionPublishes
from headrace.model.transaction.transaction import REQUEUE, Settle, Transaction, settle_all
from headrace.model.transaction.xid import STAGED, Xid

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from headrace.model.host import TransactionHost
    from headrace.model.message import Message
    from headrace.model.ports import PreparedBranch
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

BRANCHES_MAX = 4096  # Branches of one virtual host.
TIMEOUT_DEFAULT_S = 3600  # The time from start to prepare or outcome.
TIMEOUT_MAX_S = 7 * 86400
KEPT_MS = 600_000  # The time after which a failed branch without an outcome is removed.


class XaStatus(IntEnum):
    """The outcome of a branch, as in the protocol's domain xa-status."""

    OK = 0
    RBROLLBACK = 1
    RBTIMEOUT = 2
    HEURHAZ = 3
    HEURCOM = 4
    HEURRB = 5
    HEURMIX = 6
    RDONLY = 7


class BranchState(Enum):
    """The state of a branch; the values are for operators."""

    ACTIVE = "active"
    PREPARED = "prepared"
    COMMITTING = "being committed"
    COMPLETED = "heuristically completed"


class Worker(Protocol):
    """A session or channel that works for a branch."""

    #: The transaction of its publishes and settlements; None executes them at once.
    transaction: Transaction | None


class Branch:
    """A branch of a distributed transaction, and the sessions or channels that work for it."""

    def __init__(self, xid: Xid, vhost: TransactionHost) -> None:
        self.xid = xid
        self.transaction = Transaction(vhost, owns_messages=True)
        self.state = BranchState.ACTIVE
        self.rollback_reason = XaStatus.OK  # Why it can only be rolled back; OK if it need not be.
        self.decided = XaStatus.OK  # An operator's decision, or a failure.
        self.damaged = False  # True if a part was lost on the disk.
        # Associated workers, each with True if the outcome ends the association.
        self.workers: dict[Worker, bool] = {}
        self.suspended: set[Worker] = set()
        self.timeout_s = TIMEOUT_DEFAULT_S
        self.since_ms = vhost.counters.now_ms  # The time at which it entered its state.
        self.publishes = TransactionPublishes()  # Set when the branch is prepared.
        self.settles: list[Settle] = []

    def __repr__(self) -> str:
        return f"<Branch {self.xid} {self.state.value}>"

    def size(self) -> tuple[int, int]:
        """Return the number of publishes and of settlements."""
        if self.state is BranchState.ACTIVE:
            return len(self.transaction.publishes), len(self.transaction.settles)
        return len(self.publishes), len(self.settles)


class Branches:
    """The branches of one virtual host; methods may raise any error of the model."""

    def __init__(self, vhost: TransactionHost) -> None:
        self.vhost = vhost
        self._branches: dict[Xid, Branch] = {}
        self._global: dict[tuple[int, bytes], dict[Branch, None]] = {}
        self._by_worker: dict[Worker, dict[Branch, None]] = {}

    def __contains__(self, xid: Xid) -> bool:
        return xid in self._branches

    def __iter__(self) -> Iterator[Branch]:
        return iter(self._branches.values())

    def __len__(self) -> int:
        return len(self._branches)

    # --- Demarcation --------------------------------------------------------------------------

    # Keeps 0-10/s109, 0-10/s111, 0-10/s112, 0-10/s113, 0-10/s114.
    def start(
        self,
        worker: Worker,
        xid: Xid,
        *,
        join: bool = False,
        resume: bool = False,
        ends_with_outcome: bool = False,
    ) -> XaStatus:
        """Associate a session with a branch: a new one, unless ``join`` or ``resume`` is set.

        With ``ends_with_outcome`` the outcome ends the association. If the branch can only be
        rolled back, return the reason, and do not associate the session.
        """
        if join and resume:
            raise NotAllowed("join and resume exclude each other")
        if worker.transaction is not None:
            raise IllegalState("the session works for a transaction branch already")
        branch = self._branches.get(xid)
        if not join and not resume:
            if branch is not None:
                raise NotAllowed(f"the xid {xid} is known already")
            branch = self._make(xid)
        elif branch is None:
            raise NotAllowed(f"the xid {xid} is unknown")
        elif branch.state is not BranchState.ACTIVE:
            raise IllegalState(f"the branch {xid} is {branch.state.value}")
        elif resume and worker not in branch.suspended:
            raise IllegalState(f"the branch {xid} is not suspended on this session")
        elif join and worker in branch.suspended:
            raise IllegalState(f"the branch {xid} is suspended on this session")
        if branch.rollback_reason and not resume:
            return branch.rollback_reason
        branch.suspended.discard(worker)
        branch.workers[worker] = ends_with_outcome
        self._by_worker.setdefault(worker, {})[branch] = None
        worker.transaction = branch.transaction
        return branch.rollback_reason

    # Keeps 0-10/s109, 0-10/s116, 0-10/s118, 0-10/s119, 0-10/s120.
    def end(
        self, worker: Worker, xid: Xid, *, fail: bool = False, suspend: bool = False
    ) -> XaStatus:
        """End or suspend a session's association; with ``fail``, mark the branch rollback-only."""
        if fail and suspend:
            raise NotAllowed("fail and suspend exclude each other")
        branch = self._branches.get(xid)
        if branch is None or not (worker in branch.workers or worker in branch.suspended):
            raise IllegalState(f"the session does not work for a branch {xid}")
        if suspend and worker in branch.suspended:
            raise IllegalState(f"the branch {xid} is suspended on this session already")
        self._dissociate(worker, branch)
        if suspend:
            branch.suspended.add(worker)
            self._by_worker.setdefault(worker, {})[branch] = None
        if fail:
            self._fail(branch, XaStatus.RBROLLBACK)
        return branch.rollback_reason

    def current(self, worker: Worker) -> Branch | None:
        """Return the branch that a session works for; None if there is none."""
        branches = self._by_worker.get(worker, ())
        return next((branch for branch in branches if worker in branch.workers), None)

    # Keeps 0-10/s117.
    def on_worker_end(self, worker: Worker) -> None:
        """Mark the branches of a closed session rollback-only."""
        for branch in list(self._by_worker.get(worker, ())):
            self._dissociate(worker, branch)
            self._fail(branch, XaStatus.RBROLLBACK)

    # --- Outcomes -----------------------------------------------------------------------------

    # Keeps 0-10/s130.
    def prepare(self, xid: Xid, *, keep_empty: bool = False) -> XaStatus:
        """Prepare a branch, so that it can be committed or rolled back after any failure.

        An empty branch is removed, unless ``keep_empty``. The answer may be sent once the store's
        ``synced`` has reached ``appended``.

        Raises:
            IllegalState: the branch is not ended, or is prepared already.
            ResourceError: the disk is full, or a queue would reject a message; the branch is
                unchanged.
        """
        branch = self._find_unassociated(xid)
        if branch.state is not BranchState.ACTIVE:
            raise IllegalState(f"the branch {xid} is {branch.state.value}")
        if branch.rollback_reason:
            return branch.rollback_reason
        if not branch.transaction and not keep_empty:
            self._remove(branch)
            return XaStatus.RDONLY
        if self.vhost.store.full:
            raise ResourceError(f"the disk is full; the branch {xid} was not prepared")
        self._require_room(branch)
        self.vhost.scheduler.remove(("branch", self, xid))
        self._store_prepared(branch)
        return XaStatus.OK

    # Keeps 0-10/s121, 0-10/s124, 0-10/s125.
    def commit(self, xid: Xid, *, one_phase: bool = False) -> XaStatus:
        """Commit a branch; durable like :meth:`prepare`."""
        branch = self._find_unassociated(xid)
        if branch.state is BranchState.ACTIVE:
            if not one_phase:
                raise IllegalState(f"the branch {xid} is not prepared")
            if branch.rollback_reason:
                self._remove(branch)
                return branch.rollback_reason
            self._require_room(branch)
            branch.transaction.commit()
            self._remove(branch)
            return XaStatus.OK
        if one_phase:
            raise IllegalState(f"the branch {xid} is {branch.state.value}")
        if branch.state is BranchState.COMMITTING:
            raise IllegalState(f"the branch {xid} is {branch.state.value}")
        if branch.state is BranchState.COMPLETED:
            return branch.decided
        return self._commit_prepared(branch, XaStatus.HEURHAZ if branch.damaged else XaStatus.OK)

    # Keeps 0-10/s133.
    def rollback(self, xid: Xid) -> XaStatus:
        """Roll back a branch; durable like :meth:`prepare`."""
        branch = self._find_unassociated(xid)
        if branch.state is BranchState.COMPLETED:
            return branch.decided
        if branch.state is BranchState.COMMITTING:
            raise IllegalState(f"the branch {xid} is {branch.state.value}")
        if branch.state is BranchState.PREPARED:
            self._undo(branch, XaStatus.OK)
            return XaStatus.OK
        branch.transaction.undo()
        self._remove(branch)
        return branch.rollback_reason

    def decide(self, xid: Xid, *, commit: bool) -> XaStatus:
        """Complete a prepared branch by an operator's decision.

        Return the status that the coordinator gets: HEURCOM, HEURRB, HEURMIX if a queue of the
        branch was deleted, or HEURHAZ if a part of the branch was lost.
        """
        branch = self._find_unassociated(xid)
        if branch.state is not BranchState.PREPARED:
            raise IllegalState(f"the branch {xid} is {branch.state.value}")
        queues = [q for publish in branch.publishes for q in publish.queues]
        queues += [settle.queue for settle in branch.settles]
        if branch.damaged:
            status = XaStatus.HEURHAZ
        elif not commit:
            status = XaStatus.HEURRB
        elif any(queue.deleted for queue in queues):
            status = XaStatus.HEURMIX
        else:
            status = XaStatus.HEURCOM
        if commit:
            return self._commit_prepared(branch, status)
        self._undo(branch, status)
        return status

    def remove_done(self, branch: Branch) -> None:
        """Remove a branch whose commit is stored and executed."""
        self._finish(branch, XaStatus.OK)

    def recover(self) -> list[Xid]:
        """Return the xids of prepared or heuristically completed branches."""
        states = (BranchState.PREPARED, BranchState.COMPLETED)
        return [branch.xid for branch in self._branches.values() if branch.state in states]

    # Keeps 0-10/s126.
    def forget(self, xid: Xid) -> None:
        """Remove a heuristically completed branch, whose coordinator knows the decision."""
        branch = self._find_unassociated(xid)
        if branch.state is not BranchState.COMPLETED:
            raise IllegalState(f"the branch {xid} is {branch.state.value}")
        self.vhost.store.decide(xid.encode(), 0, 0)
        self._remove(branch)

    def set_timeout(self, xid: Xid, timeout_s: int) -> None:
        """Set the time from now within which a branch must be prepared; 0 is the default."""
        branch = self.find(xid)
        if timeout_s > TIMEOUT_MAX_S:
            raise NotAllowed(f"a timeout may be at most {TIMEOUT_MAX_S} s")
        branch.timeout_s = timeout_s or TIMEOUT_DEFAULT_S
        if branch.state is BranchState.ACTIVE and not branch.rollback_reason:
            self._schedule_timeout(branch, branch.timeout_s * 1000)

    def get_timeout(self, xid: Xid) -> int:
        """Return the timeout of a branch in seconds."""
        return self.find(xid).timeout_s

    def find_global(self, xid_format: int, global_id: bytes) -> list[Branch]:
        """Return the branches of a global transaction in order of their start."""
        return list(self._global.get((xid_format, global_id), ()))

    # Keeps 0-10/s122, 0-10/s127, 0-10/s129, 0-10/s131, 0-10/s134, 0-10/s136.
    def find(self, xid: Xid) -> Branch:
        """Return a branch.

        Raises:
            NotFound: the xid is unknown.
        """
        branch = self._branches.get(xid)
        if branch is None:
            raise NotFound(f"the xid {xid} is unknown")
        return branch

    # --- Start and end of the broker ------------------------------------------------------------

    def restore(self, records: Iterable[PreparedBranch]) -> None:
        """Restore the prepared branches, after the messages of the queues."""
        queues = self.vhost.durable_queues()
        for record in records:
            branch = Branch(Xid.decode(record.xid), self.vhost)
            branch.damaged = record.damaged
            branch.state = BranchState.COMPLETED if record.status else BranchState.PREPARED
            branch.decided = XaStatus(record.status)
            for message, ids in record.publishes:
                self._restore_publish(branch, message, ids, queues)
            for number, message, outcome in record.settles:
                if number not in queues:
                    self.vhost.store.settle(number, message.seq, message.position)
                    continue
                queue = get_lane(queues[number], message.flags & KIND_MASK)
                message.consumer = branch.transaction.holder(queue)
                if message.deliveries and queue.delivery_limit >= 0:
                    message.deliveries -= 1  # Only a requeue counts as a redelivery.
                if queue.restore_unacked(message):
                    branch.settles.append(Settle(queue, message, outcome))
                else:
                    branch.damaged = True
            self._add(branch)

    def _restore_publish(
        self, branch: Branch, message: Message, ids: list[int], queues: dict[int, Queue]
    ) -> None:
        """Restore one publish of a prepared branch."""
        store = self.vhost.store
        targets = tuple([queues[number] for number in ids if number in queues])
        lost = False
        if message.flags & KIND_MASK == KIND_FILE:
            try:
                store.load(message)
                lost = not self.vhost.files.add_reference(message.data or b"")
            except OSError as error:
                log.error("branch %s: a file cannot be read and is lost: %s", branch, error)
                lost = True
        for number in ids:
            if lost or number not in queues:
                store.settle(number, message.seq, message.position)
        if lost:
            branch.damaged = True
            return
        for queue in targets:
            queue.pending_count += 1
        self.vhost.counters.memory_used += memory_weight(message)
        branch.publishes.add(message, targets, True)

    def close(self) -> None:
        """Roll back all branches that are not prepared, before the broker stops."""
        for branch in list(self._branches.values()):
            for worker in [*branch.workers, *branch.suspended]:
                self._dissociate(worker, branch)
            if branch.state is BranchState.ACTIVE:
                branch.transaction.undo()
                self._remove(branch)

    # --- Inside ---------------------------------------------------------------------------------

    def _make(self, xid: Xid) -> Branch:
        if not xid.is_valid():
            raise NotAllowed("the xid is too long")
        if len(self._branches) >= BRANCHES_MAX:
            raise ResourceError(f"more than {BRANCHES_MAX} transaction branches")
        branch = Branch(xid, self.vhost)
        branch.transaction.counts_publishes = xid.format == STAGED
        self._add(branch)
        self._schedule_timeout(branch, branch.timeout_s * 1000)
        return branch

    # Keeps 0-10/s123, 0-10/s128, 0-10/s132, 0-10/s135.
    def _find_unassociated(self, xid: Xid) -> Branch:
        """Return a branch for its outcome; end the associations that end with the outcome.

        Raises:
            IllegalState: a session still works for the branch.
            NotFound: the xid is unknown.
        """
        branch = self.find(xid)
        for worker, ends_with_outcome in list(branch.workers.items()):
            if ends_with_outcome:
                self._dissociate(worker, branch)
        if branch.workers or branch.suspended:
            raise IllegalState(f"a session still works for the branch {xid}")
        return branch

    def _dissociate(self, worker: Worker, branch: Branch) -> None:
        """End the association of a session and a branch."""
        if branch.workers.pop(worker, None) is not None:
            worker.transaction = None
        branch.suspended.discard(worker)
        branches = self._by_worker[worker]
        del branches[branch]
        if not branches:
            del self._by_worker[worker]

    def _fail(self, branch: Branch, status: XaStatus) -> None:
        """Mark a branch rollback-only, releasing its messages."""
        if branch.rollback_reason or branch.state is not BranchState.ACTIVE:
            return
        branch.rollback_reason = status
        branch.transaction.is_ended = True
        branch.transaction.undo()
        branch.since_ms = self.vhost.counters.now_ms
        self._schedule_timeout(branch, KEPT_MS)

    def _schedule_timeout(self, branch: Branch, within_ms: int) -> None:
        """Schedule the timeout of a branch, replacing an earlier one."""
        key: Hashable = ("branch", self, branch.xid)
        self.vhost.scheduler.remove(key)
        due_ms = self.vhost.counters.now_ms + within_ms
        self.vhost.scheduler.put(key, due_ms, lambda now_ms: self._on_timeout(branch, now_ms))

    def _on_timeout(self, branch: Branch, now_ms: int) -> int:
        """Handle the timeout of a branch; return the time of the next check, 0 if none."""
        if self._branches.get(branch.xid) is not branch or branch.state is not BranchState.ACTIVE:
            return 0
        if not branch.rollback_reason:
            self._fail(branch, XaStatus.RBTIMEOUT)
            return 0
        if branch.workers or branch.suspended:
            return now_ms + KEPT_MS
        self._remove(branch)
        return 0

    def _add(self, branch: Branch) -> None:
        xid = branch.xid
        self._branches[xid] = branch
        self._global.setdefault((xid.format, xid.global_id), {})[branch] = None

    def _remove(self, branch: Branch) -> None:
        branch.transaction.is_ended = True
        xid = branch.xid
        if self._branches.pop(xid, None) is not None:
            siblings = self._global[xid.format, xid.global_id]
            del siblings[branch]
            if not siblings:
                del self._global[xid.format, xid.global_id]
        self.vhost.scheduler.remove(("branch", self, branch.xid))

    def _finish(self, branch: Branch, status: XaStatus) -> None:
        """Remove a completed branch, or store an operator's decision if ``status`` is not OK."""
        branch.transaction.release_files(branch.publishes)
        branch.publishes, branch.settles = TransactionPublishes(), []
        branch.since_ms = self.vhost.counters.now_ms
        if status:
            branch.state, branch.decided = BranchState.COMPLETED, status
        else:
            self._remove(branch)

    def _store_prepared(self, branch: Branch) -> None:
        """Store a prepared branch in one transaction, and count its messages in their queues."""
        store, counters = self.vhost.store, self.vhost.counters
        branch.publishes, branch.settles = branch.transaction.detach()
        branch.transaction.is_ended = True
        branch.state = BranchState.PREPARED
        branch.since_ms = counters.now_ms
        store.begin()
        try:
            seqs = branch.publishes.store_all(store, counters)
            branch.damaged = branch.publishes.lost > 0
            settles = [
                (queue.id, message.seq, outcome)
                for queue, message, outcome in branch.settles
                if message.position and queue.durable and not message.flags & SCRATCH
            ]
            store.prepare(branch.xid.encode(), seqs, settles)
        finally:
            store.commit()
        branch.publishes.charge_memory(store, counters)

    def _require_room(self, branch: Branch) -> None:
        """Raise ResourceError if a queue would reject a message, which it cannot after prepare."""
        for message, queues, _ in branch.transaction.publishes:
            for queue in queues:
                if (
                    queue.limits is not None
                    and not queue.deleted
                    and message.flags & KIND_MASK < KIND_FILE
                    and queue.would_reject(message.body_size)
                ):
                    raise ResourceError(
                        f"queue {queue.name!r} is full; the branch {branch.xid} was not taken"
                    )

    def _commit_prepared(self, branch: Branch, status: XaStatus) -> XaStatus:
        """Commit a prepared branch; return its status."""
        store, counters = self.vhost.store, self.vhost.counters
        store.begin()
        try:
            if branch.publishes.admit(0, len(branch.publishes), store, counters):
                status = XaStatus.HEURHAZ
            settle_all(branch.settles)
            store.decide(branch.xid.encode(), status, counters.now_ms)
        finally:
            store.commit()
        self._finish(branch, status)
        return status

    def _undo(self, branch: Branch, status: XaStatus) -> None:
        """Roll back a prepared branch."""
        store, counters = self.vhost.store, self.vhost.counters
        store.begin()
        try:
            branch.publishes.drop(0, len(branch.publishes), store, counters)
            settle_all([settle._replace(outcome=REQUEUE) for settle in branch.settles])
            store.decide(branch.xid.encode(), status, counters.now_ms)
        finally:
            store.commit()
        self._finish(branch, status)
