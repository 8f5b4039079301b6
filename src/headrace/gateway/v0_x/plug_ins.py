# SPDX-License-Identifier: Apache-2.0
"""The methods of 0-8 to 0-9-1 that a broker serves, and the plug-ins that add others.

A plug-in is a feature that few clients use, in a folder of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_x import content_classes, early
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
    from collections.abc import Callable

    from headrace.gateway.v0_x.connection.context import V0xContext


def register_methods(context: V0xContext) -> None:
    """Add the handlers of the methods that do not belong to a plug-in."""
    for methods in (connection, channel, exchange, queue, basic, confirm, tx, dtx):
        context.methods.handlers.update(methods.HANDLERS)


#: The order counts: tickets guard the methods of all classes.
SERVED: tuple[Callable[[V0xContext], None], ...] = (
    register_methods,
    content_classes.register,
    early.register,
)
