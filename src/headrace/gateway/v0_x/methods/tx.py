# SPDX-License-Identifier: Apache-2.0
"""The tx class of 0-8 to 0-9-1: atomic publishes and settlements of a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.connection.plug_in_state import channel_states
from headrace.model.errors import PreconditionFailed
from headrace.protocol.codec_0_x import (
    MethodBase,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import Handler


def select(connection: GatewayConnection, channel: Channel, method: TxSelect) -> MethodBase:
    """Put the channel in transaction mode."""
    if channel.confirms:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.dtx:
        raise PreconditionFailed("cannot switch from dtx to tx mode")
    channel.tx = True
    return TxSelectOk()


# Keeps 0-9-1/tx.commit#01.
def commit(connection: GatewayConnection, channel: Channel, method: TxCommit) -> None:
    """Commit by ``SlowPathReceiver.commit``; the answer waits until it is durable."""
    check_transactional(channel)
    connection.publish_receiver.commit(channel)
    connection.reply_when_durable(channel, TxCommitOk())


# Keeps 0-9-1/tx.rollback#01.
def rollback(connection: GatewayConnection, channel: Channel, method: TxRollback) -> MethodBase:
    """Forget the transaction's publishes and settlements."""
    check_transactional(channel)
    channel.tx_publishes = None
    channel.tx_settles = None
    channel.tx_bytes = 0
    for state in channel_states(channel):
        state.rollback()
    return TxRollbackOk()


def check_transactional(channel: Channel) -> None:
    """Refuse the end of a transaction on a channel without transactions."""
    if not channel.tx or channel.dtx:
        raise PreconditionFailed("channel is not transactional")


HANDLERS: dict[str, Handler] = {
    "tx.select": select,
    "tx.commit": commit,
    "tx.rollback": rollback,
}
