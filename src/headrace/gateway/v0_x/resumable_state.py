# SPDX-License-Identifier: Apache-2.0
"""A plug-in's state of a channel that may be resumed over another connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.connection.plug_in_state import ChannelState

if TYPE_CHECKING:
    from headrace.gateway.v0_x.connection.connection import GatewayConnection


class ResumableState(ChannelState):
    """A state that refers to the channel's connection."""

    def suspend(self) -> None:
        """Suspend the state: the connection is lost, and another may resume the channel."""

    def move_to(self, connection: GatewayConnection) -> None:
        """Move the state to the connection that has resumed the channel."""
