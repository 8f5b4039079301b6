# SPDX-License-Identifier: Apache-2.0
"""The port by which channels and consumers use their connection."""

from typing import Protocol

import cython

if not cython.compiled:
    from headrace.gateway.messages.pending_confirms import PendingConfirms
    from headrace.model.queue.queue import Queue
    from headrace.protocol.v0_x.channel import Channel as ProtocolChannel
    from headrace.protocol.v0_x.connection import Connection

from headrace.protocol.codec_0_x import MethodBase


class ConfirmingChannel(Protocol):
    """A channel in confirm mode."""

    def flush_confirms(self) -> None:
        """Join the queue of pending confirms once for all publishes of a read."""


class Peer(Connection):
    """A client's connection, as its channels see it."""

    unacked: int  # Unacked deliveries on all channels.
    prefetch: int  # The limit of unacked deliveries on the connection; 0 is no limit.
    pending_confirms: PendingConfirms  # The pending confirms of the virtual host's store.
    unflushed: list[ConfirmingChannel]  # Channels with publishes not yet in ``pending_confirms``.
    paused: list[ProtocolChannel]  # Channels that are busy until the client reads the output.
    speaks_extensions: bool  # True for 0-8 or 0-9 with methods and types that clients added.
    plain_source: bytes | None  # The latest content header that was converted to plain types.
    plain_result: bytes  # The result of that conversion.

    def reply(self, number: int, method: MethodBase) -> None:
        """Send a method on a channel, after the deferred answers."""

    def starve(self, queue: Queue) -> None:
        """Drain ``queue`` once the client has read the output."""

    def refresh_all(self) -> None:
        """Unpark all consumers, as the connection has credit again."""

    def send_confirm(self, channel: ProtocolChannel, token: int) -> None:
        """Send a confirm of a channel's publishes, which are durable or consumed.

        ``token`` is the number of the latest such publish; with ANSWER_NACK the confirm is a
        basic.nack of that publish.
        """

    def on_consumer_cancelled(self, channel: ProtocolChannel, tag: str) -> None:
        """Send basic.cancel for a consumer whose queue was deleted."""

    def on_consumer_ended(self, channel: ProtocolChannel, tag: str) -> None:
        """Send basic.cancel for a consumer that has reached its end."""

    def on_consumer_failed(self, channel: ProtocolChannel, error: Exception) -> None:
        """Close a consumer's channel with an error."""
