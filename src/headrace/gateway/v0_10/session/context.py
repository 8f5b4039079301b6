# SPDX-License-Identifier: Apache-2.0
"""Ports of a session: to its connection and the broker, and of its parts to the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import cython

if not cython.compiled:
    from headrace.model.tallies import ChannelTally
    from headrace.protocol.v0_10.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.connection.context import Context
    from headrace.gateway.messages.pending_confirms import PendingConfirms
    from headrace.gateway.security.permissions import Rights
    from headrace.gateway.security.user import User
    from headrace.gateway.v0_10.session.fragments import Fragments
    from headrace.model.counters import Counters
    from headrace.model.ports import Store
    from headrace.model.queue.queue import Queue
    from headrace.model.transaction.transaction import Transaction
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.protocol.errors_0_10 import ExecutionError

State = TypeVar("State")


class SharedState(Protocol):
    """State that the sessions of one broker share."""

    context: Context
    access: Rights
    fragments: Fragments
    strict_arguments: bool

    def shared_state(self, number: int, state_class: type[State]) -> State:
        """Return the state of one class that a plug-in keeps for a connection."""


class AttachingConnection(Protocol):
    """A connection that has opened its virtual host."""

    number: int
    user: Any  # The types are as in headrace.protocol.endpoint.
    vhost: Any
    counters: Counters
    store: Store
    pending_confirms: PendingConfirms

    @property
    def shared(self) -> SharedState:
        """State that all sessions share."""


class SessionContext(Session):
    """A session, with the state that its parts share."""

    def __init__(self, name: bytes, connection: AttachingConnection) -> None:
        """``connection`` is the one that attaches it first."""
        Session.__init__(self, name)
        self.context: SharedState = connection.shared
        self.number = connection.number  # The number of the connection that attached it last.
        self.user: User = connection.user
        self.vhost: VirtualHost = connection.vhost
        self.counters: Counters = connection.counters
        self.store: Store = connection.store
        self.tally = ChannelTally()
        self.is_released = False  # All its resources were released.
        self.transaction: Transaction | None = None  # The open transaction of the session.
        self.reply_queue: Queue | None = None  # The queue of replies by direct reply-to.
        self.ended_tags: dict[str, None] = {}  # Subscriptions that the broker has ended recently.
        self.on_end: list[Callable[[], None]] = []

    def fail_now(self, error: ExecutionError) -> None:
        """End the session with an error at once, whatever is not durable yet."""
        Session.fail(self, error)

    # --- Permissions --------------------------------------------------------------------------

    def check_access(self, permission: str, resource_type: str, name: str) -> None:
        """Refuse access to a name on which the user lacks the permission."""
        self.context.access.check(self.user, self.vhost.name, permission, resource_type, name)

    def check_topic(self, permission: str, exchange: str, routing_key: str) -> None:
        """Refuse a routing key on which the user lacks the topic permission."""
        access = self.context.access
        access.check_topic(self.user, self.vhost, permission, exchange, routing_key)
