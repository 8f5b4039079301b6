# SPDX-License-Identifier: Apache-2.0
"""The handlers of the commands of 0-10, without those of plug-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_10.commands import dtx, exchange, message, queue, tx

if TYPE_CHECKING:
    from headrace.gateway.v0_10.handlers import Commands


def register(commands: Commands) -> None:
    """Add the handlers of these commands."""
    for each in (message, exchange, queue, tx, dtx):
        commands.handlers.update(each.HANDLERS)
