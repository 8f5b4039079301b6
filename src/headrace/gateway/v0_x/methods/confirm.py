# SPDX-License-Identifier: Apache-2.0
"""The confirm class of 0-9-1: confirms of a channel's publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import PreconditionFailed
from headrace.protocol.codec_0_x import ConfirmSelect, ConfirmSelectOk, MethodBase

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import Handler


def select(
    connection: GatewayConnection, channel: Channel, method: ConfirmSelect
) -> MethodBase | None:
    """Put the channel in confirm mode."""
    if channel.tx:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.confirms = True
    return None if method.no_wait else ConfirmSelectOk()


HANDLERS: dict[str, Handler] = {
    "confirm.select": select,
}
