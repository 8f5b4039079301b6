# SPDX-License-Identifier: Apache-2.0
"""Transaction branches against a small model of them: any calls in any order, over restarts.

Virtual host, queue and journal are the real ones, on a disk in memory. The model knows for each xid
where it stands, and for each message where it is; both must agree after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.model.counters import Counters
from headrace.model.errors import IllegalState, ModelError, NotAllowed, NotFound
from headrace.model.message import Message, new_message
from headrace.model.queue.destination import Consumer
from headrace.model.transaction.dtx import KEPT_MS, TIMEOUT_DEFAULT_S, XaStatus
from headrace.model.transaction.transaction import ACCEPT, DISCARD, REQUEUE, Transaction
from headrace.model.transaction.xid import Xid
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.store.journal.journal import Journal
from headrace.testing.disk import FaultyDisk

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

XIDS = [Xid(1, b"g", b"1"), Xid(1, b"g", b"2"), Xid(0, b"plain", b"")]
SESSIONS = 3
HEAD = b"\x00\x01q\x00\x00"

xids = st.sampled_from(XIDS)
sessions = st.integers(0, SESSIONS - 1)
flags = st.booleans()


class Session:
    """A session, as a branch sees it, with what it holds unsettled."""

    def __init__(self) -> None:
        self.transaction: Transaction | None = None
        self.held: list[Message] = []


@dataclass
class Known:
    """The model's state of a branch."""

    state: str = "active"  # active, failed, prepared, decided
    status: XaStatus = XaStatus.OK
    workers: set[int] = field(default_factory=set)
    suspended: set[int] = field(default_factory=set)
    published: list[int] = field(default_factory=list)
    taken: list[tuple[int, int]] = field(default_factory=list)  # Body, outcome.
    timeout_s: int = TIMEOUT_DEFAULT_S
    due_ms: int = 0


