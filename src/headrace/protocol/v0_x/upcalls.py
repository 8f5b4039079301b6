# SPDX-License-Identifier: Apache-2.0
"""What the owner of a connection of AMQP 0-8, 0-9 or 0-9-1 is told, and may override.

The base class collects events; a gateway overrides the calls instead.
"""

import logging
from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.endpoint import Endpoint
    from headrace.protocol.output import BufferPool
    from headrace.protocol.v0_x.channel import Channel
    from headrace.wire.memory import cut, get32

from headrace.protocol.codec_0_x import MethodBase, decode_method
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.events import (
    ContentReceived,
    Event,
    Failed,
    HeaderRejected,
    HeartbeatReceived,
    MethodReceived,
)
from headrace.protocol.v0_x.handshake import Role
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import Version

log = logging.getLogger(__name__)


class Upcalls(Endpoint):
    """A connection, as far as it has something to say to its owner."""

    def __init__(self, pool: BufferPool, role: Role, version: Version) -> None:
        Endpoint.__init__(self, pool)
        self.role = role
        self.is_server = role is Role.SERVER
        self.version = version
        self.events: list[Event] = []
        self.current = 0  # The method being handled, class id << 16 | method id.

    # --- The connection -----------------------------------------------------------------------

    def on_header(self) -> None:
        """Server: the client's protocol header was accepted."""

    def on_rejected(self, header: bytes) -> None:
        """The peer does not speak our version, or, to a server, any: its first octets."""
        if not self.is_server:
            self.events.append(HeaderRejected(header))

    def on_heartbeat(self) -> None:
        """A heartbeat came."""
        self.events.append(HeartbeatReceived())

    def on_failed(self, channel: Channel | None, error: AmqpError) -> None:
        """The peer broke a rule; the close is written. ``channel`` is None for the connection."""
        self.events.append(Failed(0 if channel is None else channel.number, error))

    def on_closed(self) -> None:
        """Nothing more will come: the transport may go once the output is sent."""

    def turn_over(self) -> None:
        """All complete frames of one read were handled."""

    def explain(self, error: Exception) -> AmqpError:
        """Return what the peer is told of an exception that is not of the protocol."""
        log.error("internal error on method %#x", self.current, exc_info=error)
        return AmqpError(ReplyCode.INTERNAL_ERROR, "internal error")

    def hold_reading(self, hold: bool) -> None:
        """Too much waits on busy channels: read nothing more, or go on reading."""

    def answers_come(self) -> bool:
        """Return False if the answers that are owed cannot come now: the disk takes nothing."""
        return True

    # --- Channels and methods -----------------------------------------------------------------

    def make_channel(self, number: int) -> Channel:
        """Return the object for a channel that opens."""
        return Channel(number)

    def on_method(self, channel: Channel | None, number: int, method: MethodBase) -> None:
        """A method without content came, or one that the machine has dealt with itself."""
        self.events.append(MethodReceived(number, method))

    def resume_later(self, channel: Channel) -> None:
        """Call :meth:`resume` when the peer has read what waits."""

    # --- Contents -----------------------------------------------------------------------------

    def sink_of(self, channel: Channel, method: MethodBase, header: bytes, body_size: int) -> Any:
        """Return what takes the body of a content instead of memory, or None.

        It is given the body by ``add(octets)``, then :meth:`on_content` is called with an empty
        one; or ``abandon()`` is called when the rest does not come.
        """
        return None

    def on_content(self, channel: Channel, method: MethodBase, header: bytes, body: bytes) -> None:
        """A method with content is complete."""
        self.events.append(ContentReceived(channel.number, method, header, body))

    def on_ticket(self, channel: Channel, ticket: int, address: bytes) -> None:
        """A publish comes with an access ticket; ``address`` is exchange and routing key."""

    def on_publish(
        self,
        channel: Channel,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
    ) -> None:
        """A basic.publish is complete.

        ``d[args:end]`` holds exchange and routing key, an octet of flags, a frame end, then from
        ``header`` on the header frame and the body frames, checked as frames but not decoded.
        """
        content = self.content_of(channel, d, args, address_len, header, end)
        self.events.append(content)

    def content_of(
        self,
        channel: Channel,
        d: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
    ) -> ContentReceived:
        """Decode what :meth:`on_publish` was given."""
        payload = b"\x00\x3c\x00\x28\x00\x00" + cut(d, args, args + address_len + 1)
        size = get32(d, header + 3)
        at = header + 8 + size
        pieces = []
        while at < end:
            pieces.append(cut(d, at + 7, at + 7 + get32(d, at + 3)))
            at += 8 + get32(d, at + 3)
        return ContentReceived(
            channel.number,
            decode_method(self.version, payload),
            cut(d, header + 7, header + 7 + size),
            b"".join(pieces),
        )

    def on_publish_large(
        self,
        channel: Channel,
        start: bytes,
        address_len: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        """A basic.publish with a body above ``INLINE_BODY_MAX`` is complete.

        ``start`` is laid out as in :meth:`on_publish`, without the body.
        """
        content = self.content_of(channel, start, 0, address_len, address_len + 2, len(start))
        self.events.append(
            ContentReceived(content.channel, content.method, content.header, b"".join(parts))
        )

    def on_ack(self, channel: Channel, delivery_tag: int, multiple: int) -> None:
        """A basic.ack came."""
        payload = b"\x00\x3c\x00\x50" + delivery_tag.to_bytes(8, "big") + bytes((multiple,))
        self.on_method(channel, channel.number, decode_method(self.version, payload))
