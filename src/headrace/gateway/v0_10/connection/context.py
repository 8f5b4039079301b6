# SPDX-License-Identifier: Apache-2.0
"""State that the 0-10 connections of a broker share, in addition to the state of all versions."""

from __future__ import annotations

import socket
import time
import uuid
from typing import TYPE_CHECKING, TypeVar

from headrace.gateway.v0_10.handlers import CommandHandlers
from headrace.gateway.v0_10.session.fragments import Fragments
from headrace.gateway.v0_10.session.session import Session010
from headrace.protocol.v0_10.session.registry import Sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.gateway.connection.client import Client
    from headrace.gateway.connection.context import Context
    from headrace.gateway.v0_10.session.context import AttachingConnection
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.wire.types_0_10 import Map

State = TypeVar("State")

FEATURES = ["qpid.jms-selector"]  # Without it, clients apply selectors themselves.


class Context010:
    """State that the 0-10 connections of one broker share."""

    def __init__(
        self,
        context: Context,
        served: Iterable[Callable[[CommandHandlers], None]],
        *,
        default_vhost: str = "/",
        session_timeout_s: int = 3600,
        detached_max: int = 1024,
        strict_arguments: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Each function of ``served`` adds handlers of commands.

        ``default_vhost`` is opened by clients that name none. At most ``detached_max`` sessions
        without a connection are kept, for at most ``session_timeout_s``. ``clock`` returns seconds
        that never run backwards.
        """
        self.context = context
        self.access = context.access
        self.default_vhost = default_vhost
        self.commands = CommandHandlers()
        for register in served:
            register(self.commands)
        self.handlers = self.commands.handlers
        self.strict_arguments = strict_arguments  # The default of virtual hosts without a rule.
        self.fragments = Fragments(context.counters, context.body_max)
        # The states that plug-ins keep for whole connections, by their numbers.
        self.shared_states: dict[int, dict[type, object]] = {}
        self.attaching: AttachingConnection | None = None  # The connection that attaches a session.
        self.sessions = Sessions(
            self.make_session,
            clock,
            detached_max=detached_max,
            timeout_max_s=session_timeout_s,
        )
        self.federation_tag = str(uuid.uuid4())

    def shared_state(self, number: int, state_class: type[State]) -> State:
        """Return the state of one class that a plug-in keeps for a connection."""
        states = self.shared_states.setdefault(number, {})
        state = states.get(state_class)
        if state is None:
            state = states[state_class] = state_class()
        assert isinstance(state, state_class)
        return state

    def remove_states(self, number: int) -> None:
        """Remove the states of an ended connection."""
        self.shared_states.pop(number, None)

    def make_session(self, name: bytes) -> Session010:
        """Make a session for the connection that attaches it."""
        assert self.attaching is not None
        return Session010(name, self.attaching)

    # Keeps 0-10/s008.
    def server_properties_for(self, connection: Client) -> Map:
        """Return the server properties for a client."""
        server_properties = self.context.pop_server_properties(connection)
        properties = {
            key: value for key, value in server_properties.items() if isinstance(value, str)
        }
        return {
            **properties,
            "host": socket.gethostname(),
            "qpid.federation_tag": self.federation_tag,
            "qpid.features": [*FEATURES],
        }

    def drop_vhost(self, vhost: VirtualHost) -> None:
        """End the detached sessions of a deleted virtual host."""
        for session in list(self.sessions.waiting):
            if isinstance(session, Session010) and session.vhost is vhost:
                session.end()