class BranchMachine(RuleBasedStateMachine):
    """The real thing and the model, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk(1)
        self.now_ms = 1_000_000
        self.next_seq = 1
        self.bodies = 0
        self.known: dict[Xid, Known] = {}
        self.ready: set[int] = set()
        self.unsettled: list[list[int]] = [[] for _ in range(SESSIONS)]
        self.open()

    def open(self) -> None:
        self.counters = Counters(now_ms=self.now_ms)
        self.journal = Journal(
            "/journal", disk=self.disk, segment_size=4096, free_min=0, threaded=False
        )
        self.vhost = VirtualHost("/", store=self.journal, counters=self.counters)
        self.queue: Queue = self.vhost.declare_queue("q", durable=True)
        for _, message, arrived_ms in self.journal.recover():
            self.queue.restore(message, arrived_ms)
        self.vhost.branches.restore(self.journal.prepared_branches)
        self.counters.next_seq = max(self.next_seq, self.journal.last_seq + 1)
        self.sessions = [Session() for _ in range(SESSIONS)]

    def sync(self) -> None:
        self.journal.start_write()
        while self.journal.writer.jobs:
            self.journal.writer.step()
            self.journal.woken()

    # --- The model ----------------------------------------------------------------------------

    def current(self, session: int) -> Xid | None:
        return next((xid for xid, b in self.known.items() if session in b.workers), None)

    def start_expected(self, s: int, xid: Xid, join: bool, resume: bool) -> object:
        branch = self.known.get(xid)
        if join and resume:
            return NotAllowed
        if self.current(s) is not None:
            return IllegalState
        if not join and not resume:
            if branch is not None:
                return NotAllowed
            branch = self.known[xid] = Known()
            branch.due_ms = self.counters.now_ms + branch.timeout_s * 1000
        elif branch is None:
            return NotAllowed
        elif branch.state in ("prepared", "decided") or resume != (s in branch.suspended):
            return IllegalState
        elif branch.state == "failed" and join:
            return branch.status
        branch.suspended.discard(s)
        branch.workers.add(s)
        return branch.status

    def end_expected(self, s: int, xid: Xid, fail: bool, suspend: bool) -> object:
        branch = self.known.get(xid)
        if fail and suspend:
            return NotAllowed
        if branch is None or s not in branch.workers | branch.suspended:
            return IllegalState
        if suspend and s in branch.suspended:
            return IllegalState
        branch.workers.discard(s)
        branch.suspended.discard(s)
        if suspend:
            branch.suspended.add(s)
        if fail:
            self.fail(branch, XaStatus.RBROLLBACK)
        return branch.status

    def fail(self, branch: Known, why: XaStatus) -> None:
        if branch.state == "active":
            branch.state, branch.status = "failed", why
            branch.due_ms = self.counters.now_ms + KEPT_MS
            self.release(branch)

    def release(self, branch: Known) -> None:
        self.ready.update(body for body, _ in branch.taken)
        branch.published, branch.taken = [], []

    def happen(self, branch: Known) -> None:
        self.ready.update(branch.published)
        self.ready.update(body for body, outcome in branch.taken if outcome == REQUEUE)
        branch.published, branch.taken = [], []

    def free(self, xid: Xid) -> Known | type[ModelError]:
        branch = self.known.get(xid)
        if branch is None:
            return NotFound
        return IllegalState if branch.workers or branch.suspended else branch

    def prepare_expected(self, xid: Xid) -> object:
        branch = self.free(xid)
        if not isinstance(branch, Known):
            return branch
        if branch.state == "failed":
            return branch.status
        if branch.state != "active":
            return IllegalState
        if not branch.published and not branch.taken:
            del self.known[xid]
            return XaStatus.RDONLY
        branch.state = "prepared"
        return XaStatus.OK

    def commit_expected(self, xid: Xid, one_phase: bool) -> object:
        branch = self.free(xid)
        if not isinstance(branch, Known):
            return branch
        if one_phase != (branch.state in ("active", "failed")):
            return IllegalState
        if branch.state == "decided":
            return branch.status
        del self.known[xid]
        if branch.state != "failed":
            self.happen(branch)
        return branch.status

    def rollback_expected(self, xid: Xid) -> object:
        branch = self.free(xid)
        if not isinstance(branch, Known):
            return branch
        if branch.state != "decided":
            del self.known[xid]
            self.release(branch)
        return branch.status

    def decide_expected(self, xid: Xid, commit: bool) -> object:
        branch = self.free(xid)
        if not isinstance(branch, Known):
            return branch
        if branch.state != "prepared":
            return IllegalState
        branch.state = "decided"
        branch.status = XaStatus.HEURCOM if commit else XaStatus.HEURRB
        (self.happen if commit else self.release)(branch)
        return branch.status

    def forget_expected(self, xid: Xid) -> object:
        branch = self.free(xid)
        if not isinstance(branch, Known):
            return branch
        if branch.state != "decided":
            return IllegalState
        del self.known[xid]
        return None

    # --- Both -----------------------------------------------------------------------------------

    def check(self, expected: object, call: object) -> None:
        try:
            found: object = call()  # type: ignore[operator]  # Always a function of no arguments.
        except ModelError as error:
            found = type(error)
        assert found == expected, (found, expected)

    @rule(s=sessions, xid=xids, join=flags, resume=flags)
    def start(self, s: int, xid: Xid, join: bool, resume: bool) -> None:
        session = self.sessions[s]
        self.check(
            self.start_expected(s, xid, join, resume),
            lambda: self.vhost.branches.start(session, xid, join=join, resume=resume),
        )

    @rule(s=sessions, xid=xids, fail=flags, suspend=flags)
    def end(self, s: int, xid: Xid, fail: bool, suspend: bool) -> None:
        session = self.sessions[s]
        self.check(
            self.end_expected(s, xid, fail, suspend),
            lambda: self.vhost.branches.end(session, xid, fail=fail, suspend=suspend),
        )

    @rule(xid=xids)
    def prepare(self, xid: Xid) -> None:
        self.check(self.prepare_expected(xid), lambda: self.vhost.branches.prepare(xid))

    @rule(xid=xids, one_phase=flags)
    def commit(self, xid: Xid, one_phase: bool) -> None:
        self.check(
            self.commit_expected(xid, one_phase),
            lambda: self.vhost.branches.commit(xid, one_phase=one_phase),
        )

    @rule(xid=xids)
    def rollback(self, xid: Xid) -> None:
        self.check(self.rollback_expected(xid), lambda: self.vhost.branches.rollback(xid))

    @rule(xid=xids, commit=flags)
    def decide(self, xid: Xid, commit: bool) -> None:
        self.check(
            self.decide_expected(xid, commit),
            lambda: self.vhost.branches.decide(xid, commit=commit),
        )

    @rule(xid=xids)
    def forget(self, xid: Xid) -> None:
        self.check(self.forget_expected(xid), lambda: self.vhost.branches.forget(xid))

    @rule(xid=xids, timeout_s=st.sampled_from([0, 1, 60, 100_000]))
    def set_timeout(self, xid: Xid, timeout_s: int) -> None:
        branch = self.known.get(xid)
        if branch is not None:
            branch.timeout_s = timeout_s or TIMEOUT_DEFAULT_S
            if branch.state == "active":
                branch.due_ms = self.counters.now_ms + branch.timeout_s * 1000
        expected = NotFound if branch is None else None
        self.check(expected, lambda: self.vhost.branches.set_timeout(xid, timeout_s))

    @rule(s=sessions)
    def publish(self, s: int) -> None:
        self.bodies += 1
        raw = self.bodies.to_bytes(8, "big")
        message = new_message(HEAD + raw, 3, len(raw))
        xid = self.current(s)
        session = self.sessions[s]
        assert (session.transaction is None) == (xid is None)
        if session.transaction is None or xid is None:
            self.vhost.deliver(message, [self.queue], True)
            self.ready.add(self.bodies)
        else:
            session.transaction.publish(message, [self.queue], True)
            if self.known[xid].state == "active":
                self.known[xid].published.append(self.bodies)

    @precondition(lambda self: self.ready)
    @rule(s=sessions)
    def take(self, s: int) -> None:
        message = self.queue.get(Consumer(self.queue, "", False))
        assert message is not None
        body = body_of(message)
        self.ready.remove(body)
        self.sessions[s].held.append(message)
        self.unsettled[s].append(body)

    @rule(s=sessions, outcome=st.sampled_from([ACCEPT, REQUEUE, DISCARD]))
    def settle(self, s: int, outcome: int) -> None:
        session = self.sessions[s]
        if not session.held:
            return
        message, body = session.held.pop(0), self.unsettled[s].pop(0)
        xid = self.current(s)
        transaction = session.transaction
        if xid is None or transaction is None:
            transaction = Transaction(self.vhost)
            transaction.settle(self.queue, message, outcome)
            transaction.commit()
            if outcome == REQUEUE:
                self.ready.add(body)
            return
        transaction.settle(self.queue, message, outcome)
        if self.known[xid].state == "active":
            self.known[xid].taken.append((body, outcome))
        else:
            self.ready.add(body)

    @rule(s=sessions)
    def lose_session(self, s: int) -> None:
        for branch in self.known.values():
            if s in branch.workers | branch.suspended:
                branch.workers.discard(s)
                branch.suspended.discard(s)
                self.fail(branch, XaStatus.RBROLLBACK)
        self.ready.update(self.unsettled[s])
        self.unsettled[s] = []
        session = self.sessions[s]
        self.vhost.branches.on_worker_end(session)
        for message in session.held:
            self.queue.requeue(message)
        self.sessions[s] = Session()

    @rule(seconds=st.sampled_from([0.5, 30, 1000, 10_000]))
    def pass_time(self, seconds: float) -> None:
        self.counters.now_ms += int(seconds * 1000)
        self.now_ms = self.counters.now_ms
        self.vhost.scheduler.run(self.counters.now_ms)
        for xid, branch in list(self.known.items()):
            if branch.due_ms > self.counters.now_ms:
                continue
            if branch.state == "active":
                self.fail(branch, XaStatus.RBTIMEOUT)
            elif branch.state == "failed":
                if branch.workers or branch.suspended:
                    branch.due_ms = self.counters.now_ms + KEPT_MS
                else:
                    del self.known[xid]

    @rule(how=st.sampled_from(["kill", "stop"]))
    def restart(self, how: str) -> None:
        self.sync()
        if how == "kill":
            self.disk.kill()
        else:
            self.vhost.branches.close()
            self.journal.store_redelivered([])
            self.journal.close()
        for xid, branch in list(self.known.items()):
            if branch.state in ("active", "failed"):
                self.release(branch)
                del self.known[xid]
            branch.timeout_s = TIMEOUT_DEFAULT_S
        for unsettled in self.unsettled:
            self.ready.update(unsettled)
            unsettled.clear()
        self.next_seq = self.counters.next_seq
        self.open()

    @invariant()
    def both_agree(self) -> None:
        branches = self.vhost.branches
        assert {branch.xid for branch in branches} == self.known.keys()
        in_doubt = {x for x, b in self.known.items() if b.state in ("prepared", "decided")}
        assert set(branches.recover()) == in_doubt
        assert self.queue.ready_count == len(self.ready)
        taken = sum(len(b.taken) for b in self.known.values())
        unsettled = sum(map(len, self.unsettled))
        assert self.queue.unacked_count == taken + unsettled
        held = sum(len(b.published) for b in self.known.values() if b.state == "prepared")
        assert self.queue.pending_count == held
        for s, session in enumerate(self.sessions):
            assert (session.transaction is not None) == (self.current(s) is not None)
        for xid, branch in self.known.items():
            assert branches.find(xid).size() == (len(branch.published), len(branch.taken))

    def teardown(self) -> None:
        """Every message is where the model has it."""
        for xid in list(self.known):
            branch = self.known[xid]
            for s in range(SESSIONS):
                if s in branch.workers | branch.suspended:
                    self.end(s, xid, False, False)
            self.rollback(xid)
            if xid in self.known:
                self.forget(xid)
        found = set()
        while (message := self.queue.get(Consumer(self.queue, "", True))) is not None:
            found.add(body_of(message))
            self.queue.remove(message)
        assert found == self.ready
        unsettled = [m for session in self.sessions for m in session.held]
        for message in unsettled:
            self.queue.settle(message)
        assert self.counters.memory_used == 0


def body_of(message: Message) -> int:
    assert message.data is not None
    return int.from_bytes(message.data[5:13], "big")


BranchMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBranches = BranchMachine.TestCase
