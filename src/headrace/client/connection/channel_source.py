# SPDX-License-Identifier: Apache-2.0
"""The protocol of a connection that requests and streams use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.client.channel.channel import Channel
    from headrace.client.link.opening import Opening
    from headrace.spec.tables import Version
    from headrace.wire.table import Value


class ChannelSource(Protocol):
    """The members of a connection that open channels and describe the broker."""

    @property
    def address(self) -> str:
        """The URL of the broker, without user and password."""

    @property
    def version(self) -> Version:
        """The version of AMQP in use."""

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed for good."""

    @property
    def blocked(self) -> str | None:
        """The broker's reason not to read publishes; None while it reads."""

    @property
    def server_properties(self) -> Mapping[str, Value]:
        """The properties that the broker sent in connection.start."""

    async def ready(self) -> None:
        """Wait until the connection is ready, or closed for good."""

    def channel(self, *, confirm: bool) -> Opening[Channel]:
        """Open a channel: `await` it, or use it with `async with`."""
