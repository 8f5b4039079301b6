# SPDX-License-Identifier: Apache-2.0
"""The dtx class of 0-8 and 0-9: work of a channel on behalf of a distributed transaction.

These versions have ``select`` and ``start`` only. A transaction is known by its identifier; several
channels may start the same one. A coordinator, which is another client, decides the outcome: a
0-10 session, or ``headrace transaction``. The outcome ends the channel's work for the transaction;
the channel then starts another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import PreconditionFailed
from headrace.model.transaction.xid import Xid
from headrace.protocol.codec_0_x import (
    DtxSelect,
    DtxSelectOk,
    DtxStart,
    DtxStartOk,
    MethodBase,
)
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import Handler


def select(connection: GatewayConnection, channel: Channel, method: DtxSelect) -> MethodBase:
    """Put the channel in the mode of distributed transactions."""
    if channel.tx and not channel.dtx:
        raise PreconditionFailed("cannot switch from tx to dtx mode")
    if channel.confirms:
        raise PreconditionFailed("cannot switch from confirm to dtx mode")
    channel.tx = channel.dtx = True
    return DtxSelectOk()


def start(connection: GatewayConnection, channel: Channel, method: DtxStart) -> MethodBase:
    """Begin work for a transaction: it includes all later publishes and settlements."""
    if not channel.dtx:
        raise PreconditionFailed("the channel is not in dtx mode")
    identifier = method.dtx_identifier
    if not identifier:
        raise AmqpError(ReplyCode.SYNTAX_ERROR, "the identifier of a transaction must not be empty")
    xid = Xid.parse(identifier)
    branches = connection.vhost.branches
    current_branch = branches.current(channel)
    if current_branch is not None:
        if current_branch.xid == xid:
            raise PreconditionFailed(f"the transaction '{identifier}' was started already")
        branches.end(channel, current_branch.xid)
    if branches.start(channel, xid, join=xid in branches, ends_with_outcome=True):
        raise PreconditionFailed(f"the transaction '{identifier}' can only be rolled back")
    return DtxStartOk()


HANDLERS: dict[str, Handler] = {
    "dtx.select": select,
    "dtx.start": start,
}
