# SPDX-License-Identifier: Apache-2.0
"""The port by which channels and consumers use their connection."""

from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.gateway.messages.confirm_line import ConfirmLine
    from headrace.model.queue.queue import Queue
    from headrace.protocol.v0_x.channel import Channel as ProtocolChannel
    from headrace.protocol.v0_x.connection import Connection

from headrace.protocol.codec_0_x import MethodBase

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel


class Peer(Connection):
    """A client's connection, seen from its channels."""

    unacked: int  # Deliveries on all channels.
    prefetch: int  # Deliveries that may be unacked on the whole connection; 0 is no limit.
    line: ConfirmLine  # That of its virtual host's store.
    unflushed: "list[Channel]"  # With publishes of this read that are not in the line yet.
    paused: list[ProtocolChannel]  # Busy until the client has read.
    speaks_more: bool  # 0-8 or 0-9 with the methods and types that the field's clients added.
    plain_from: bytes | None  # The content header that was last made plain,
    plain_to: bytes  # and what became of it.

    def reply(self, number: int, method: MethodBase) -> None:
        """Send a method on a channel, after the answers that it owes."""

    def starve(self, queue: Queue) -> None:
        """The client does not read: ``queue`` has to be drained once it does."""

    def refresh_all(self) -> None:
        """Credit of the whole connection came back: let all its queues look again."""

    def answer(self, channel: Any, token: int) -> None:
        """The log is durable up to the position at which a channel joined the confirm line."""

    def consumer_cancelled(self, consumer: Any) -> None:
        """A queue ended a consumer's part."""

    def consumer_ended(self, consumer: Any) -> None:
        """A consumer has all that it asked for."""

    def consumer_failed(self, consumer: Any, error: Exception) -> None:
        """A consumer cannot have what it asked for."""
