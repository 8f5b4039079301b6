# SPDX-License-Identifier: Apache-2.0
"""The base class of a channel and its mixins, which waits for the link of the connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from headrace.client.channel.pending_calls import Calls, Reply
from headrace.client.errors import ClientError, fresh

if TYPE_CHECKING:
    from headrace.client.channel.delivery import Outbox
    from headrace.client.connection.reconnect import Topology
    from headrace.client.link.backpressure import Backpressure
    from headrace.client.link.link_0_x import Link
    from headrace.protocol.codec_0_x import MethodBase
    from headrace.spec.tables import Version

FRAMES_YIELD_EVERY = 4  # Calls of `send_frames` after which the loop runs other tasks.


class ConnectionPort(Protocol):
    """The members of a connection that a channel uses."""

    backpressure: Backpressure
    topology: Topology  # The connection declares it again after a reconnection.

    @property
    def version(self) -> Version:
        """The version of AMQP in use."""

    @property
    def is_ready(self) -> bool:
        """True while connected, with everything restored after the last reconnection."""

    async def ready(self) -> None:
        """Wait until `is_ready`, or until the connection is closed for good."""

    def forget(self, channel: ChannelBase) -> None:
        """Free the number of a channel that is closed."""

    def consumes(self, queue: str) -> bool:
        """Return True if a channel of the connection consumes from the queue."""


class ChannelBase:
    """Sends on the connection's link, once the channel is open on it and the broker reads.

    A reconnection replaces the link. `_ready` and `_writable` wait for the new one.
    """

    def __init__(self, connection: ConnectionPort, number: int) -> None:
        self.connection = connection
        self.number = number
        self.backpressure: Backpressure = connection.backpressure
        self.topology: Topology = connection.topology
        self.ticket = 0  # The access ticket (0-8, 0-9), sent with every method that has one.
        self.outbox: Outbox | None = None  # Only programs without asyncio have one.
        self._link: Link | None = None
        self._epoch = 0  # The number of times that the channel was opened.
        self._calls = Calls(number, connection.backpressure)
        self._sent_count = 0  # Publishes and buffers of frames sent without a wait.
        self._flow = asyncio.Event()
        self._flow.set()
        self._error: ClientError | None = None

    def __repr__(self) -> str:
        return f"<Channel {self.number} of {self.connection!r}>"

    @property
    def is_closed(self) -> bool:
        """True if the channel is closed for good."""
        return self._error is not None

    def is_current(self, epoch: int) -> bool:
        """Return True if deliveries of that opening of the channel can still be settled."""
        return epoch == self._epoch and self._link is not None and self._link.is_open

    async def send_frames(self, frames: bytes | bytearray) -> None:
        """Send encoded frames of this channel, once the broker reads."""
        link = await self._writable()
        link.send_frames(frames)
        self._sent_count += 1
        if self._sent_count % FRAMES_YIELD_EVERY == 0:
            await asyncio.sleep(0)

    async def writable(self) -> Link:
        """Return the link once the broker reads; frames for this channel may be sent there."""
        return await self._writable()

    def stamp(self, method: MethodBase) -> None:
        """Set the channel's ticket on a method that has a field for it."""
        if self.ticket and getattr(method, "ticket", None) == 0:
            method.ticket = self.ticket  # type: ignore[attr-defined]  # It has one.

    # --- Inside -------------------------------------------------------------------------------

    async def _ready(self) -> Link:
        """Return the link once the channel is open on one."""
        while True:
            if self._error is not None:
                raise fresh(self._error)
            if self._link is not None and self.connection.is_ready:
                return self._link
            await self.connection.ready()

    async def _writable(self) -> Link:
        """Return the link once the broker reads."""
        while True:
            link = await self._ready()
            if not link.can_write.is_set():
                await link.can_write.wait()
            elif not self._flow.is_set():
                await self._flow.wait()
            else:
                return link

    async def _call(self, request: MethodBase, reply: type[Reply]) -> Reply:
        """Send a request and return its reply."""
        link = await self._ready()
        self.stamp(request)
        return await self._calls.exchange(link, request, reply)
