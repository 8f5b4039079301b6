# SPDX-License-Identifier: Apache-2.0
"""The dtx class of 0-10 over the wire: every command, every refusal, outcomes by other sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.protocol.codec_0_10 import (
    Command,
    DtxCommit,
    DtxEnd,
    DtxForget,
    DtxGetTimeout,
    DtxPrepare,
    DtxRecover,
    DtxRollback,
    DtxSelect,
    DtxSetTimeout,
    DtxStart,
    MessageAccept,
    QueueDeclare,
    QueueQuery,
    TxCommit,
    TxSelect,
    Xid,
)
from headrace.protocol.codec_0_x import DtxSelect as DtxSelect0x
from headrace.protocol.codec_0_x import DtxSelectOk, DtxStartOk
from headrace.protocol.codec_0_x import DtxStart as DtxStart0x
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.spec.tables import V0_9
from headrace.testing.raw_client import RawClient
from headrace.testing.raw_session import RawSession
from headrace.wire.ranges import SequenceSet
from support.brokers.broker_process import Served
from support.clients.command_client_0_10 import Talk

if TYPE_CHECKING:
    from support.brokers.broker_process import Remote

OK, RBROLLBACK, RBTIMEOUT, HEURCOM, RDONLY = 0, 1, 2, 4, 7
Sessions = Callable[..., RawSession]


@pytest.fixture
def sessions(served: Served | Remote, name: str) -> Iterator[Sessions]:
    """Open sessions, each on a connection of its own."""
    talks: list[Talk] = []

    def one(**how: Any) -> RawSession:
        talks.append(Talk(served.port, **how))
        return talks[-1].attach(f"{name}-{len(talks)}")

    yield one
    for talk in talks:
        talk.close()


@pytest.fixture
def xid(name: str) -> Xid:
    return Xid(format=1, global_id=name.encode(), branch_id=b"b")


def status(session: RawSession, command: Command) -> int:
    found: int = session.call(command).status
    return found


def begin(session: RawSession, xid: Xid, **flags: bool) -> None:
    session.call(DtxSelect())
    assert status(session, DtxStart(xid=xid, **flags)) == OK


def count(session: RawSession, queue: str) -> int:
    found: int = session.call(QueueQuery(queue=queue)).message_count
    return found


def accept(session: RawSession, *ids: int) -> None:
    session.call(MessageAccept(transfers=SequenceSet([(number, number) for number in ids])))


def busy(sessions: Sessions, name: str, xid: Xid) -> RawSession:
    """Return a session that took ``a`` and published ``new`` for a branch that it has ended."""
    session = sessions()
    session.call(QueueDeclare(queue=name))
    session.publish(b"a", name)
    begin(session, xid)
    session.subscribe(name)
    delivery = session.take_deliveries(1)[0]
    accept(session, delivery.id)
    session.publish(b"new", name)
    assert status(session, DtxEnd(xid=xid)) == OK
    return session


@pytest.mark.rule("0-10/s109")
@pytest.mark.parametrize("two_phases", [False, True])
def test_a_commit(sessions: Sessions, name: str, xid: Xid, two_phases: bool) -> None:
    session = busy(sessions, name, xid)
    coordinator = sessions()
    assert count(coordinator, name) == 0
    if two_phases:
        assert status(coordinator, DtxPrepare(xid=xid)) == OK
        assert coordinator.call(DtxRecover()).in_doubt == [xid]
        assert count(coordinator, name) == 0
    assert status(coordinator, DtxCommit(xid=xid, one_phase=not two_phases)) == OK
    assert coordinator.call(DtxRecover()).in_doubt in (None, [])
    assert session.bodies(1) == [b"new"]
    session.publish(b"at once", name)  # Outside of start and end, nothing is transactional.
    assert session.bodies(1) == [b"at once"]


@pytest.mark.parametrize("two_phases", [False, True])
def test_a_branch_is_refused_nothing_for_want_of_room(
    sessions: Sessions, name: str, xid: Xid, two_phases: bool
) -> None:
    """All of it happens, or nothing: its coordinator could do nothing about a part."""
    session, late = sessions(), sessions()
    arguments: dict[str, Any] = {"qpid.max_count": 1, "qpid.policy_type": "reject"}
    session.call(QueueDeclare(queue=name, arguments=arguments))
    begin(session, xid)
    for body in (b"1", b"2"):
        session.publish(body, name)
    assert status(session, DtxEnd(xid=xid)) == OK
    if two_phases:
        assert status(session, DtxPrepare(xid=xid)) == OK
    assert status(session, DtxCommit(xid=xid, one_phase=not two_phases)) == OK
    full = Xid(format=1, global_id=name.encode(), branch_id=b"full")
    assert status(session, DtxStart(xid=full)) == OK
    session.publish(b"3", name)
    assert status(session, DtxEnd(xid=full)) == OK
    last = DtxPrepare(xid=full) if two_phases else DtxCommit(xid=full, one_phase=True)
    refused(sessions(), last, ExecutionCode.RESOURCE_LIMIT_EXCEEDED)
    session.subscribe(name, accept_mode=1)
    assert session.bodies(2) == [b"1", b"2"]
    assert status(late, last) == OK  # Now there is room.
    if two_phases:
        assert status(late, DtxCommit(xid=full)) == OK
    assert session.bodies(1) == [b"3"]


@pytest.mark.parametrize("two_phases", [False, True])
def test_a_rollback(sessions: Sessions, name: str, xid: Xid, two_phases: bool) -> None:
    session = busy(sessions, name, xid)
    coordinator = sessions()
    if two_phases:
        assert status(coordinator, DtxPrepare(xid=xid)) == OK
    assert status(coordinator, DtxRollback(xid=xid)) == OK
    again = session.take_deliveries(1)[0]
    assert again.body == b"a"
    assert again.delivery.redelivered
    assert count(coordinator, name) == 0


def test_suspend_resume_and_join(sessions: Sessions, name: str, xid: Xid) -> None:
    first, second = sessions(), sessions()
    first.call(QueueDeclare(queue=name))
    begin(first, xid)
    first.publish(b"1", name)
    assert status(first, DtxEnd(xid=xid, suspend=True)) == OK
    first.publish(b"outside", name)
    assert count(second, name) == 1
    begin(second, xid, join=True)
    second.publish(b"2", name)
    assert status(second, DtxEnd(xid=xid)) == OK
    assert status(first, DtxStart(xid=xid, resume=True)) == OK
    first.publish(b"3", name)
    assert status(first, DtxEnd(xid=xid)) == OK
    assert status(second, DtxCommit(xid=xid, one_phase=True)) == OK
    second.subscribe(name)
    assert second.bodies(4) == [b"outside", b"1", b"2", b"3"]


@pytest.mark.rule("0-10/s119", "0-10/s120")
def test_a_failure(sessions: Sessions, name: str, xid: Xid) -> None:
    session = sessions()
    session.call(QueueDeclare(queue=name))
    begin(session, xid)
    session.publish(b"never", name)
    assert status(session, DtxEnd(xid=xid, fail=True)) == RBROLLBACK
    assert status(session, DtxPrepare(xid=xid)) == RBROLLBACK
    assert status(session, DtxRollback(xid=xid)) == RBROLLBACK
    assert count(session, name) == 0


@pytest.mark.rule("0-10/s117")
@pytest.mark.parametrize("how", ["detach", "drop"])
def test_a_session_that_ends(sessions: Sessions, name: str, xid: Xid, how: str) -> None:
    session, coordinator = sessions(), sessions()
    begin(session, xid)
    session.call(QueueDeclare(queue=name))
    session.publish(b"never", name)
    if how == "detach":
        session.detach()
    else:
        session.client.close()
    found = OK
    while found != RBROLLBACK:  # The session is over when the broker has seen it.
        found = one_answer(coordinator, sessions, DtxCommit(xid=xid, one_phase=True))
    assert count(sessions(), name) == 0


def one_answer(session: RawSession, sessions: Sessions, command: Command) -> int:
    """Return the status, or 0 where a session still works for the branch."""
    if session.exception is not None:
        session = sessions()
    number = session.send(command, sync=True)
    while number not in session.results and session.detached is None:
        session.client.pull()
    return 0 if session.exception is not None else session.results[number].status


def test_timeouts(sessions: Sessions, xid: Xid) -> None:
    session = sessions()
    begin(session, xid)
    assert session.call(DtxGetTimeout(xid=xid)).timeout == 3600
    session.call(DtxSetTimeout(xid=xid, timeout=60))
    assert session.call(DtxGetTimeout(xid=xid)).timeout == 60
    session.call(DtxSetTimeout(xid=xid, timeout=0))
    assert session.call(DtxGetTimeout(xid=xid)).timeout == 3600
    session.call(DtxSetTimeout(xid=xid, timeout=1))
    late = sessions()
    late.call(DtxSelect())
    found = OK
    while found == OK:
        found = status(late, DtxStart(xid=xid, join=True))
        if found == OK:
            late.call(DtxEnd(xid=xid))
    assert found == RBTIMEOUT
    assert status(session, DtxEnd(xid=xid)) == RBTIMEOUT
    assert status(session, DtxPrepare(xid=xid)) == RBTIMEOUT
    assert status(session, DtxRollback(xid=xid)) == RBTIMEOUT


def test_a_branch_without_work(sessions: Sessions, xid: Xid) -> None:
    session = sessions()
    begin(session, xid)
    assert status(session, DtxEnd(xid=xid)) == OK
    assert status(session, DtxPrepare(xid=xid)) == RDONLY


def test_an_operators_decision(
    sessions: Sessions, served: Served | Remote, name: str, xid: Xid
) -> None:
    session = busy(sessions, name, xid)
    assert status(session, DtxPrepare(xid=xid)) == OK
    text = f"1:{name.encode().hex()}:62"
    words = ["transaction", "commit", "--heuristic", "--url", served.url, text]
    assert CliRunner().invoke(main, words).output.strip() == "xa-heurcom"
    assert session.call(DtxRecover()).in_doubt == [xid]
    assert status(session, DtxCommit(xid=xid)) == HEURCOM
    assert status(session, DtxRollback(xid=xid)) == HEURCOM
    session.call(DtxForget(xid=xid))
    assert session.call(DtxRecover()).in_doubt in (None, [])


def test_the_outcome_of_an_older_versions_transaction(
    sessions: Sessions, served: Served | Remote, name: str
) -> None:
    client = RawClient(served.host, served.port, V0_9).open()
    client.declare(name)
    client.call(DtxSelect0x(), DtxSelectOk)
    client.call(DtxStart0x(dtx_identifier=name), DtxStartOk)
    client.publish(name, b"from 0-9")
    assert client.silent()
    session = sessions()
    named = Xid(format=0, global_id=name.encode(), branch_id=b"")
    assert status(session, DtxPrepare(xid=named)) == OK
    assert status(session, DtxCommit(xid=named)) == OK
    session.subscribe(name)
    assert session.bodies(1) == [b"from 0-9"]
    client.drop()


# --- Refusals -------------------------------------------------------------------------------------

UNKNOWN = Xid(format=9, global_id=b"nobody", branch_id=b"")


@pytest.mark.rule("0-10/s122", "0-10/s127", "0-10/s129", "0-10/s131", "0-10/s134", "0-10/s136")
@pytest.mark.parametrize(
    "command",
    [
        DtxCommit(xid=UNKNOWN),
        DtxCommit(xid=UNKNOWN, one_phase=True),
        DtxForget(xid=UNKNOWN),
        DtxGetTimeout(xid=UNKNOWN),
        DtxPrepare(xid=UNKNOWN),
        DtxRollback(xid=UNKNOWN),
        DtxSetTimeout(xid=UNKNOWN, timeout=1),
    ],
)
def test_an_unknown_xid(sessions: Sessions, command: Command) -> None:
    error = sessions().expect_exception(command)
    assert (error.error_code, error.field_index) == (ExecutionCode.NOT_FOUND, 0)


@pytest.mark.rule("0-10/s123", "0-10/s128", "0-10/s132", "0-10/s135")
@pytest.mark.parametrize("kind", [DtxCommit, DtxForget, DtxPrepare, DtxRollback])
@pytest.mark.parametrize("suspend", [False, True])
def test_a_branch_that_is_worked_for(
    sessions: Sessions, xid: Xid, kind: type[Command], suspend: bool
) -> None:
    session = sessions()
    begin(session, xid)
    if suspend:
        session.call(DtxEnd(xid=xid, suspend=True))
    error = sessions().expect_exception(kind(xid=xid))  # type: ignore[call-arg]
    assert error.error_code == ExecutionCode.ILLEGAL_STATE
    session.call(DtxEnd(xid=xid))


def refused(session: RawSession, command: Command, code: ExecutionCode) -> None:
    assert session.expect_exception(command).error_code == code


@pytest.mark.rule("0-10/s110", "0-10/s115")
@pytest.mark.parametrize("kind", [DtxStart, DtxEnd])
def test_select_comes_first(sessions: Sessions, xid: Xid, kind: type[Command]) -> None:
    refused(sessions(), kind(xid=xid), ExecutionCode.ILLEGAL_STATE)  # type: ignore[call-arg]


@pytest.mark.rule("0-10/s110")
def test_one_branch_at_a_time(sessions: Sessions, xid: Xid) -> None:
    session = sessions()
    begin(session, xid)
    refused(session, DtxStart(xid=UNKNOWN), ExecutionCode.ILLEGAL_STATE)


@pytest.mark.rule("0-10/s111", "0-10/s113")
def test_an_xid_is_started_once(sessions: Sessions, xid: Xid) -> None:
    session = sessions()
    begin(session, xid)
    session.call(DtxEnd(xid=xid))
    refused(session, DtxStart(xid=xid), ExecutionCode.NOT_ALLOWED)


@pytest.mark.rule("0-10/s112", "0-10/s114", "0-10/s116")
@pytest.mark.parametrize("flags", [("join", "resume"), ("fail", "suspend")])
def test_flags_that_exclude_each_other(
    sessions: Sessions, xid: Xid, flags: tuple[str, str]
) -> None:
    session = sessions()
    begin(session, xid)
    kind = DtxStart if flags[0] == "join" else DtxEnd
    error = session.expect_exception(kind(xid=xid, **dict.fromkeys(flags, True)))
    assert (error.error_code, error.field_index) == (ExecutionCode.NOT_ALLOWED, 2)


@pytest.mark.parametrize("flag", ["join", "resume"])
def test_what_is_not_there_is_not_joined(sessions: Sessions, flag: str) -> None:
    session = sessions()
    session.call(DtxSelect())
    refused(session, DtxStart(xid=UNKNOWN, **{flag: True}), ExecutionCode.NOT_ALLOWED)


@pytest.mark.rule("0-10/s118")
@pytest.mark.parametrize("suspend", [False, True])
def test_a_branch_is_ended_by_who_works_for_it(sessions: Sessions, xid: Xid, suspend: bool) -> None:
    session, stranger = sessions(), sessions()
    begin(session, xid)
    stranger.call(DtxSelect())
    refused(stranger, DtxEnd(xid=xid, suspend=suspend), ExecutionCode.ILLEGAL_STATE)


def test_a_branch_is_resumed_by_who_suspended_it(sessions: Sessions, xid: Xid) -> None:
    session, stranger = sessions(), sessions()
    begin(session, xid)
    session.call(DtxEnd(xid=xid, suspend=True))
    stranger.call(DtxSelect())
    refused(stranger, DtxStart(xid=xid, resume=True), ExecutionCode.ILLEGAL_STATE)


@pytest.mark.rule("0-10/s121", "0-10/s124", "0-10/s125", "0-10/s126", "0-10/s130", "0-10/s133")
def test_outcomes_in_the_wrong_state(sessions: Sessions, name: str, xid: Xid) -> None:
    busy(sessions, name, xid)
    refused(sessions(), DtxCommit(xid=xid), ExecutionCode.ILLEGAL_STATE)
    refused(sessions(), DtxForget(xid=xid), ExecutionCode.ILLEGAL_STATE)
    assert status(sessions(), DtxPrepare(xid=xid)) == OK
    refused(sessions(), DtxCommit(xid=xid, one_phase=True), ExecutionCode.ILLEGAL_STATE)
    refused(sessions(), DtxPrepare(xid=xid), ExecutionCode.ILLEGAL_STATE)
    refused(sessions(), DtxForget(xid=xid), ExecutionCode.ILLEGAL_STATE)
    late = sessions()
    late.call(DtxSelect())
    refused(late, DtxStart(xid=xid, join=True), ExecutionCode.ILLEGAL_STATE)
    assert status(sessions(), DtxRollback(xid=xid)) == OK
    refused(sessions(), DtxRollback(xid=xid), ExecutionCode.NOT_FOUND)


def test_local_transactions_are_something_else(sessions: Sessions, xid: Xid) -> None:
    session = sessions()
    session.call(TxSelect())
    refused(session, DtxSelect(), ExecutionCode.ILLEGAL_STATE)
    for wrong in (TxSelect(), TxCommit()):
        session = sessions()
        begin(session, Xid(format=1, global_id=xid.global_id, branch_id=wrong.NAME.encode()))
        refused(session, wrong, ExecutionCode.ILLEGAL_STATE)


@pytest.mark.parametrize("kind", [DtxStart, DtxPrepare])
def test_an_xid_is_required(sessions: Sessions, kind: type[Command]) -> None:
    session = sessions()
    session.call(DtxSelect())
    assert session.expect_exception(kind()).error_code in (
        ExecutionCode.INVALID_ARGUMENT,
        ExecutionCode.ILLEGAL_ARGUMENT,
    )


# --- Restarts -------------------------------------------------------------------------------------


def test_a_prepared_branch_survives_kill_9(tmp_path: Path) -> None:
    broker = Served(tmp_path).start()
    session = Talk(broker.port).attach()
    session.call(QueueDeclare(queue="q", durable=True))
    for body in (b"1", b"2"):
        session.publish(body, "q", delivery_mode=2)
    xid = Xid(format=1, global_id=b"g", branch_id=b"b")
    begin(session, xid)
    session.subscribe("q", messages=1)
    accept(session, session.take_deliveries(1)[0].id)
    session.publish(b"new" * 50_000, "q", delivery_mode=2)
    session.call(DtxEnd(xid=xid))
    assert status(session, DtxPrepare(xid=xid)) == OK
    broker.kill()
    broker.start()
    session = Talk(broker.port).attach()
    assert session.call(DtxRecover()).in_doubt == [xid]
    assert count(session, "q") == 1
    assert status(session, DtxCommit(xid=xid)) == OK
    broker.kill()
    broker.start()
    session = Talk(broker.port).attach()
    session.subscribe("q")
    assert session.bodies(2) == [b"2", b"new" * 50_000]
    assert session.call(DtxRecover()).in_doubt in (None, [])
    session.client.close()
    broker.end()
