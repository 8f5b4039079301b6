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
    """A client's connection, as its channels use it."""

    unacked: int  # Deliveries on all channels.
    prefetch: int  # Deliveries that may be unacked on the whole connection; 0 is no limit.
    pending_confirms: PendingConfirms  # Those of its virtual host's store.
    unflushed: list[ConfirmingChannel]  # Channels with publishes that are not in the queue yet.
    paused: list[ProtocolChannel]  # Busy until the client has read.
    speaks_extensions: bool  # 0-8 or 0-9 with methods and types that clients in use have added.
    plain_from: bytes | None  # The content header that was last converted to plain types.
    plain_to: bytes  # The result of that conversion.

    def reply(self, number: int, method: MethodBase) -> None:
        """Send a method on a channel, after the deferred answers."""

    def starve(self, queue: Queue) -> None:
        """Drain ``queue`` once the client has read the output."""

    def refresh_all(self) -> None:
        """Unpark all consumers, as the connection has credit again."""

    def answer(self, channel: ProtocolChannel, token: int) -> None:
        """Send the confirm that a channel waited for: its publishes are durable or consumed."""

    def consumer_cancelled(self, channel: ProtocolChannel, tag: str) -> None:
        """Send basic.cancel for a consumer whose queue was deleted."""

    def consumer_ended(self, channel: ProtocolChannel, tag: str) -> None:
        """Send basic.cancel for a consumer that has reached its end."""

    def consumer_failed(self, channel: ProtocolChannel, error: Exception) -> None:
        """Close a consumer's channel with an error."""
