# SPDX-License-Identifier: Apache-2.0
"""Port of a client's connection, of any version, for the state that all connections share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.gateway.security.client_connection import ClientConnection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.protocol.endpoint import DurableLog
    from headrace.spec.tables import Version


class Client(ClientConnection, Protocol):
    """A client connection of any version, as the broker's services see it."""

    user: Any  # The type is as in headrace.protocol.endpoint; None before the login.
    vhost: Any  # None before connection.open.
    transport: Any
    current: int  # Number of the method that is handled.

    @property
    def mechanism(self) -> str:
        """The SASL mechanism of the client's login; empty before the login."""

    @property
    def client_properties(self) -> Mapping[str, object]:
        """The properties that the client sent when it connected."""

    def fail_changes(self, store: DurableLog) -> None:
        """Fail the changes that wait for a store that cannot write."""


class RelayableClient(Client, Protocol):
    """A connection that can be passed through to another broker."""

    @property
    def version(self) -> Version:
        """The version of AMQP that the client speaks."""

    @property
    def channel_max(self) -> int:
        """The highest channel number, as negotiated."""

    @property
    def frame_max(self) -> int:
        """The largest frame in bytes, as negotiated."""

    @property
    def heartbeat_s(self) -> int:
        """The interval of heartbeats, as negotiated."""
