# SPDX-License-Identifier: Apache-2.0
"""What all 0-10 connections of one broker share, beside what connections of all versions do."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.gateway.v0_10.commands.table import HANDLERS
from headrace.gateway.v0_10.connection.connection import Connection010
from headrace.gateway.v0_10.session.fragments import Fragments
from headrace.gateway.v0_10.session.session import Session010
from headrace.protocol.v0_10.session.registry import Sessions

if TYPE_CHECKING:
    from headrace.gateway.connection.context import Context
    from headrace.gateway.content_classes.files import Limits
    from headrace.gateway.content_classes.packets import Pace

FEATURES = ["qpid.jms-selector"]  # Clients that do not find it here select by themselves.


class Context010:
    """One broker, as its 0-10 connections see it."""

    def __init__(
        self,
        context: Context,
        *,
        default_vhost: str = "/",
        session_timeout_s: int = 3600,
        detached_max: int = 1024,
        strict_arguments: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``default_vhost`` is what a client opens that names none.

        ``session_timeout_s`` is the longest, and ``detached_max`` the largest number, that
        sessions without a connection are kept. ``clock`` gives seconds that never run backwards.
        """
        self.context = context
        self.access = context.access
        self.default_vhost = default_vhost
        self.handlers = HANDLERS
        self.strict_arguments = strict_arguments  # Of virtual hosts without a rule of their own.
        self.fragments = Fragments(context.counters, context.body_max)
        # What file.qos and stream.qos limit on whole connections, by their numbers.
        self.file_limits: dict[int, Limits] = {}
        self.paces: dict[int, Pace] = {}
        self.attaching: Any = None  # The connection that asks for a session now.
        self.sessions = Sessions(
            self.make_session,
            clock,
            detached_max=detached_max,
            timeout_max_s=session_timeout_s,
        )
        self.federation_tag = str(uuid.uuid4())

    def forget_limits(self, number: int) -> None:
        """A connection is over."""
        self.file_limits.pop(number, None)
        self.paces.pop(number, None)

    def connect(self, context: Context, number: int, loopback: bool) -> Connection010:
        """Make the connection of a client that speaks 0-10."""
        return Connection010(self, number, loopback)

    def make_session(self, name: bytes) -> Session010:
        """Make a session for the connection that asks for it."""
        return Session010(name, self.attaching)

    def introduction(self, connection: Any) -> dict[str, Any]:
        """What a client is told about the broker."""
        said = self.context.introduction(connection)
        properties = {key: value for key, value in said.items() if isinstance(value, str)}
        return {
            **properties,
            "host": socket.gethostname(),
            "qpid.federation_tag": self.federation_tag,
            "qpid.features": FEATURES,
        }

    def drop_vhost(self, vhost: Any) -> None:
        """End the detached sessions of a virtual host that is no more."""
        for session in list(self.sessions.waiting):
            if isinstance(session, Session010) and session.vhost is vhost:
                session.end()
