# SPDX-License-Identifier: Apache-2.0
"""Ports of a session to what it is made from: the connection that attaches it, and the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from headrace.gateway.connection.context import Context
    from headrace.gateway.messages.confirm_line import ConfirmLine
    from headrace.gateway.security.permissions import Rights
    from headrace.gateway.v0_10.session.fragments import Fragments
    from headrace.model.counters import Counters
    from headrace.model.ports import Store

State = TypeVar("State")


class SharedState(Protocol):
    """What the sessions of one broker share."""

    context: Context
    access: Rights
    fragments: Fragments
    strict_arguments: bool

    def shared_state(self, number: int, kind: type[State]) -> State:
        """Return the state of one kind that a plug-in keeps for a connection."""


class AttachingConnection(Protocol):
    """A connection that has opened its virtual host."""

    number: int
    user: Any  # As headrace.protocol.endpoint has them.
    vhost: Any
    counters: Counters
    store: Store
    line: ConfirmLine

    @property
    def shared(self) -> SharedState:
        """What all sessions share."""
