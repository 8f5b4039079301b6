# SPDX-License-Identifier: Apache-2.0
"""Methods with content of AMQP 0-8, 0-9 and 0-9-1: a method frame, a header frame, body frames.

A ``basic.publish`` whose content lies whole in the buffer takes a fast path: one call with
offsets (``on_publish``), no objects. So does a delivery to a client's channel that has a collector.
The frames of every other content are read one by one and assembled on the channel. Both paths
end in the same calls (``on_publish``, ``on_publish_large``, ``on_content``), so how the octets were
split into reads makes no difference.
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

PUBLISH = divmod(BASIC_PUBLISH, 1 << 16)  # As a close method names it.
TICKET_CUSTOMARY = 1  # What clients send that never asked for a ticket; 0 is the other.
# Keeps 0-9-1/s015, 0-9-1/s017, 0-9/connection.tune.frame-max#minimum,
# 0-9/connection.tune-ok.frame-max#minimum.
HANDSHAKE_BYTES_MAX = 16384  # That a peer may send before the connection is open.
INLINE_BODY_MAX = 65536  # Larger bodies are kept in parts.
# A connection may have begun so many bodies of the largest size, on all of its channels,
UNFINISHED_BODIES = 8
UNFINISHED_BYTES_MIN = 64 << 20  # or so many bytes, where the largest is small.
INLINE_WAIT_MAX = 98304  # Bytes of an unfinished content that wait in the read buffer.


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
        self.frame_max = frame_max  # Of a whole frame, as negotiated in the end.
        self.frame_limit = HANDSHAKE_BYTES_MAX - C_OVERHEAD  # Bytes of payload that we accept now.
        self.body_max = body_max
        self.after = 0  # Where to go on after the frame or content being handled.
        self.replaying = False  # The frames waited: the end of a content may be in no buffer.

    def set_version(self, version: Version) -> None:
        """Read the contents of this version."""
        self.version = version
        self.early = version is not V0_9_1  # 0-8 or 0-9: has tickets, among other things.

    # --- In one piece -------------------------------------------------------------------------

    def publish_frames(
        self, channel: Channel, d: bytes | bytearray, pos: int, end: int, n: int
    ) -> int:
        """Handle a publish at ``pos``; return what follows, or -1 - ``pos`` to wait for more.

        When the whole content lies in the buffer it is passed on with offsets. Else, unless it is
        small enough to wait for, the method is kept and its frames are read one by one.
        """
        args = pos + C_PUBLISH_ADDRESS_AT
        if end - args < 3:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "basic.publish is cut short")
        key = args + 1 + d[args]
        if key >= end or key + 1 + d[key] + 1 != end:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "basic.publish has wrong lengths")
        if self.early and get16(d, pos + C_ARGUMENTS_AT) > TICKET_CUSTOMARY:
            self.owner.on_ticket(channel, get16(d, pos + C_ARGUMENTS_AT), cut(d, args, end - 1))
        head = end + 1
        if n - head >= C_PAYLOAD_AT:
            size = get32(d, head + C_SIZE_AT)
            whole = (
                d[head] == C_HEADER
                and get16(d, head + C_CHANNEL_AT) == channel.number
                and C_NO_PROPERTIES <= size <= self.frame_limit
            )
            at = head + C_OVERHEAD + size
            if whole and at <= n:
                body_size = get64(d, head + C_BODY_SIZE_AT)
                whole = (
                    d[at - 1] == C_END
                    and get32(d, head + C_PAYLOAD_AT) == BASIC_HEADER
                    and body_size <= INLINE_BODY_MAX
                    and body_size <= self.body_max
                )
                got = 0
                while whole and got < body_size:
                    if n - at < C_PAYLOAD_AT:
                        break
                    size = get32(d, at + C_SIZE_AT)
                    if (
                        d[at] != C_BODY
                        or get16(d, at + C_CHANNEL_AT) != channel.number
                        or size > self.frame_limit
                        or size > body_size - got
                    ):
                        whole = False
                        break
                    if n - at < size + C_OVERHEAD:
                        break
                    if d[at + C_PAYLOAD_AT + size] != C_END:
                        whole = False
                        break
                    got += size
                    at += size + C_OVERHEAD
                if whole and got == body_size:
                    self.after = at
                    self.owner.on_publish(channel, d, args, end - args - 1, head, at, body_size)
                    return at
        else:
            whole = n == head or d[head] == C_HEADER
        if whole and n - pos < INLINE_WAIT_MAX and not self.replaying:
            return -1 - pos
        channel.address = cut(d, args, end)
        return end + 1

    def deliver_frames(
        self, channel: Channel, d: bytes | bytearray, pos: int, end: int, n: int, first: bool
    ) -> int:
        """Give a delivery at ``pos`` to the channel's collector; return what follows.

        Return -1 to wait for more of it, and 0 when its frames are to be read one by one. They are
        unless it comes ``first``, before any event of this read. One that is not whole is waited
        for even then: its end would be the first event of the next read, and so on for ever.
        """
        head = end + 1
        waits = n - pos < INLINE_WAIT_MAX and not self.replaying
        if n - head < C_PAYLOAD_AT:
            return -1 if waits else 0
        size = get32(d, head + C_SIZE_AT)
        if (
            d[head] != C_HEADER
            or get16(d, head + C_CHANNEL_AT) != channel.number
            or not C_NO_PROPERTIES <= size <= self.frame_limit
        ):
            return 0
        at = head + C_OVERHEAD + size
        if at > n:
            return -1 if waits else 0
        body_size = get64(d, head + C_BODY_SIZE_AT)
        if (
            d[at - 1] != C_END
            or get32(d, head + C_PAYLOAD_AT) != BASIC_HEADER
            or body_size > INLINE_BODY_MAX
            or body_size > self.body_max
        ):
            return 0
        got = 0
        while got < body_size:
            if n - at < C_PAYLOAD_AT:
                return -1 if waits else 0
            size = get32(d, at + C_SIZE_AT)
            if (
                d[at] != C_BODY
                or get16(d, at + C_CHANNEL_AT) != channel.number
                or size > self.frame_limit
                or size > body_size - got
            ):
                return 0
            if n - at < size + C_OVERHEAD:
                return -1 if waits else 0
            if d[at + C_PAYLOAD_AT + size] != C_END:
                return 0
            got += size
            at += size + C_OVERHEAD
        if not first:
            return 0
        size = get32(d, head + C_SIZE_AT)
        assert channel.collector is not None
        if not channel.collector.put(
            d,
            pos + C_ARGUMENTS_AT,
            end,
            head + C_PAYLOAD_AT,
            head + C_PAYLOAD_AT + size,
            at,
            body_size,
        ):
            return 0
        self.after = at
        return at

    # --- Frame by frame -----------------------------------------------------------------------

    def header_frame(self, channel: Channel, d: bytes | bytearray, lo: int, hi: int) -> None:
        """A content header came."""
        if not channel.expects_content() or channel.header is not None:
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, "content header where none is due")
        if hi - lo < C_NO_PROPERTIES:
            channel.abandon()
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "content header is cut short")
        class_id = get16(d, lo)
        due = 60 if channel.method is None else channel.method.INDEX[self.version][0]
        if class_id != due:
            channel.abandon()
            raise AmqpError(
                ReplyCode.UNEXPECTED_FRAME, f"content header of class {class_id} after class {due}"
            )
        if get16(d, lo + 2):
            channel.abandon()
            raise AmqpError(ReplyCode.FRAME_ERROR, "the weight of a content header is not 0")
        body_size = get64(d, lo + 4)
        if channel.method is not None:
            channel.sink = self.owner.sink_of(channel, channel.method, cut(d, lo, hi), body_size)
        if body_size > self.body_max and channel.sink is None:
            at_fault = PUBLISH if channel.method is None else (0, 0)
            channel.abandon()
            raise AmqpError(  # Clients of 0-9-1 know RabbitMQ's code and text.
                ReplyCode.CONTENT_TOO_LARGE if self.early else ReplyCode.PRECONDITION_FAILED,
                f"message size {body_size} is larger than configured max size {self.body_max}",
                at_fault,
            )
        if body_size > INLINE_BODY_MAX and self.is_server and channel.sink is None:
            self.check_unfinished(channel, body_size)
        channel.begin_body(self.pool, cut(d, lo, hi), body_size)
        if not body_size:
            self.complete(channel)

    def check_unfinished(self, channel: Channel, body_size: int) -> None:
        """Refuse one more large body, if those that have begun on all channels are large enough."""
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

    def body_frame(self, channel: Channel, d: bytes | bytearray, lo: int, hi: int) -> None:
        """A body frame came."""
        if channel.header is None:
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, "content body where none is due")
        if hi - lo > channel.missing:
            channel.abandon()
            raise AmqpError(ReplyCode.FRAME_ERROR, "content body is longer than its header says")
        channel.add_body(d, lo, hi)
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
                    make_frame(FRAME_BODY, number, body[at : at + limit])
                    for at in range(0, body_size, limit)
                ]
            )
        size = len(address) - 1
        self.owner.on_publish(
            channel, data, 0, size, size + C_PUBLISH_END_LEN, len(data), body_size
        )
