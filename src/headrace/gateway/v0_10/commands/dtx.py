# SPDX-License-Identifier: Apache-2.0
"""The dtx class of 0-10: work for transaction branches, and their outcomes.

A session works for a branch between start and end. Any session of the same virtual host may send an
outcome, also one without dtx.select; the answer is sent when the outcome is on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.gateway.v0_10.errors import field_error, translate
from headrace.model.errors import ModelError
from headrace.model.transaction.xid import Xid
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
    GetTimeoutResult,
    RecoverResult,
    XaResult,
)
from headrace.protocol.codec_0_10 import Xid as WireXid
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.gateway.v0_10.handlers import Handler
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.model.transaction.dtx import XaStatus

    DtxCommand = (  # All that name an xid.
        DtxStart
        | DtxEnd
        | DtxPrepare
        | DtxCommit
        | DtxRollback
        | DtxForget
        | DtxGetTimeout
        | DtxSetTimeout
    )


Answer = TypeVar("Answer")


def read_xid(command: DtxCommand) -> Xid:
    """Return the xid that a command names."""
    xid = command.xid
    if xid is None:
        raise field_error(ExecutionCode.INVALID_ARGUMENT, "an xid is missing", command, "xid")
    return Xid(xid.format or 0, xid.global_id or b"", xid.branch_id or b"")


def call_model(command: DtxCommand, call: Callable[[], Answer]) -> Answer:
    """Call the model; its errors name the field ``xid``."""
    try:
        return call()
    except ModelError as error:
        raise translate(error, command, "xid") from None


def result(session: Session010, status: XaStatus) -> None:
    """Send the status of a command."""
    session.send_result(session.command_id, XaResult(status=int(status)))


def select(session: Session010, command: DtxSelect, header: bytes, parts: object) -> None:
    """Let a session take part in distributed transactions."""
    if session.selected_tx:
        raise ExecutionError(ExecutionCode.ILLEGAL_STATE, "the session is transactional already")
    if not session.selected_dtx:
        session.selected_dtx = True
        session.on_end.append(partial(session.vhost.branches.on_worker_end, session))


# Keeps 0-10/s110, 0-10/s112.
def start(session: Session010, command: DtxStart, header: bytes, parts: object) -> None:
    """Begin, join or resume work for a branch."""
    if not session.selected_dtx:
        raise ExecutionError(ExecutionCode.ILLEGAL_STATE, "dtx.select comes before dtx.start")
    if command.join and command.resume:
        text = "join and resume exclude each other"
        raise field_error(ExecutionCode.NOT_ALLOWED, text, command, "resume")
    xid = read_xid(command)
    begin = partial(session.vhost.branches.start, session, xid)
    result(session, call_model(command, partial(begin, join=command.join, resume=command.resume)))


# Keeps 0-10/s115, 0-10/s116.
def end(session: Session010, command: DtxEnd, header: bytes, parts: object) -> None:
    """End or suspend work for a branch."""
    if not session.selected_dtx:
        raise ExecutionError(ExecutionCode.ILLEGAL_STATE, "dtx.select comes before dtx.end")
    if command.fail and command.suspend:
        text = "fail and suspend exclude each other"
        raise field_error(ExecutionCode.NOT_ALLOWED, text, command, "suspend")
    stop = partial(session.vhost.branches.end, session, read_xid(command))
    result(session, call_model(command, partial(stop, fail=command.fail, suspend=command.suspend)))


def prepare(session: Session010, command: DtxPrepare, header: bytes, parts: object) -> bool:
    """Prepare a branch for either outcome."""
    return outcome(session, command, session.vhost.branches.prepare)


def commit(session: Session010, command: DtxCommit, header: bytes, parts: object) -> bool:
    """Commit the work of a branch."""
    call = partial(session.vhost.branches.commit, one_phase=command.one_phase)
    return outcome(session, command, call)


def rollback(session: Session010, command: DtxRollback, header: bytes, parts: object) -> bool:
    """Roll back the work of a branch."""
    return outcome(session, command, session.vhost.branches.rollback)


def outcome(session: Session010, command: DtxCommand, call: Callable[[Xid], XaStatus]) -> bool:
    """Apply an outcome to a branch, and answer when it is on disk."""
    status = call_model(command, partial(call, read_xid(command)))
    is_complete: bool = session.complete_when_durable(XaResult(status=int(status)))
    return is_complete


def forget(session: Session010, command: DtxForget, header: bytes, parts: object) -> bool:
    """Free the xid of a branch that an operator has decided."""
    call_model(command, partial(session.vhost.branches.forget, read_xid(command)))
    is_complete: bool = session.complete_when_durable()
    return is_complete


def recover(session: Session010, command: DtxRecover, header: bytes, parts: object) -> None:
    """List the branches that are prepared or heuristically completed."""
    in_doubt = [
        WireXid(format=xid.format, global_id=xid.global_id, branch_id=xid.branch_id)
        for xid in session.vhost.branches.recover()
    ]
    session.send_result(session.command_id, RecoverResult(in_doubt=in_doubt))


def get_timeout(session: Session010, command: DtxGetTimeout, header: bytes, parts: object) -> None:
    """Send the timeout of a branch."""
    timeout_s = call_model(command, partial(session.vhost.branches.get_timeout, read_xid(command)))
    session.send_result(session.command_id, GetTimeoutResult(timeout=timeout_s))


def set_timeout(session: Session010, command: DtxSetTimeout, header: bytes, parts: object) -> None:
    """Limit the time that a branch may take."""
    branches = session.vhost.branches
    call_model(command, partial(branches.set_timeout, read_xid(command), command.timeout or 0))


HANDLERS: dict[str, Handler] = {
    "dtx.select": select,
    "dtx.start": start,
    "dtx.end": end,
    "dtx.prepare": prepare,
    "dtx.commit": commit,
    "dtx.rollback": rollback,
    "dtx.forget": forget,
    "dtx.recover": recover,
    "dtx.get-timeout": get_timeout,
    "dtx.set-timeout": set_timeout,
}
