# SPDX-License-Identifier: Apache-2.0
"""The calls by which a 0-8, 0-9 or 0-9-1 connection reports to its owner.

The machine calls its owner, a subclass of :class:`Upcalls`. A machine without an owner of its own,
such as a client's, has an :class:`EventCollector`, which makes an event of each call.
"""

import logging
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
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
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.protocol.endpoint import BodySink
    from headrace.spec.tables import Version

log = logging.getLogger(__name__)


class Upcalls:
    """The owner of a connection; a call that a subclass does not override has no effect."""

    def __init__(self) -> None:
        self.events: list[Event] = []  # Events that the owner has not read yet.

    # --- The connection -----------------------------------------------------------------------

    def on_header(self, version: "Version") -> None:
        """Handle the client's protocol header, which the server accepted for ``version``."""

    def on_rejected(self, header: bytes) -> None:
        """Handle the first bytes of a peer without a common version; ``header`` holds them."""

    def on_heartbeat(self) -> None:
        """Handle a heartbeat."""

    def on_failed(self, channel: Channel | None, error: AmqpError) -> None:
        """Handle an error of the peer, whose close is written; None is the connection."""

    def on_closed(self) -> None:
        """Handle the end of the connection: the transport may close once the output is sent."""

    def on_turn_end(self) -> None:
        """Handle the end of a read, all of whose complete frames were handled."""

    def explain(self, error: Exception, method: int) -> AmqpError:
        """Return the protocol's error for another exception.

        ``method`` is being handled: class id << 16 | method id.
        """
        log.error("internal error on method %#x", method, exc_info=error)
        return AmqpError(ReplyCode.INTERNAL_ERROR, "internal error")

    def pause_reading(self, paused: bool) -> None:
        """Pause or resume reading, because too many frames wait on busy channels."""

    def will_answer(self) -> bool:
        """Return False if deferred answers cannot be sent, as the disk is full."""
        return True

    # --- Channels and methods -----------------------------------------------------------------

    def make_channel(self, number: int) -> Channel:
        """Make the object of a channel that the peer opens."""
        return Channel(number)

    def on_method(self, channel: Channel | None, number: int, method: MethodBase) -> None:
        """Handle a method without content; the machine may have handled it already."""

    def on_channel_removed(self, channel: Channel) -> None:
        """Handle the removal of a channel, whose number is free again."""

    def resume_later(self, channel: Channel) -> None:
        """Call the connection's ``resume`` once the peer has read the output that waits."""

    # --- Contents -----------------------------------------------------------------------------

    def body_sink(
        self, channel: Channel, method: MethodBase, header: bytes, body_size: int
    ) -> "BodySink | None":
        """Return the sink for the body of a content; None to keep the body in memory.

        With a sink, :meth:`on_content` gets an empty body after the last byte.
        """
        return None

    def on_content(self, channel: Channel, method: MethodBase, header: bytes, body: bytes) -> None:
        """Handle a method with its complete content."""

    def on_ticket(self, channel: Channel, ticket: int, address: bytes) -> None:
        """Check the access ticket of a publish; ``address`` holds exchange and routing key."""

    def on_publish(
        self,
        channel: Channel,
        buffer: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
    ) -> None:
        """Handle a complete basic.publish.

        ``buffer[args:end]`` holds exchange and routing key, a byte of flags, a frame end, then from
        ``header`` on the header frame and the body frames, checked as frames but not decoded.
        """

    def on_publish_large(
        self,
        channel: Channel,
        start: bytes,
        address_len: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        """Handle a complete basic.publish with a body above ``INLINE_BODY_MAX``.

        ``start`` is laid out as in :meth:`on_publish`, without the body.
        """

    def on_ack(self, channel: Channel, delivery_tag: int, multiple: int) -> None:
        """Handle a basic.ack."""


class EventCollector(Upcalls):
    """Collects an event for each call, for an owner that takes events."""

    def __init__(self, version: "Version", is_server: bool) -> None:
        Upcalls.__init__(self)
        self.version = version
        self.is_server = is_server

    def on_header(self, version: "Version") -> None:
        self.version = version

    def on_rejected(self, header: bytes) -> None:
        if not self.is_server:
            self.events.append(HeaderRejected(header))

    def on_heartbeat(self) -> None:
        self.events.append(HeartbeatReceived())

    def on_failed(self, channel: Channel | None, error: AmqpError) -> None:
        self.events.append(Failed(0 if channel is None else channel.number, error))

    def on_method(self, channel: Channel | None, number: int, method: MethodBase) -> None:
        self.events.append(MethodReceived(number, method))

    def on_content(self, channel: Channel, method: MethodBase, header: bytes, body: bytes) -> None:
        self.events.append(ContentReceived(channel.number, method, header, body))

    def on_publish(
        self,
        channel: Channel,
        buffer: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
        body_size: int,
    ) -> None:
        self.events.append(self.decode_publish(channel, buffer, args, address_len, header, end))

    def decode_publish(
        self,
        channel: Channel,
        buffer: bytes | bytearray,
        args: int,
        address_len: int,
        header: int,
        end: int,
    ) -> ContentReceived:
        """Return the event for the encoded arguments of :meth:`on_publish`."""
        payload = b"\x00\x3c\x00\x28\x00\x00" + cut(buffer, args, args + address_len + 1)
        size = get32(buffer, header + 3)
        position = header + 8 + size
        pieces = []
        while position < end:
            pieces.append(cut(buffer, position + 7, position + 7 + get32(buffer, position + 3)))
            position += 8 + get32(buffer, position + 3)
        return ContentReceived(
            channel.number,
            decode_method(self.version, payload),
            cut(buffer, header + 7, header + 7 + size),
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
        content = self.decode_publish(channel, start, 0, address_len, address_len + 2, len(start))
        self.events.append(
            ContentReceived(content.channel, content.method, content.header, b"".join(parts))
        )

    def on_ack(self, channel: Channel, delivery_tag: int, multiple: int) -> None:
        payload = b"\x00\x3c\x00\x50" + delivery_tag.to_bytes(8, "big") + bytes((multiple,))
        self.on_method(channel, channel.number, decode_method(self.version, payload))
