# SPDX-License-Identifier: Apache-2.0
"""The state that plug-ins keep on channels, sessions and connections.

Features that few clients use keep their state out of the channel's class. A channel has one slot
for all of it, ``plug_ins``, which is None until the first of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

State = TypeVar("State")


class Slot(Protocol):
    """A channel, a session or a connection."""

    plug_ins: dict[type, object] | None


class ChannelState:
    """A plug-in's state on one channel or session, which calls these methods."""

    def commit(self) -> None:
        """Apply the plug-in's part of the channel's transaction."""

    def rollback(self) -> None:
        """Discard the plug-in's part of the channel's transaction."""

    def end(self) -> None:
        """Release the state: the channel is closed."""


def ensure_state(owner: Slot, state_class: type[State], make: Callable[[], State]) -> State:
    """Return the state of one class that a plug-in keeps on ``owner``; make it on first use."""
    states = owner.plug_ins
    if states is None:
        states = owner.plug_ins = {}
    state = states.get(state_class)
    if state is None:
        state = states[state_class] = make()
    assert isinstance(state, state_class)
    return state


def channel_states(owner: Slot) -> list[ChannelState]:
    """Return the states of all plug-ins on a channel or session."""
    states = owner.plug_ins
    if states is None:
        return []
    return [state for state in states.values() if isinstance(state, ChannelState)]
