# SPDX-License-Identifier: Apache-2.0
"""Checks of the tx and dtx classes of 0-10."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.conformance.check import Site, check
from headrace.conformance.peer import must
from headrace.protocol.codec_0_10 import (
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
    MessageSubscribe,
    TxCommit,
    TxRollback,
    TxSelect,
    Xid,
)
from headrace.spec.reply_0_10 import AcceptMode, XaStatus

if TYPE_CHECKING:
    from headrace.conformance.session_peer import SessionPeer


@check("0-10/s103")
def tx_select_twice(site: Site) -> None:
    """tx.select is refused on a session that is transactional already."""
    peer = site.session()
    peer.call(TxSelect())
    peer.expect_refusal(TxSelect())


@check("0-10/s104")
def tx_select_of_dtx(site: Site) -> None:
    """tx.select is refused on a session that uses distributed transactions."""
    peer = site.session()
    xid = begin(peer)
    peer.expect_refusal(TxSelect())
    roll_back(site, xid)


@check("0-10/s105", "0-10/s106")
def tx_accepts_explicitly(site: Site) -> None:
    """A transactional session cannot have subscriptions that need no accept."""
    peer, queue = site.session_queue()
    peer.call(TxSelect())
    peer.expect_refusal(MessageSubscribe(queue=queue, destination="d", accept_mode=AcceptMode.NONE))
    peer.subscribe(queue, accept=False)
    peer.expect_refusal(TxSelect())


@check("0-10/s107")
def tx_commit_without_select(site: Site) -> None:
    """tx.commit is refused on a session without transactions."""
    site.session().expect_refusal(TxCommit())


@check("0-10/s108")
def tx_rollback_without_select(site: Site) -> None:
    """tx.rollback is refused on a session without transactions."""
    site.session().expect_refusal(TxRollback())


def begin(peer: SessionPeer) -> Xid:
    """Select and start a branch on the session of a peer."""
    xid = Xid(format=1, global_id=uuid4().bytes, branch_id=b"headrace.conformance")
    peer.call(DtxSelect())
    call_branch(peer, DtxStart(xid=xid))
    return xid


def call_branch(peer: SessionPeer, command: DtxStart | DtxEnd | DtxPrepare | DtxCommit) -> None:
    """Send a command of a branch, whose status must be xa-ok."""
    status = peer.call(command).status
    must(not status, f"{command.NAME} is xa-ok, not {status}")


def roll_back(site: Site, xid: Xid) -> None:
    """Roll back and forget a branch without a session."""
    site.session().call(DtxRollback(xid=xid))


@check("0-10/s109")
def dtx_commits(site: Site) -> None:
    """The work of a branch takes effect at its commit, in one or two phases, from any session."""
    for one_phase in (True, False):
        peer, manager = site.session(), site.session()
        queue = peer.declare(site.queue())
        xid = begin(peer)
        peer.publish(queue, b"x")
        call_branch(peer, DtxEnd(xid=xid))
        if not one_phase:
            call_branch(manager, DtxPrepare(xid=xid))
            must(xid in (manager.call(DtxRecover()).in_doubt or []), "dtx.recover names it")
        must(manager.count(queue) == 0, "nothing before the commit")
        call_branch(manager, DtxCommit(xid=xid, one_phase=one_phase))
        must(manager.bodies(queue) == [b"x"], "the message at the commit")


@check("0-10/s110", "0-10/s115")
def dtx_select_first(site: Site) -> None:
    """dtx.start and dtx.end are refused on a session without dtx.select."""
    peer = site.session()
    xid = Xid(format=1, global_id=uuid4().bytes, branch_id=b"")
    peer.expect_refusal(DtxStart(xid=xid))
    peer.expect_refusal(DtxEnd(xid=xid))


@check("0-10/s111", "0-10/s113")
def dtx_start_twice(site: Site) -> None:
    """dtx.start of a known branch is refused, unless it joins or resumes."""
    peer = site.session()
    xid = begin(peer)
    call_branch(peer, DtxEnd(xid=xid))
    peer.expect_refusal(DtxStart(xid=xid))
    roll_back(site, xid)


@check("0-10/s112", "0-10/s116")
def dtx_flags(site: Site) -> None:
    """join excludes resume, and suspend excludes fail."""
    peer = site.session()
    xid = begin(peer)
    call_branch(peer, DtxEnd(xid=xid, suspend=True))
    peer.expect_refusal(DtxStart(xid=xid, join=True, resume=True))
    peer = site.session()
    xid = begin(peer)
    peer.expect_refusal(DtxEnd(xid=xid, suspend=True, fail=True))


@check("0-10/s117")
def dtx_session_closes(site: Site) -> None:
    """A branch whose session closed before dtx.end cannot be committed."""
    peer, manager = site.session(), site.session()
    queue = manager.declare(site.queue())
    xid = begin(peer)
    peer.publish(queue, b"never")
    peer.session.close()
    status = manager.call(DtxPrepare(xid=xid)).status
    must(status == XaStatus.XA_RBROLLBACK, f"dtx.prepare says xa-rbrollback, not {status}")
    roll_back(site, xid)
    must(manager.count(queue) == 0, "nothing of it takes effect")


@check("0-10/s118", "0-10/s122")
def dtx_end_by_another(site: Site) -> None:
    """dtx.end is refused on a session that does not work for the branch."""
    peer, other = site.session(), site.session()
    xid = begin(peer)
    other.call(DtxSelect())
    other.expect_refusal(DtxEnd(xid=xid))
    other.call(DtxSelect())
    other.expect_refusal(DtxEnd(xid=Xid(format=1, global_id=uuid4().bytes, branch_id=b"")))
    call_branch(peer, DtxEnd(xid=xid))
    roll_back(site, xid)


@check("0-10/s120")
def dtx_end_fails(site: Site) -> None:
    """A branch that ended with fail has that status, and cannot be committed."""
    peer = site.session()
    xid = begin(peer)
    for command in (DtxEnd(xid=xid, fail=True), DtxPrepare(xid=xid)):
        status = peer.call(command).status
        must(status == XaStatus.XA_RBROLLBACK, f"{command.NAME}: xa-rbrollback, not {status}")
    roll_back(site, xid)


@check("0-10/s122", "0-10/s127", "0-10/s129", "0-10/s131", "0-10/s134", "0-10/s136")
def dtx_unknown_xid(site: Site) -> None:
    """Commands with an unknown branch are refused."""
    peer = site.session()
    xid = Xid(format=1, global_id=uuid4().bytes, branch_id=b"")
    for command in (
        DtxCommit(xid=xid, one_phase=True),
        DtxForget(xid=xid),
        DtxGetTimeout(xid=xid),
        DtxPrepare(xid=xid),
        DtxRollback(xid=xid),
        DtxSetTimeout(xid=xid, timeout=1),
    ):
        peer.expect_refusal(command)


@check("0-10/s123", "0-10/s128", "0-10/s132", "0-10/s135")
def dtx_still_at_work(site: Site) -> None:
    """A branch in use by a session cannot be committed, forgotten, prepared or rolled back."""
    peer, other = site.session(), site.session()
    xid = begin(peer)
    commit = DtxCommit(xid=xid, one_phase=True)
    for command in (commit, DtxForget(xid=xid), DtxPrepare(xid=xid), DtxRollback(xid=xid)):
        other.expect_refusal(command)
    call_branch(peer, DtxEnd(xid=xid))
    roll_back(site, xid)


@check("0-10/s121", "0-10/s124", "0-10/s125", "0-10/s126", "0-10/s130")
def dtx_order_of_outcomes(site: Site) -> None:
    """An unprepared branch is committed in one phase, a prepared one in two phases."""
    peer, manager = site.session(), site.session()
    queue = manager.declare(site.queue())
    xid = begin(peer)
    peer.publish(queue, b"x")
    call_branch(peer, DtxEnd(xid=xid))
    manager.expect_refusal(DtxCommit(xid=xid, one_phase=False))
    call_branch(manager, DtxPrepare(xid=xid))
    manager.expect_refusal(DtxCommit(xid=xid, one_phase=True))
    manager.expect_refusal(DtxPrepare(xid=xid))
    call_branch(manager, DtxCommit(xid=xid))
    must(manager.bodies(queue) == [b"x"], "the commit of what was prepared takes effect")
