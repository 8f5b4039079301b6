# SPDX-License-Identifier: Apache-2.0
"""The tx class of 0-10: transfers and accepts of a session that happen together.

`headrace.model.transaction.transaction` commits them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.connection.plug_in_state import channel_states
from headrace.model.transaction.transaction import Transaction
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.gateway.v0_10.handlers import Handler
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.protocol.codec_0_10 import TxCommit, TxRollback, TxSelect


# Keeps 0-10/s103, 0-10/s104, 0-10/s106.
def select(session: Session010, command: TxSelect, header: bytes, parts: object) -> None:
    """Make a session transactional, once."""
    if session.selected_tx or session.selected_dtx:
        raise ExecutionError(ExecutionCode.ILLEGAL_STATE, "the session is transactional already")
    if any(subscription.accept_mode for subscription in session.subscriptions.values()):
        raise ExecutionError(
            ExecutionCode.NOT_ALLOWED, "a subscription of the session does not accept explicitly"
        )
    session.selected_tx = True
    session.transaction = Transaction(session.vhost)


def commit(session: Session010, command: TxCommit, header: bytes, parts: object) -> bool:
    """Commit the transaction; the command is complete when it is on disk.

    Raises:
        ExecutionError: the transaction is committed, except messages that a queue refused.
    """
    check(session)
    assert session.transaction is not None  # Set by `select`.
    refused = session.transaction.commit()
    session.deliveries.tx_settled.clear()
    session.deliveries.tx_returns.clear()
    for state in channel_states(session):
        state.commit()
    if refused:  # A transfer that was part of a transaction can no longer be rejected.
        raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, "partial tx completion")
    is_complete: bool = session.complete_when_durable()
    return is_complete


def rollback(session: Session010, command: TxRollback, header: bytes, parts: object) -> None:
    """Roll back the transaction; messages accepted in it are unsettled again."""
    check(session)
    assert session.transaction is not None
    session.transaction.forget()
    session.deliveries.undo_settles()
    for state in channel_states(session):
        state.rollback()


# Keeps 0-10/s107, 0-10/s108.
def check(session: Session010) -> None:
    """Refuse to end a transaction on a session without transactions."""
    if not session.selected_tx:
        raise ExecutionError(ExecutionCode.ILLEGAL_STATE, "the session is not transactional")


HANDLERS: dict[str, Handler] = {
    "tx.select": select,
    "tx.commit": commit,
    "tx.rollback": rollback,
}
