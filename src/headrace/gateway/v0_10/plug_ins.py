# SPDX-License-Identifier: Apache-2.0
"""The commands of 0-10 that a broker serves, and the plug-ins that add others.

A plug-in is a feature that few clients use, in a folder of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_10 import content_classes
from headrace.gateway.v0_10.commands import dtx, exchange, message, queue, tx

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.v0_10.handlers import CommandHandlers


def register_commands(commands: CommandHandlers) -> None:
    """Add the handlers of the commands that do not belong to a plug-in."""
    for module in (message, exchange, queue, tx, dtx):
        commands.handlers.update(module.HANDLERS)


SERVED: tuple[Callable[[CommandHandlers], None], ...] = (
    register_commands,
    content_classes.register,
)
