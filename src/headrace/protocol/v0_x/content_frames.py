# SPDX-License-Identifier: Apache-2.0
"""Methods with content of AMQP 0-8, 0-9 and 0-9-1: a method frame, a header frame, body frames.

A ``basic.publish`` whose content is complete in the buffer takes a fast path: one call with
offsets (``on_publish``), no objects. So does a delivery to a client's channel that has a collector.
The frames of every other content are read one by one and assembled on the channel. Both paths
end in the same calls (``on_publish``, ``on_publish_large``, ``on_content``), so the split of the
bytes into reads makes no difference.
"""

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool
    from headrace.protocol.v0_x.channel import Channel
    from headrace.protocol.v0_x.frames import ARGUMENTS_AT as C_ARGUMENTS_AT
    from headrace.protocol.v0_x.frames import BODY_SIZE_AT as C_BODY_SIZE_AT
    from headrace.protocol.v0_x.frames import CHANNEL_AT as C_CHANNEL_AT
    from headrace.protocol.v0_x.frames import FRAME_BODY as C_BODY
    from headrace.protocol.v0_x.frames import FRAME_END as C_END
    from headrace.protocol.v0_x.frames import FRAME_HEADER as C_HEADER
    from headrace.protocol.v0_x.frames import NO_PROPERTIES as C_NO_PROPERTIES
    from headrace.protocol.v0_x.frames import OVERHEAD as C_OVERHEAD
    from headrace.protocol.v0_x.frames import PAYLOAD_AT as C_PAYLOAD_AT
    from headrace.protocol.v0_x.frames import PUBLISH_ADDRESS_AT as C_PUBLISH_ADDRESS_AT
    from headrace.protocol.v0_x.frames import PUBLISH_END_LEN as C_PUBLISH_END_LEN
    from headrace.protocol.v0_x.frames import SIZE_AT as C_SIZE_AT
    from headrace.protocol.v0_x.frames import make_frame
    from headrace.protocol.v0_x.upcalls import Upcalls
    from headrace.spec.ids import BASIC_PUBLISH
    from headrace.wire.memory import cut, get16, get32, get64
    from headrace.wire.property_bits import BASIC_HEADER

from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import FRAME_BODY, FRAME_HEADER
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9_1, Version

PUBLISH = divmod(BASIC_PUBLISH, 1 << 16)  # Class and method id, as a close method contains them.
TICKET_CUSTOMARY = 1  # The largest ticket of clients that have not requested one: 0 or 1.
HANDSHAKE_BYTES_MAX = 16384  # The maximum bytes from a peer before the connection is open.
INLINE_BODY_MAX = 65536  # The maximum bytes of a body that is kept in one part.
# The unfinished bodies on all channels of a connection may have as many bytes as this number of
# bodies of the maximum size, and at least UNFINISHED_BYTES_MIN.
UNFINISHED_BODIES = 8
UNFINISHED_BYTES_MIN = 64 << 20
INLINE_WAIT_MAX = 98304  # The maximum bytes of an unfinished content in the read buffer.


