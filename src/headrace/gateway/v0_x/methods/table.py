# SPDX-License-Identifier: Apache-2.0
"""The handlers of the methods of 0-8 to 0-9-1, without those of plug-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_x.methods import (
    basic,
    channel,
    confirm,
    connection,
    dtx,
    exchange,
    queue,
    tx,
)

if TYPE_CHECKING:
    from headrace.gateway.v0_x.connection.context import V0xContext


def register(context: V0xContext) -> None:
    """Add the handlers of these methods."""
    for each in (connection, channel, exchange, queue, basic, confirm, tx, dtx):
        context.methods.handlers.update(each.HANDLERS)
