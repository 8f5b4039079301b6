# SPDX-License-Identifier: Apache-2.0
"""Transaction branches on the model alone: who may do what when, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import IllegalState, NotAllowed, NotFound, ResourceError
from headrace.model.message import REDELIVERED, Message
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.transaction import dtx as branch_module
from headrace.model.transaction.dtx import Branches, BranchState, XaStatus
from headrace.model.transaction.transaction import ACCEPT, Transaction
from headrace.model.transaction.xid import Xid
from headrace.model.vhost.virtual_host import VirtualHost
from support.clients.manual_consumer import bodies, message, put, take

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

X = Xid(7, b"global", b"branch")
Y = Xid(7, b"global", b"other")


class Session:
    """A session, as a branch sees it."""

    def __init__(self) -> None:
        self.transaction: Transaction | None = None


@pytest.fixture
def vhost() -> VirtualHost:
    return VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000_000))


@pytest.fixture
def branches(vhost: VirtualHost) -> Branches:
    return vhost.branches


@pytest.fixture
def queue(vhost: VirtualHost) -> Queue:
    return vhost.declare_queue("q", durable=True)


def pass_time(vhost: VirtualHost, seconds: float) -> None:
    vhost.counters.now_ms += int(seconds * 1000)
    vhost.scheduler.run(vhost.counters.now_ms)


def transaction(session: Session) -> Transaction:
    assert session.transaction is not None
    return session.transaction


def busy(vhost: VirtualHost, queue: Queue, xid: Xid = X) -> Session:
    """Return a session that took ``a`` and published ``new`` for a branch that it has ended."""
    if not queue.ready_count:
        put(vhost, queue, b"a")
    session = Session()
    assert vhost.branches.start(session, xid) is XaStatus.OK
    transaction(session).settle(queue, take(queue), ACCEPT)
    transaction(session).publish(message(b"new"), [queue], True)
    assert vhost.branches.end(session, xid) is XaStatus.OK
    return session


# --- Demarcation --------------------------------------------------------------------------------


@pytest.mark.rule("0-10/s109")
def test_work_between_start_and_end_is_the_branchs(vhost: VirtualHost, queue: Queue) -> None:
    session = Session()
    assert vhost.branches.start(session, X) is XaStatus.OK
    assert session.transaction is not None
    vhost.branches.end(session, X)
    assert session.transaction is None  # What comes now is no transaction's.
    busy(vhost, queue, Y)
    assert bodies(queue) == []
    vhost.branches.commit(Y, one_phase=True)
    assert bodies(queue) == [b"new"]
    assert queue.unacked_count == 0
    vhost.branches.rollback(X)
    assert vhost.counters.memory_used == 0


@pytest.mark.rule("0-10/s110")
def test_a_session_works_for_one_branch_at_a_time(branches: Branches) -> None:
    session = Session()
    branches.start(session, X)
    with pytest.raises(IllegalState, match="works for a transaction branch already"):
        branches.start(session, Y)
    assert Y not in branches


@pytest.mark.rule("0-10/s111", "0-10/s113")
def test_a_known_xid_is_not_started_anew(branches: Branches) -> None:
    session = Session()
    branches.start(session, X)
    with pytest.raises(NotAllowed, match="is known already"):
        branches.start(Session(), X)
    branches.end(session, X)
    with pytest.raises(NotAllowed, match="is known already"):
        branches.start(session, X)


@pytest.mark.rule("0-10/s112")
def test_join_and_resume_exclude_each_other(branches: Branches) -> None:
    session = Session()
    branches.start(session, X)
    branches.end(session, X, suspend=True)
    with pytest.raises(NotAllowed, match="exclude each other"):
        branches.start(session, X, join=True, resume=True)
    assert session.transaction is None


@pytest.mark.rule("0-10/s114")
def test_sessions_join(vhost: VirtualHost, queue: Queue) -> None:
    branches = vhost.branches
    first, second = Session(), Session()
    branches.start(first, X)
    assert branches.start(second, X, join=True) is XaStatus.OK
    transaction(first).publish(message(b"1"), [queue], False)
    transaction(second).publish(message(b"2"), [queue], False)
    branches.end(first, X)
    with pytest.raises(IllegalState, match="still works"):
        branches.prepare(X)
    branches.end(second, X)
    branches.start(first, X, join=True)
    transaction(first).publish(message(b"3"), [queue], False)
    branches.end(first, X)
    branches.prepare(X)
    branches.commit(X)
    assert bodies(queue) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("flag", ["join", "resume"])
def test_what_is_not_known_cannot_go_on(branches: Branches, flag: str) -> None:
    with pytest.raises(NotAllowed, match="is unknown"):
        branches.start(Session(), X, **{flag: True})


def test_a_suspended_branch_is_resumed_by_its_session(vhost: VirtualHost, queue: Queue) -> None:
    branches = vhost.branches
    session, stranger = Session(), Session()
    branches.start(session, X)
    transaction(session).publish(message(b"1"), [queue], False)
    with pytest.raises(IllegalState, match="not suspended"):
        branches.start(stranger, X, resume=True)
    assert branches.end(session, X, suspend=True) is XaStatus.OK
    assert session.transaction is None
    branches.start(session, Y)
    branches.end(session, Y)
    with pytest.raises(IllegalState, match="not suspended on this session"):
        branches.start(stranger, X, resume=True)
    with pytest.raises(IllegalState, match="still works"):
        branches.prepare(X)
    with pytest.raises(IllegalState, match="is suspended on this session"):
        branches.start(session, X, join=True)
    with pytest.raises(IllegalState, match="suspended on this session already"):
        branches.end(session, X, suspend=True)
    assert branches.start(session, X, resume=True) is XaStatus.OK
    transaction(session).publish(message(b"2"), [queue], False)
    branches.end(session, X)
    branches.commit(X, one_phase=True)
    assert bodies(queue) == [b"1", b"2"]


def test_a_suspended_branch_may_be_ended(branches: Branches) -> None:
    session = Session()
    branches.start(session, X)
    branches.end(session, X, suspend=True)
    assert branches.end(session, X) is XaStatus.OK
    assert branches.prepare(X) is XaStatus.RDONLY


@pytest.mark.rule("0-10/s116")
def test_suspend_and_fail_exclude_each_other(branches: Branches) -> None:
    session = Session()
    branches.start(session, X)
    with pytest.raises(NotAllowed, match="exclude each other"):
        branches.end(session, X, fail=True, suspend=True)
    assert session.transaction is not None


@pytest.mark.rule("0-10/s115", "0-10/s118")
def test_only_who_works_for_a_branch_can_end_that(branches: Branches) -> None:
    session = Session()
    branches.start(session, X)
    for stranger, xid in ((Session(), X), (session, Y)):
        with pytest.raises(IllegalState, match="does not work for"):
            branches.end(stranger, xid)
    branches.end(session, X)
    with pytest.raises(IllegalState, match="does not work for"):
        branches.end(session, X)


@pytest.mark.rule("0-10/s119", "0-10/s120")
def test_failed_work_is_rolled_back_at_once(vhost: VirtualHost, queue: Queue) -> None:
    put(vhost, queue, b"a", b"b")
    branches = vhost.branches
    session, other = Session(), Session()
    branches.start(session, X)
    branches.start(other, X, join=True)
    late = take(queue)
    transaction(session).settle(queue, take(queue), ACCEPT)
    transaction(session).publish(message(b"never"), [queue], True)
    assert branches.end(session, X, fail=True) is XaStatus.RBROLLBACK
    assert queue.ready_count == 1
    transaction(other).settle(queue, late, ACCEPT)  # It is undone, whatever is still done for it.
    assert branches.end(other, X) is XaStatus.RBROLLBACK
    assert bodies(queue) == [b"a", b"b"]
    assert branches.start(session, X, join=True) is XaStatus.RBROLLBACK
    assert session.transaction is None
    assert branches.prepare(X) is XaStatus.RBROLLBACK
    assert branches.rollback(X) is XaStatus.RBROLLBACK
    assert X not in branches


@pytest.mark.rule("0-10/s117")
@pytest.mark.parametrize("suspend", [False, True])
def test_a_branch_fails_with_its_session(vhost: VirtualHost, queue: Queue, suspend: bool) -> None:
    branches = vhost.branches
    put(vhost, queue, b"a")
    session = Session()
    branches.start(session, X)
    transaction(session).settle(queue, take(queue), ACCEPT)
    if suspend:
        branches.end(session, X, suspend=True)
    branches.on_worker_end(session)
    assert session.transaction is None
    assert bodies(queue) == [b"a"]
    assert branches.commit(X, one_phase=True) is XaStatus.RBROLLBACK
    assert X not in branches


def test_a_branch_that_was_ended_survives_its_session(vhost: VirtualHost, queue: Queue) -> None:
    session = busy(vhost, queue)
    vhost.branches.on_worker_end(session)
    assert vhost.branches.commit(X, one_phase=True) is XaStatus.OK
    assert bodies(queue) == [b"new"]


def test_an_association_that_its_session_cannot_end(vhost: VirtualHost, queue: Queue) -> None:
    session = Session()
    vhost.branches.start(session, X, ends_with_outcome=True)
    transaction(session).publish(message(b"1"), [queue], False)
    assert vhost.branches.prepare(X) is XaStatus.OK
    assert session.transaction is None
    assert vhost.branches.commit(X) is XaStatus.OK
    assert bodies(queue) == [b"1"]


# --- Outcomes -----------------------------------------------------------------------------------

Outcome = Callable[[Branches], object]
OUTCOMES: dict[str, Outcome] = {
    "commit": lambda b: b.commit(X),
    "one-phase": lambda b: b.commit(X, one_phase=True),
    "rollback": lambda b: b.rollback(X),
    "prepare": lambda b: b.prepare(X),
    "forget": lambda b: b.forget(X),
    "decide": lambda b: b.decide(X, commit=True),
    "get-timeout": lambda b: b.get_timeout(X),
    "set-timeout": lambda b: b.set_timeout(X, 1),
}
COORDINATION = ["commit", "one-phase", "rollback", "prepare", "forget", "decide"]


@pytest.mark.rule("0-10/s122", "0-10/s127", "0-10/s129", "0-10/s131", "0-10/s134", "0-10/s136")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_unknown_xid(vhost: VirtualHost, queue: Queue, outcome: str) -> None:
    with pytest.raises(NotFound, match="unknown"):
        OUTCOMES[outcome](vhost.branches)
    busy(vhost, queue)
    vhost.branches.commit(X, one_phase=True)
    with pytest.raises(NotFound, match="unknown"):  # It has been ended.
        OUTCOMES[outcome](vhost.branches)


@pytest.mark.rule("0-10/s123", "0-10/s128", "0-10/s132", "0-10/s135")
@pytest.mark.parametrize("outcome", COORDINATION)
def test_nothing_is_decided_while_a_session_works(branches: Branches, outcome: str) -> None:
    session = Session()
    branches.start(session, X)
    with pytest.raises(IllegalState, match="a session still works"):
        OUTCOMES[outcome](branches)
    assert session.transaction is not None


@pytest.mark.rule("0-10/s121", "0-10/s124")
def test_an_unprepared_branch_is_committed_in_one_phase(vhost: VirtualHost, queue: Queue) -> None:
    busy(vhost, queue)
    with pytest.raises(IllegalState, match="is not prepared"):
        vhost.branches.commit(X)
    assert vhost.branches.commit(X, one_phase=True) is XaStatus.OK
    assert bodies(queue) == [b"new"]


@pytest.mark.rule("0-10/s125")
def test_a_prepared_branch_is_not_committed_in_one_phase(vhost: VirtualHost, queue: Queue) -> None:
    busy(vhost, queue)
    vhost.branches.prepare(X)
    with pytest.raises(IllegalState, match="is prepared"):
        vhost.branches.commit(X, one_phase=True)
    assert vhost.branches.commit(X) is XaStatus.OK


@pytest.mark.rule("0-10/s126")
@pytest.mark.parametrize("prepared", [False, True])
def test_only_an_operators_decision_is_forgotten(
    vhost: VirtualHost, queue: Queue, prepared: bool
) -> None:
    busy(vhost, queue)
    if prepared:
        vhost.branches.prepare(X)
    with pytest.raises(IllegalState, match="the branch"):
        vhost.branches.forget(X)


@pytest.mark.rule("0-10/s130")
def test_a_branch_is_prepared_once(vhost: VirtualHost, queue: Queue) -> None:
    busy(vhost, queue)
    assert vhost.branches.prepare(X) is XaStatus.OK
    with pytest.raises(IllegalState, match="is prepared"):
        vhost.branches.prepare(X)
    for flags in ({}, {"join": True}, {"resume": True}):
        with pytest.raises((IllegalState, NotAllowed)):
            vhost.branches.start(Session(), X, **flags)


@pytest.mark.rule("0-10/s133")
def test_a_rollback_of_what_was_decided_says_so(vhost: VirtualHost, queue: Queue) -> None:
    busy(vhost, queue)
    vhost.branches.prepare(X)
    vhost.branches.decide(X, commit=True)
    assert vhost.branches.rollback(X) is XaStatus.HEURCOM
    with pytest.raises(IllegalState, match="heuristically completed"):
        vhost.branches.prepare(X)


def test_what_is_prepared_is_held_back_until_the_commit(vhost: VirtualHost, queue: Queue) -> None:
    put(vhost, queue, b"a", b"z")
    busy(vhost, queue)
    assert vhost.branches.prepare(X) is XaStatus.OK
    put(vhost, queue, b"later")
    assert vhost.branches.recover() == [X]
    assert (queue.ready_count, queue.unacked_count, queue.pending_count) == (2, 1, 1)
    assert vhost.branches.find(X).size() == (1, 1)
    assert vhost.branches.commit(X) is XaStatus.OK
    assert (queue.unacked_count, queue.pending_count) == (0, 0)
    assert bodies(queue) == [b"z", b"new", b"later"]  # In its place.
    assert vhost.branches.recover() == []
    assert vhost.counters.memory_used == 0


def test_a_prepared_branch_is_rolled_back(vhost: VirtualHost, queue: Queue) -> None:
    put(vhost, queue, b"a", b"z")
    busy(vhost, queue)
    vhost.branches.prepare(X)
    assert vhost.branches.rollback(X) is XaStatus.OK
    returned = queue.get(Consumer(queue, "", True))
    assert returned is not None
    assert returned.flags & REDELIVERED
    queue.remove(returned)
    assert bodies(queue) == [b"z"]
    assert (queue.unacked_count, queue.pending_count) == (0, 0)
    assert vhost.counters.memory_used == 0


def test_a_commit_delivers_to_who_waits(vhost: VirtualHost, queue: Queue) -> None:
    busy(vhost, queue)
    vhost.branches.prepare(X)
    got: list[bytes | None] = []

    class Waiting(Consumer):
        def has_room(self) -> bool:
            return True

        def deliver(self, message: Message) -> None:
            got.append(message.data)

    queue.add_consumer(Waiting(queue, "", True))
    queue.drain()
    assert got == []
    vhost.branches.commit(X)
    assert got == [b"\x00\x01q\x00\x00new"]


def test_a_branch_without_work_is_read_only(branches: Branches) -> None:
    session = Session()
    branches.start(session, X)
    branches.end(session, X)
    assert branches.prepare(X) is XaStatus.RDONLY
    assert X not in branches


def test_a_purge_leaves_what_is_prepared(vhost: VirtualHost, queue: Queue) -> None:
    busy(vhost, queue)
    vhost.branches.prepare(X)
    put(vhost, queue, b"gone")
    assert queue.purge() == 1
    vhost.branches.commit(X)
    assert bodies(queue) == [b"new"]


@pytest.mark.parametrize(
    ("overflow", "left"), [("reject-publish", [b"1", b"2"]), ("drop-head", [b"2"])]
)
def test_life_counts_from_the_commit_and_what_was_prepared_is_not_turned_away(
    vhost: VirtualHost, overflow: str, left: list[bytes]
) -> None:
    short = vhost.declare_queue("short", arguments={"x-max-length": 1, "x-overflow": overflow})
    brief = vhost.declare_queue("brief", arguments={"x-message-ttl": 1000})
    session = Session()
    vhost.branches.start(session, X)
    for body in (b"1", b"2"):
        transaction(session).publish(message(body), [short, brief], False)
    vhost.branches.end(session, X)
    vhost.branches.prepare(X)
    pass_time(vhost, 5)
    vhost.branches.commit(X)
    assert bodies(short) == left
    assert brief.ready_count == 2
    pass_time(vhost, 1)
    assert brief.ready_count == 0
    assert vhost.counters.memory_used == 0


@pytest.mark.parametrize("one_phase", [False, True])
def test_a_full_queue_that_turns_away_takes_no_branch(vhost: VirtualHost, one_phase: bool) -> None:
    arguments = {"x-max-length": 0, "x-overflow": "reject-publish"}
    full = vhost.declare_queue("full", arguments=arguments)
    session, branches = Session(), vhost.branches
    branches.start(session, X)
    transaction(session).publish(message(b"1"), [full], False)
    branches.end(session, X)
    last = partial(branches.commit, one_phase=True) if one_phase else branches.prepare
    with pytest.raises(ResourceError, match="queue 'full' is full"):
        last(X)
    assert branches.find(X).state is BranchState.ACTIVE
    assert branches.rollback(X) is XaStatus.OK
    assert vhost.counters.memory_used == 0


def test_a_full_disk_prepares_nothing(vhost: VirtualHost, queue: Queue) -> None:
    busy(vhost, queue)
    vhost.store.full = True
    with pytest.raises(ResourceError, match="disk is full"):
        vhost.branches.prepare(X)
    vhost.store.full = False
    assert vhost.branches.prepare(X) is XaStatus.OK


# --- Heuristics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_an_operator_decides_and_the_coordinator_hears_it(
    vhost: VirtualHost, queue: Queue, commit: bool
) -> None:
    branches = vhost.branches
    busy(vhost, queue)
    with pytest.raises(IllegalState, match="is active"):
        branches.decide(X, commit=commit)
    branches.prepare(X)
    status = XaStatus.HEURCOM if commit else XaStatus.HEURRB
    assert branches.decide(X, commit=commit) is status
    assert bodies(queue) == [b"new" if commit else b"a"]
    assert branches.recover() == [X]
    assert branches.find(X).state is BranchState.COMPLETED
    assert branches.commit(X) is status
    assert branches.rollback(X) is status
    with pytest.raises(IllegalState):
        branches.decide(X, commit=commit)
    branches.forget(X)
    assert branches.recover() == []


def test_a_decision_that_comes_too_late_for_a_part(vhost: VirtualHost, queue: Queue) -> None:
    busy(vhost, queue)
    vhost.branches.prepare(X)
    vhost.delete_queue("q")
    assert vhost.branches.decide(X, commit=True) is XaStatus.HEURMIX
    assert vhost.branches.commit(X) is XaStatus.HEURMIX
    assert vhost.counters.memory_used == 0


# --- Time and bounds ----------------------------------------------------------------------------


def test_a_branch_that_takes_too_long(vhost: VirtualHost, queue: Queue) -> None:
    branches = vhost.branches
    put(vhost, queue, b"a")
    session = Session()
    branches.start(session, X)
    transaction(session).settle(queue, take(queue), ACCEPT)
    assert branches.get_timeout(X) == branch_module.TIMEOUT_DEFAULT_S
    branches.set_timeout(X, 5)
    assert branches.get_timeout(X) == 5
    pass_time(vhost, 4.9)
    branches.set_timeout(X, 5)  # From now on.
    pass_time(vhost, 4.9)
    assert queue.unacked_count == 1
    pass_time(vhost, 0.1)
    assert queue.ready_count == 1
    assert branches.start(Session(), X, join=True) is XaStatus.RBTIMEOUT
    assert branches.end(session, X, suspend=True) is XaStatus.RBTIMEOUT
    assert branches.start(session, X, resume=True) is XaStatus.RBTIMEOUT
    assert branches.end(session, X) is XaStatus.RBTIMEOUT
    assert branches.prepare(X) is XaStatus.RBTIMEOUT
    assert branches.commit(X, one_phase=True) is XaStatus.RBTIMEOUT
    assert X not in branches


def test_zero_is_the_default_timeout(branches: Branches) -> None:
    branches.start(Session(), X)
    branches.set_timeout(X, 5)
    branches.set_timeout(X, 0)
    assert branches.get_timeout(X) == branch_module.TIMEOUT_DEFAULT_S
    with pytest.raises(NotAllowed, match="at most"):
        branches.set_timeout(X, branch_module.TIMEOUT_MAX_S + 1)


def test_a_prepared_branch_has_all_the_time(vhost: VirtualHost, queue: Queue) -> None:
    busy(vhost, queue)
    vhost.branches.prepare(X)
    vhost.branches.set_timeout(X, 1)
    pass_time(vhost, 10 * branch_module.TIMEOUT_MAX_S)
    assert vhost.branches.commit(X) is XaStatus.OK


def test_what_failed_is_forgotten_some_time(vhost: VirtualHost) -> None:
    branches = vhost.branches
    session = Session()
    branches.start(session, X)
    branches.set_timeout(X, 1)
    pass_time(vhost, 1)
    pass_time(vhost, 1000)
    assert X in branches  # A session still has to hear it.
    branches.end(session, X)
    pass_time(vhost, 1000)
    assert X not in branches


def test_branches_and_xids_are_bounded(branches: Branches, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotAllowed, match="too long"):
        branches.start(Session(), Xid(1, bytes(256), b""))
    monkeypatch.setattr(branch_module, "BRANCHES_MAX", 1)
    branches.start(Session(), X)
    with pytest.raises(ResourceError, match="more than 1 transaction branches"):
        branches.start(Session(), Y)


def test_the_end_of_the_broker_undoes_what_is_not_prepared(
    vhost: VirtualHost, queue: Queue
) -> None:
    put(vhost, queue, b"a", b"b")
    busy(vhost, queue, Y)
    vhost.branches.prepare(Y)
    session = Session()
    vhost.branches.start(session, X)
    transaction(session).settle(queue, take(queue), ACCEPT)
    vhost.branches.close()
    assert session.transaction is None
    assert bodies(queue) == [b"b"]
    assert vhost.branches.recover() == [Y]


@pytest.mark.parametrize(
    ("text", "xid"),
    [
        ("order-17", Xid(0, b"order-17", b"")),
        ("a:b", Xid(0, b"a:b", b"")),
        ("7:0102:ff", Xid(7, b"\x01\x02", b"\xff")),
        ("ffffffff::", Xid(0xFFFFFFFF, b"", b"")),
        ("100000000:00:00", Xid(0, b"100000000:00:00", b"")),
    ],
)
def test_an_xid_as_text(text: str, xid: Xid) -> None:
    assert Xid.parse(text) == xid
    assert Xid.parse(str(xid)) == xid
    assert Xid.decode(xid.encode()) == xid