class ContentReader:
    """Reads the contents of one connection and passes complete ones to its owner."""

    def __init__(
        self,
        pool: BufferPool,
        channels: dict[int, Channel],
        is_server: bool,
        frame_max: int,
        body_max: int,
    ) -> None:
        """``channels`` are the connection's; ``frame_max`` and ``body_max`` are bytes."""
        self.owner = Upcalls()
        self.pool = pool
        self.channels = channels
        self.is_server = is_server
        self.frame_max = frame_max  # The negotiated maximum bytes of a frame.
        # Keeps 0-9-1/s015, 0-9-1/s017, 0-9/connection.tune.frame-max#minimum,
        # 0-9/connection.tune-ok.frame-max#minimum.
        self.frame_limit = HANDSHAKE_BYTES_MAX - C_OVERHEAD  # The maximum bytes of a payload now.
        self.body_max = body_max
        self.frame_end = 0  # The offset after the frame or content that is being handled.
        self.is_replaying = False  # The frames waited: the end of a content may be in no buffer.

    def set_version(self, version: Version) -> None:
        """Read the contents of this version."""
        self.version = version
        self.is_early = version is not V0_9_1  # 0-8 or 0-9: has tickets, among other things.

    # --- Contents that are complete in the buffer ---------------------------------------------

    def publish_frames(
        self, channel: Channel, buffer: bytes | bytearray, pos: int, end: int, length: int
    ) -> int:
        """Handle a publish at ``pos``.

        A content that is complete in the buffer is passed on with offsets. An incomplete one waits
        for more input if it is small; else the method is kept, and the frames are read one by one.

        Returns:
            The offset after the handled frames; -1 - ``pos`` to wait for more input.
        """
        args = pos + C_PUBLISH_ADDRESS_AT
        if end - args < 3:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "basic.publish is cut short")
        key = args + 1 + buffer[args]
        if key >= end or key + 1 + buffer[key] + 1 != end:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "basic.publish has wrong lengths")
        if self.is_early and get16(buffer, pos + C_ARGUMENTS_AT) > TICKET_CUSTOMARY:
            self.owner.on_ticket(
                channel, get16(buffer, pos + C_ARGUMENTS_AT), cut(buffer, args, end - 1)
            )
        head = end + 1
        if length - head >= C_PAYLOAD_AT:
            size = get32(buffer, head + C_SIZE_AT)
            is_whole = (
                buffer[head] == C_HEADER
                and get16(buffer, head + C_CHANNEL_AT) == channel.number
                and C_NO_PROPERTIES <= size <= self.frame_limit
            )
            position = head + C_OVERHEAD + size
            if is_whole and position <= length:
                body_size = get64(buffer, head + C_BODY_SIZE_AT)
                is_whole = (
                    buffer[position - 1] == C_END
                    and get32(buffer, head + C_PAYLOAD_AT) == BASIC_HEADER
                    and body_size <= INLINE_BODY_MAX
                    and body_size <= self.body_max
                )
                received_size = 0
                while is_whole and received_size < body_size:
                    if length - position < C_PAYLOAD_AT:
                        break
                    size = get32(buffer, position + C_SIZE_AT)
                    if (
                        buffer[position] != C_BODY
                        or get16(buffer, position + C_CHANNEL_AT) != channel.number
                        or size > self.frame_limit
                        or size > body_size - received_size
                    ):
                        is_whole = False
                        break
                    if length - position < size + C_OVERHEAD:
                        break
                    if buffer[position + C_PAYLOAD_AT + size] != C_END:
                        is_whole = False
                        break
                    received_size += size
                    position += size + C_OVERHEAD
                if is_whole and received_size == body_size:
                    self.frame_end = position
                    self.owner.on_publish(
                        channel, buffer, args, end - args - 1, head, position, body_size
                    )
                    return position
        else:
            is_whole = length == head or buffer[head] == C_HEADER
        if is_whole and length - pos < INLINE_WAIT_MAX and not self.is_replaying:
            return -1 - pos
        channel.address = cut(buffer, args, end)
        return end + 1

    def deliver_frames(
        self,
        channel: Channel,
        buffer: bytes | bytearray,
        pos: int,
        end: int,
        length: int,
        first: bool,
    ) -> int:
        """Pass a delivery at ``pos`` to the channel's collector.

        The collector gets a delivery only if it is ``first``: before any event of this read. An
        incomplete delivery waits for more input even if it is not. Otherwise its end would be the
        first event of the next read, and no later delivery would reach the collector.

        Returns:
            The offset after the delivery; -1 to wait for more input; 0 if its frames are to be read
            one by one.
        """
        # This is one function because several would have to pass the positions, which are C locals.
        head = end + 1
        waits = length - pos < INLINE_WAIT_MAX and not self.is_replaying
        if length - head < C_PAYLOAD_AT:
            return -1 if waits else 0
        size = get32(buffer, head + C_SIZE_AT)
        if (
            buffer[head] != C_HEADER
            or get16(buffer, head + C_CHANNEL_AT) != channel.number
            or not C_NO_PROPERTIES <= size <= self.frame_limit
        ):
            return 0
        position = head + C_OVERHEAD + size
        if position > length:
            return -1 if waits else 0
        body_size = get64(buffer, head + C_BODY_SIZE_AT)
        if (
            buffer[position - 1] != C_END
            or get32(buffer, head + C_PAYLOAD_AT) != BASIC_HEADER
            or body_size > INLINE_BODY_MAX
            or body_size > self.body_max
        ):
            return 0
        received_size = 0
        while received_size < body_size:
            if length - position < C_PAYLOAD_AT:
                return -1 if waits else 0
            size = get32(buffer, position + C_SIZE_AT)
            if (
                buffer[position] != C_BODY
                or get16(buffer, position + C_CHANNEL_AT) != channel.number
                or size > self.frame_limit
                or size > body_size - received_size
            ):
                return 0
            if length - position < size + C_OVERHEAD:
                return -1 if waits else 0
            if buffer[position + C_PAYLOAD_AT + size] != C_END:
                return 0
            received_size += size
            position += size + C_OVERHEAD
        if not first:
            return 0
        size = get32(buffer, head + C_SIZE_AT)
        assert channel.collector is not None
        if not channel.collector.put(
            buffer,
            pos + C_ARGUMENTS_AT,
            end,
            head + C_PAYLOAD_AT,
            head + C_PAYLOAD_AT + size,
            position,
            body_size,
        ):
            return 0
        self.frame_end = position
        return position

    # --- Frame by frame -----------------------------------------------------------------------

    def header_frame(
        self, channel: Channel, buffer: bytes | bytearray, start: int, end: int
    ) -> None:
        """Handle a content header."""
        if not channel.expects_content() or channel.header is not None:
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, "content header where none is due")
        if end - start < C_NO_PROPERTIES:
            channel.abandon()
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "content header is cut short")
        class_id = get16(buffer, start)
        expected = 60 if channel.method is None else channel.method.INDEX[self.version][0]
        if class_id != expected:
            channel.abandon()
            raise AmqpError(
                ReplyCode.UNEXPECTED_FRAME,
                f"content header of class {class_id} after class {expected}",
            )
        if get16(buffer, start + 2):
            channel.abandon()
            raise AmqpError(ReplyCode.FRAME_ERROR, "the weight of a content header is not 0")
        body_size = get64(buffer, start + 4)
        if channel.method is not None:
            channel.sink = self.owner.body_sink(
                channel, channel.method, cut(buffer, start, end), body_size
            )
        if body_size > self.body_max and channel.sink is None:
            at_fault = PUBLISH if channel.method is None else (0, 0)
            channel.abandon()
            raise AmqpError(  # Clients of 0-9-1 know RabbitMQ's code and text.
                ReplyCode.CONTENT_TOO_LARGE if self.is_early else ReplyCode.PRECONDITION_FAILED,
                f"message size {body_size} is larger than configured max size {self.body_max}",
                at_fault,
            )
        if body_size > INLINE_BODY_MAX and self.is_server and channel.sink is None:
            self.check_unfinished(channel, body_size)
        channel.begin_body(self.pool, cut(buffer, start, end), body_size)
        if not body_size:
            self.complete(channel)

    def check_unfinished(self, channel: Channel, body_size: int) -> None:
        """Refuse a large body if the unfinished bodies of all channels would exceed the limit."""
        limit = max(UNFINISHED_BODIES * self.body_max, UNFINISHED_BYTES_MIN)
        total = body_size
        for other in self.channels.values():
            if other.sink is None:
                total += other.body_size
        if total > limit:
            at_fault = PUBLISH if channel.method is None else (0, 0)
            channel.abandon()
            raise AmqpError(
                ReplyCode.CONTENT_TOO_LARGE,
                f"the unfinished bodies of this connection would have {total} octets, more than "
                f"{limit}",
                at_fault,
            )

    def body_frame(self, channel: Channel, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Add a body frame to the content of its channel; the last frame completes it."""
        if channel.header is None:
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, "content body where none is due")
        if end - start > channel.missing:
            channel.abandon()
            raise AmqpError(ReplyCode.FRAME_ERROR, "content body is longer than its header says")
        channel.add_body(buffer, start, end)
        if not channel.missing:
            self.complete(channel)

    def complete(self, channel: Channel) -> None:
        """Pass a complete content to the owner."""
        method = channel.method
        address = channel.address
        header = channel.header
        body_size = channel.body_size
        assert header is not None
        parts = channel.finish()
        if method is not None:
            self.owner.on_content(channel, method, header, b"".join(parts))
            return
        assert address is not None
        number = channel.number
        start = address + b"\xce" + make_frame(FRAME_HEADER, number, header)
        if body_size > INLINE_BODY_MAX:
            self.owner.on_publish_large(channel, start, len(address) - 1, parts, body_size)
            return
        data = start
        if body_size:
            body = b"".join(parts)
            limit = self.frame_max - C_OVERHEAD
            data = start + b"".join(
                [
                    make_frame(FRAME_BODY, number, body[position : position + limit])
                    for position in range(0, body_size, limit)
                ]
            )
        size = len(address) - 1
        self.owner.on_publish(
            channel, data, 0, size, size + C_PUBLISH_END_LEN, len(data), body_size
        )
