# SPDX-License-Identifier: Apache-2.0
"""The connection machine of AMQP 0-8, 0-9 and 0-9-1, for both roles, without I/O.

Theory of operation. The owner puts received bytes into :meth:`Connection.feed` (or ``receive``)
and sends what the base class collected. Every complete frame is checked (type, size, end octet,
channel, order) before a byte of its payload is read. Then

* a publish or delivery that is complete in the buffer and a ``basic.ack`` take a fast path: one
  call with offsets, no objects (:mod:`headrace.protocol.v0_x.content_frames`);
* every other method is decoded into its typed class; a method with content waits on its channel
  for header and body frames.

Both paths end in the same calls (:mod:`headrace.protocol.v0_x.upcalls`), so the split of the bytes
into reads makes no difference.

An error of the peer is an AmqpError, raised where the rule is broken and turned into a close in one
place, :meth:`Connection.fail`. A channel that this side closed ignores everything but the answer,
and so does the connection. After a framing error the boundaries of frames are unknown, so the
machine ignores all further input.

State advances before bytes are written, so a refused ``send_method`` writes nothing.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.endpoint import METHOD_WORK as C_METHOD_WORK
    from headrace.protocol.endpoint import Endpoint
    from headrace.protocol.output import BufferPool
    from headrace.protocol.v0_x.answers import Answers
    from headrace.protocol.v0_x.channel import BUSY as C_BUSY
    from headrace.protocol.v0_x.channel import CLOSING as C_CLOSING
    from headrace.protocol.v0_x.channel import OPEN as C_OPEN
    from headrace.protocol.v0_x.channel import OPENING as C_OPENING
    from headrace.protocol.v0_x.channel import Channel
    from headrace.protocol.v0_x.content_frames import ContentReader
    from headrace.protocol.v0_x.frames import ACK_FLAG_AT as C_ACK_FLAG_AT
    from headrace.protocol.v0_x.frames import ACK_LEN as C_ACK_LEN
    from headrace.protocol.v0_x.frames import ARGUMENTS_AT as C_ARGUMENTS_AT
    from headrace.protocol.v0_x.frames import CHANNEL_AT as C_CHANNEL_AT
    from headrace.protocol.v0_x.frames import FRAME_BODY as C_BODY
    from headrace.protocol.v0_x.frames import FRAME_END as C_END
    from headrace.protocol.v0_x.frames import FRAME_HEADER as C_HEADER
    from headrace.protocol.v0_x.frames import FRAME_HEARTBEAT as C_HEARTBEAT
    from headrace.protocol.v0_x.frames import FRAME_METHOD as C_METHOD
    from headrace.protocol.v0_x.frames import OVERHEAD as C_OVERHEAD
    from headrace.protocol.v0_x.frames import PAYLOAD_AT as C_PAYLOAD_AT
    from headrace.protocol.v0_x.frames import SIZE_AT as C_SIZE_AT
    from headrace.protocol.v0_x.handshake import (
        STATE_AWAITING_HEADER,
        STATE_CLOSED,
        STATE_CLOSING,
        STATE_GREETED,
        STATE_OPEN,
        STATE_TUNING,
    )
    from headrace.protocol.v0_x.upcalls import EventCollector, Upcalls
    from headrace.spec.ids import (
        BASIC_ACK,
        BASIC_DELIVER,
        BASIC_PUBLISH,
        CHANNEL_CLOSE,
        CHANNEL_CLOSE_OK,
        CHANNEL_OPEN,
    )
    from headrace.wire.memory import cut, get16, get32, get64, put16, put32, put64

from headrace.protocol.codec_0_x import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOk,
    ChannelOpen,
    ChannelOpenOk,
    ChannelResume,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionTuneOk,
    MethodBase,
    decode_method,
    encode_method,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.channel import FOR_ANSWERS, FOR_BODY, FOR_OUTPUT, DeferredAnswer
from headrace.protocol.v0_x.content_frames import HANDSHAKE_BYTES_MAX
from headrace.protocol.v0_x.events import Event
from headrace.protocol.v0_x.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_MIN_SIZE,
)
from headrace.protocol.v0_x.handshake import (
    CLIENT,
    HANDSHAKE,
    IN_OPEN,
    NOT_FOR,
    RECEIVERS,
    SERVER,
    STATES,
    Role,
    State,
)
from headrace.protocol.version_negotiation import negotiate
from headrace.spec.reply import ReplyCode, Scope
from headrace.spec.tables import V0_9, V0_9_1, V0_10, Version

CHANNEL_RESUME = 0x00140032  # A method of 0-9 only.
FIRST_BYTES_LOGGED = 32  # First bytes of a peer that is not served, for the log.
DEFERRED_BYTES_MAX = 1 << 20  # Bytes that wait on busy channels before reading stops.

CLOSES = {  # The ids of connection.close and close-ok, which differ in 0-8.
    version: frozenset(
        method.INDEX[version][0] << 16 | method.INDEX[version][1]
        for method in (ConnectionClose, ConnectionCloseOk)
    )
    for version in ConnectionClose.INDEX
}


class Connection(Endpoint):
    """One peer's side of one connection."""

    def __init__(
        self,
        role: Role,
        version: Version = V0_9_1,
        *,
        pool: BufferPool | None = None,
        frame_max: int = 131072,
        channel_max: int = 2047,
        body_max: int = 128 << 20,
    ) -> None:
        """``frame_max`` and ``body_max`` (bytes) and ``channel_max`` are this side's limits."""
        Endpoint.__init__(self, BufferPool() if pool is None else pool)
        self.role = role
        self.is_server = role is Role.SERVER
        self.version = version
        self.is_early = version is not V0_9_1  # 0-8 or 0-9.
        self.frame_max = frame_max  # Bytes of a whole frame, as negotiated in the end.
        self.channels: dict[int, Channel] = {}
        self.current = 0  # The method being handled, class id << 16 | method id.
        self.contents = ContentReader(self.pool, self.channels, self.is_server, frame_max, body_max)
        self.contents.set_version(version)
        self.answers = Answers(self)
        self.set_owner(EventCollector(version, self.is_server))
        self.channel_max = channel_max
        self.heartbeat_s = 0  # `server.net.transport` sends and awaits heartbeats.
        self.state_number = STATE_AWAITING_HEADER
        self.last: Channel | None = None
        self.rest = b""
        self.handshake_bytes = 0
        self.hold_above = 1 << 62  # Bytes of output above which nothing more is handled.
        self.ignores_input = False
        self.is_closed_by_peer = False  # True: the peer's connection.close was answered.
        self.deferred_bytes = 0  # Bytes of frames that wait on busy channels.
        self.close_reason: AmqpError | None = None  # The error for which this side closed.
        self.deferred_close: Any = None  # (method, error): waits for all deferred answers.
        if role is Role.CLIENT:
            self.state_number = STATE_GREETED
            self.write(version.header)

    def set_owner(self, owner: Upcalls) -> None:
        """Set the owner, which gets all later upcalls."""
        self.owner = owner
        self.contents.owner = owner

    @property
    def events(self) -> list[Event]:
        """The collected events that :meth:`receive` has not returned yet."""
        return self.owner.events

    @property
    def body_max(self) -> int:
        """The maximum size of a body in bytes; the virtual host and the user may lower it."""
        return self.contents.body_max

    @body_max.setter
    def body_max(self, bytes_max: int) -> None:
        self.contents.body_max = bytes_max

    @property
    def state(self) -> State:
        """The state of the connection."""
        return STATES[self.state_number]

    def awaits_close(self) -> bool:
        return (
            self.state_number == STATE_CLOSING or self.is_closed_by_peer
        ) and not self.ignores_input

    # --- Bytes and frames ---------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Event]:
        """Handle bytes, in any split, and return the events; their content raises no error."""
        if self.rest:
            data = self.rest + data
            self.rest = b""
        used = self.feed(data, len(data))
        if used < len(data):
            self.rest = data[used:]
        events = self.owner.events
        self.owner.events = []
        return events

    # Keeps 0-9-1/connection.start#03.
    def feed(self, buffer: bytes | bytearray, length: int) -> int:
        """Handle the complete frames in ``buffer[:length]``; return how many bytes were consumed.

        The owner passes the remaining ones again, followed by more. They are fewer than
        ``frame_max`` plus ``INLINE_WAIT_MAX``.
        """
        pos = 0
        self.begin_turn()
        while True:
            if self.ignores_input or self.state_number == STATE_CLOSED:  # CLOSED
                return length
            try:
                if self.state_number == STATE_AWAITING_HEADER:  # AWAITING_HEADER
                    if length - pos < 8:
                        self.check_header(buffer, pos, length)
                        break
                    self.contents.frame_end = pos + 8
                    self.accept_header(cut(buffer, pos, pos + 8))
                    pos = self.contents.frame_end
                    continue
                if (
                    self.state_number == STATE_GREETED
                    and not self.is_server
                    and length - pos >= 1
                    and buffer[pos] == 65  # "A": the server answers with a protocol header.
                ):
                    if length - pos < 8:
                        break
                    self.state_number = STATE_CLOSED
                    self.owner.on_rejected(cut(buffer, pos, pos + 8))
                    return length
                pos = self.frames(buffer, pos, length)
                break
            except AmqpError as error:
                self.fail(error)
                pos = self.contents.frame_end
                self.work_left -= C_METHOD_WORK
            except Exception as error:  # noqa: BLE001 - nothing leaves the machine
                self.fail(self.owner.explain(error, self.current))
                pos = self.contents.frame_end
                self.work_left -= C_METHOD_WORK
        self.owner.on_turn_end()
        return pos

    def check_header(self, buffer: bytes | bytearray, pos: int, length: int) -> None:
        """Refuse at once bytes that cannot become a protocol header."""
        for i in range(min(4, length - pos)):
            if buffer[pos + i] != b"AMQP"[i]:
                self.contents.frame_end = length
                self.owner.on_rejected(cut(buffer, pos, min(length, pos + FIRST_BYTES_LOGGED)))
                self.refuse_header()
                return

    # Keeps 0-9-1/connection.start#01, 0-9/connection.start#protocol-name.
    def accept_header(self, header: bytes) -> None:
        """Handle the peer's protocol header."""
        chosen = negotiate(header)
        if isinstance(chosen, bytes) or chosen is V0_10:
            self.owner.on_rejected(header)
            self.write(chosen if isinstance(chosen, bytes) else self.version.header)
            self.state_number = STATE_CLOSED
            self.owner.on_closed()
            return
        self.version = chosen
        self.is_early = chosen is not V0_9_1
        self.contents.set_version(chosen)
        self.state_number = STATE_GREETED
        self.owner.on_header(chosen)

    def await_tune_ok(self, version: Version) -> None:
        """Continue with a client to which another broker has sent connection.tune."""
        self.version = version
        self.is_early = version is not V0_9_1
        self.contents.set_version(version)
        self.state_number = STATE_TUNING

    # Keeps 0-9-1/connection.start#01, 0-9/connection.start#protocol-name.
    def refuse_header(self) -> None:
        """Answer with a protocol header of this side, then close (0-9-1/4.2.2)."""
        self.write(self.version.header)
        self.state_number = STATE_CLOSED
        self.owner.on_closed()

    # Keeps 0-9-1/basic.reject#01, 0-9-1/channel.flow#02, 0-9/basic.reject#01,
    # 0-9/channel.flow#bidirectional.
    def frames(self, buffer: bytes | bytearray, pos: int, length: int) -> int:
        """Handle frame after frame; return the start of the first incomplete one.

        Input is handled while output waits for the socket, up to ``hold_above`` bytes of output. A
        channel that sends the body of a file defers its frames.
        """
        # This is one function because several would have to pass ``pos``, a C local, per frame.
        contents = self.contents
        while length - pos >= C_PAYLOAD_AT:
            if self.work_left <= 0 and self.turn_is_over():
                break
            self.work_left -= 1
            frame_type = buffer[pos]
            number = get16(buffer, pos + C_CHANNEL_AT)
            size = get32(buffer, pos + C_SIZE_AT)
            served = frame_type in (C_METHOD, C_HEADER, C_BODY, C_HEARTBEAT)
            if size > contents.frame_limit or not served:
                contents.frame_end = length
                raise self.frame_error(frame_type, size)
            end = pos + C_PAYLOAD_AT + size
            if end >= length:
                break
            contents.frame_end = end + 1
            self.current = 0
            if buffer[end] != C_END:
                contents.frame_end = length
                raise AmqpError(ReplyCode.FRAME_ERROR, "frame does not end with octet 206")
            channel = self.last
            if channel is None or channel.number != number:
                channel = self.channels.get(number)
                self.last = channel
            if frame_type == C_METHOD:
                if size < 4:
                    raise AmqpError(ReplyCode.SYNTAX_ERROR, "method frame without a method")
                method = get32(buffer, pos + C_PAYLOAD_AT)
                self.current = method
                if (
                    channel is not None
                    and channel.state == C_OPEN
                    and self.state_number == STATE_OPEN
                    and self.is_server
                    and channel.address is None
                    and channel.method is None
                ):
                    if method == BASIC_PUBLISH:
                        pos = contents.publish_frames(channel, buffer, pos, end, length)
                        if pos < 0:
                            return -pos - 1
                        continue
                    if method == BASIC_ACK and size == C_ACK_LEN:
                        self.owner.on_ack(
                            channel,
                            get64(buffer, pos + C_ARGUMENTS_AT),
                            buffer[pos + C_ACK_FLAG_AT] & 1,
                        )
                        pos = end + 1
                        continue
                elif (
                    channel is not None
                    and channel.collector is not None
                    and channel.state == C_OPEN
                    and self.state_number == STATE_OPEN
                    and channel.method is None
                ):
                    if method == BASIC_DELIVER:
                        # Events of this read come first.
                        first = len(self.owner.events) == 0
                        position = contents.deliver_frames(channel, buffer, pos, end, length, first)
                        if position < 0:
                            return pos
                        if position > 0:
                            pos = position
                            continue
                    elif (
                        method == BASIC_ACK
                        and size == C_ACK_LEN
                        and not self.owner.events
                        and channel.collector.confirm(
                            get64(buffer, pos + C_ARGUMENTS_AT), buffer[pos + C_ACK_FLAG_AT] & 1
                        )
                    ):
                        pos = end + 1
                        continue
                if channel is not None and channel.state == C_BUSY:
                    self.defer_frame(channel, cut(buffer, pos, end + 1))
                elif (
                    channel is not None
                    and channel.answers is not None
                    and self.answers.must_pause(channel, self.version, method)
                ):
                    channel.pause(FOR_ANSWERS)
                    self.defer_frame(channel, cut(buffer, pos, end + 1))
                else:
                    self.work_left -= C_METHOD_WORK
                    self.method_frame(channel, number, cut(buffer, pos + C_PAYLOAD_AT, end))
                if self.tail - self.head + self.chained > self.hold_above:
                    return end + 1
            elif frame_type == C_HEARTBEAT:
                self.heartbeat_frame(number, size)
            elif channel is not None and channel.state >= C_CLOSING:
                if channel.state == C_BUSY:
                    self.defer_frame(channel, cut(buffer, pos, end + 1))
            elif self.state_number != STATE_OPEN:
                if self.state_number != STATE_CLOSING:
                    raise AmqpError(ReplyCode.UNEXPECTED_FRAME, "content before connection.open")
            elif channel is None:
                raise AmqpError(ReplyCode.CHANNEL_ERROR, f"content on channel {number}, not open")
            elif frame_type == C_HEADER:
                contents.header_frame(channel, buffer, pos + C_PAYLOAD_AT, end)
            else:
                contents.body_frame(channel, buffer, pos + C_PAYLOAD_AT, end)
            if self.state_number < STATE_OPEN:
                self.handshake_bytes += size + C_OVERHEAD
                if self.handshake_bytes > HANDSHAKE_BYTES_MAX:
                    contents.frame_end = length
                    self.ignores_input = True
                    raise AmqpError(
                        ReplyCode.FRAME_ERROR,
                        f"more than {HANDSHAKE_BYTES_MAX} octets before connection.open-ok",
                    )
            pos = end + 1
            if self.ignores_input or self.state_number == STATE_CLOSED:
                return length
        return pos

    def frame_error(self, frame_type: int, size: int) -> AmqpError:
        """Return the error for a frame of an unknown type or of excessive size."""
        if frame_type not in (FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT):
            return AmqpError(ReplyCode.FRAME_ERROR, f"unknown frame type {frame_type}")
        return AmqpError(
            ReplyCode.FRAME_ERROR,
            f"frame of {size + C_OVERHEAD} octets is larger than the maximum of "
            f"{self.contents.frame_limit + C_OVERHEAD}",
        )

    def heartbeat_frame(self, number: int, size: int) -> None:
        """Handle a heartbeat."""
        if number or size:
            raise AmqpError(ReplyCode.FRAME_ERROR, "a heartbeat is an empty frame on channel 0")
        self.owner.on_heartbeat()

    # --- Busy channels ------------------------------------------------------------------------

    def defer_frame(self, channel: Channel, frame: bytes) -> None:
        """Keep a frame until its busy channel resumes."""
        if channel.waiting is None:
            channel.waiting = []
        channel.waiting.append(frame)
        self.count_deferred(len(frame))

    def count_deferred(self, size: int) -> None:
        """Add to the bytes that wait on busy channels; a negative size subtracts."""
        was_full = self.deferred_bytes > DEFERRED_BYTES_MAX
        self.deferred_bytes += size
        is_full = self.deferred_bytes > DEFERRED_BYTES_MAX
        if was_full != is_full:
            self.owner.pause_reading(is_full)

    def resume(self, channel: Channel, reason: int) -> None:
        """Remove a reason for a channel to be busy; if none is left, handle the deferred frames.

        Not to be called by handlers.
        """
        channel.busy &= ~reason
        if reason == FOR_BODY:
            self.send_answers(channel)
        if channel.state != C_BUSY or channel.busy:
            return
        channel.state = C_OPEN
        frames = channel.waiting
        if frames is None:
            return
        channel.waiting = None
        data = b"".join(frames)
        self.count_deferred(-len(data))
        self.contents.is_replaying = True
        used = self.feed(data, len(data))
        self.contents.is_replaying = False
        if used < len(data) and self.channels.get(channel.number) is channel:
            self.count_deferred(len(data) - used)
            channel.put_first(data[used:])
            if channel.state == C_OPEN:  # The turn has ended, or the output is full.
                channel.pause(FOR_OUTPUT)
                self.owner.resume_later(channel)

    def drop_waiting(self, channel: Channel) -> None:
        """Drop the frames that wait on a busy channel."""
        if channel.waiting is not None:
            self.count_deferred(-sum(map(len, channel.waiting)))
            channel.waiting = None

    # --- Methods ------------------------------------------------------------------------------

    # Keeps 0-9/channel.close#stability, 0-9/connection.close#stability, 0-9-1/channel.close#01,
    # 0-9-1/connection.close#01.
    def method_frame(self, channel: Channel | None, number: int, payload: bytes) -> None:
        """Handle a method that does not take the fast path."""
        class_id = self.current >> 16
        closing = self.state_number == STATE_CLOSING
        if class_id == 10:
            if number:
                raise AmqpError(ReplyCode.COMMAND_INVALID, f"connection method on channel {number}")
            if closing and self.current not in CLOSES[self.version]:
                return
            self.connection_method(decode_method(self.version, payload))
            return
        if closing:
            return
        if self.state_number != STATE_OPEN:
            raise AmqpError(ReplyCode.COMMAND_INVALID, "method before connection.open")
        if not number:
            raise AmqpError(ReplyCode.CHANNEL_ERROR, "only connection methods go on channel 0")
        if channel is None:
            resumes = self.current == CHANNEL_RESUME and self.version is V0_9
            if self.current != CHANNEL_OPEN and not resumes:
                if self.current == CHANNEL_CLOSE_OK:
                    return  # The answer to a close that crossed with the peer's own.
                raise AmqpError(ReplyCode.CHANNEL_ERROR, f"channel {number} is not open")
        elif channel.state == C_CLOSING:
            if self.current != CHANNEL_CLOSE and self.current != CHANNEL_CLOSE_OK:
                return
        elif channel.expects_content():
            channel.abandon()
            raise AmqpError(
                ReplyCode.UNEXPECTED_FRAME, f"method on channel {number} where content is due"
            )
        method = decode_method(self.version, payload)
        if RECEIVERS[method.NAME] is NOT_FOR[self.role]:
            raise AmqpError(ReplyCode.COMMAND_INVALID, f"{method.NAME} from the wrong peer")
        if class_id == 20:
            self.channel_method(channel, number, method)
            return
        assert channel is not None
        if method.CONTENT:
            channel.method = method
        else:
            self.owner.on_method(channel, number, method)

    # Keeps 0-9-1/connection.close#01.
    def connection_method(self, method: MethodBase) -> None:
        """Handle a method of the connection class."""
        if isinstance(method, ConnectionClose):
            self.state_number = STATE_CLOSED
            self.is_closed_by_peer = True
            self.owner.on_method(None, 0, method)
            self.send_last(ConnectionCloseOk(), None)
            return
        if isinstance(method, ConnectionCloseOk):
            if self.state_number != STATE_CLOSING:
                raise AmqpError(ReplyCode.COMMAND_INVALID, "connection.close-ok without a close")
            self.state_number = STATE_CLOSED
            self.owner.on_method(None, 0, method)
            self.owner.on_closed()
            return
        self.advance_state(CLIENT if self.is_server else SERVER, method)
        self.owner.on_method(None, 0, method)

    def advance_state(self, sender: Role, method: MethodBase) -> None:
        """Advance the state by a method of the connection class, or refuse the method."""
        if (
            self.state_number == STATE_OPEN
            and method.NAME in IN_OPEN
            and (sender is self.role or RECEIVERS[method.NAME] is not NOT_FOR[self.role])
        ):
            return
        state = STATES[self.state_number]
        following = HANDSHAKE.get(state, {}).get((sender, method.NAME))
        if following is None:
            raise AmqpError(
                ReplyCode.COMMAND_INVALID, f"{sender.value} sent {method.NAME} while {state.name}"
            )
        self.state_number = following.value
        if isinstance(method, ConnectionTuneOk):
            self.tune(method)

    # Keeps 0-9-1/s015, 0-9-1/s017, 0-9/connection.tune.frame-max#minimum,
    # 0-9/connection.tune-ok.frame-max#minimum.
    def tune(self, method: ConnectionTuneOk) -> None:
        """Adopt the limits of a tune-ok, which a broker checks in ``methods.connection``."""
        if method.frame_max:
            self.frame_max = min(self.frame_max, max(method.frame_max, FRAME_MIN_SIZE))
            self.contents.frame_max = self.frame_max
        if method.channel_max:
            self.channel_max = min(self.channel_max, method.channel_max)
        self.heartbeat_s = method.heartbeat
        # Some clients (amqpstorm) count only the payload of a frame: a server allows 8 bytes more.
        self.contents.frame_limit = self.frame_max - (0 if self.role is Role.SERVER else C_OVERHEAD)

    # Keeps 0-9-1/channel.close#01, 0-9-1/channel.open#01, 0-9/channel.open#state.
    def channel_method(self, channel: Any, number: int, method: MethodBase) -> None:
        """Handle a method of the channel class."""
        if isinstance(method, ChannelOpen | ChannelResume):
            if channel is not None:
                raise AmqpError(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen")
            if len(self.channels) >= self.channel_max:
                raise AmqpError(
                    ReplyCode.NOT_ALLOWED,
                    f"number of channels opened ({len(self.channels)}) has reached the "
                    f"negotiated channel_max ({self.channel_max})",
                )
            channel = self.owner.make_channel(number)
            channel.state = C_OPEN
            self.channels[number] = channel
            self.last = channel
        elif isinstance(method, ChannelOpenOk):
            if channel.state != C_OPENING:
                raise AmqpError(ReplyCode.COMMAND_INVALID, "channel.open-ok without an open")
            channel.state = C_OPEN
        elif isinstance(method, ChannelOk):
            if channel.state == C_OPENING:  # It answers channel.resume.
                channel.state = C_OPEN
        elif isinstance(method, ChannelClose):
            self.send_in_order(channel, encode_method(self.version, ChannelCloseOk()))
            if channel.state != C_CLOSING:
                self.remove_channel(channel)
        elif isinstance(method, ChannelCloseOk):
            if channel.state != C_CLOSING:
                raise AmqpError(ReplyCode.COMMAND_INVALID, "channel.close-ok without a close")
            self.remove_channel(channel)
        self.owner.on_method(channel, number, method)

    def remove_channel(self, channel: Channel) -> None:
        """Remove a closed channel, whose number is free again."""
        del self.channels[channel.number]
        self.last = None
        self.drop_waiting(channel)
        self.drop_answers(channel)
        channel.abandon()
        self.owner.on_channel_removed(channel)

    def fail(self, error: AmqpError) -> None:
        """Close the channel or connection with an error, by its scope."""
        if self.is_early and error.code is ReplyCode.UNEXPECTED_FRAME:  # It came with 0-9-1.
            error = AmqpError(ReplyCode.COMMAND_INVALID, error.text, error.method)
        method = error.method if error.method != (0, 0) else divmod(self.current, 65536)
        channel = self.last
        if error.scope is Scope.CHANNEL and channel is not None and self.state_number == STATE_OPEN:
            if channel.state == C_CLOSING:
                return
            channel.abandon()
            self.drop_waiting(channel)
            channel.state = C_CLOSING
            self.send_channel_close(channel, error)
            self.owner.on_failed(channel, error)
            return
        if error.code is ReplyCode.FRAME_ERROR:
            self.ignores_input = True
        if self.state_number >= STATE_CLOSING:
            return
        if self.state_number == STATE_AWAITING_HEADER:
            self.refuse_header()
            return
        self.close_reason = error
        self.state_number = STATE_CLOSING
        self.contents.frame_limit = self.frame_max - C_OVERHEAD
        self.send_last(
            ConnectionClose(
                reply_code=error.code.number,
                reply_text=error.reply_text,
                class_id=method[0],
                method_id=method[1],
            ),
            error,
        )

    def send_channel_close(self, channel: Channel, error: AmqpError) -> None:
        """Write channel.close; it names the method of the error, or else the one in progress."""
        method = error.method if error.method != (0, 0) else divmod(self.current, 65536)
        close = ChannelClose(
            reply_code=error.code.number,
            reply_text=error.reply_text,
            class_id=method[0],
            method_id=method[1],
        )
        self.send_in_order(channel, encode_method(self.version, close))

    def refuse_request(self, channel: Channel, error: AmqpError, request: int) -> None:
        """Answer an earlier request with an error."""
        last, current = self.last, self.current
        self.last = channel
        self.current = request
        if channel.state == C_CLOSING and error.scope is Scope.CHANNEL:
            # Ahead of a later error, which need not be sent now.
            self.send_channel_close(channel, error)
        else:
            self.fail(error)
        self.last = last
        self.current = current

    # --- Answers --------------------------------------------------------------------------------

    def send_in_order(self, channel: Channel, payload: bytes) -> None:
        """Send an encoded method after all deferred answers of the channel."""
        self.answers.send_in_order(channel, payload)

    def defer_answer(self, channel: Channel, payload: bytes) -> DeferredAnswer:
        """Defer an encoded method, the answer to the request that is being handled."""
        deferred = DeferredAnswer(self, channel, payload, self.current)
        self.answers.defer(deferred)
        return deferred

    def send_answers(self, channel: Channel) -> None:
        """Send the answers of a channel up to the first that is still deferred."""
        if channel.answers is None or self.ended or channel.sends_body():
            return
        refused = self.answers.send(channel)
        if refused is not None:
            self.drop_answers(channel)
            assert refused.error is not None
            self.refuse_request(channel, refused.error, refused.request)
        elif not channel.answers:
            self.drop_answers(channel)
            self.resume(channel, FOR_ANSWERS)

    def drop_answers(self, channel: Channel) -> None:
        """Drop the deferred answers of a channel."""
        if self.answers.drop(channel):
            self.send_deferred_close()

    def send_last(self, method: MethodBase, error: AmqpError | None) -> None:
        """Send connection.close with an error, or close-ok, after all deferred answers."""
        self.deferred_close = (method, error)
        if not self.answers.deferring or not self.owner.will_answer():
            self.send_deferred_close()

    def send_deferred_close(self) -> None:
        """Send the close or close-ok that waited for the deferred answers."""
        if self.deferred_close is None:
            return
        method, error = self.deferred_close
        self.deferred_close = None
        self.write_frame(FRAME_METHOD, 0, encode_method(self.version, method))
        if error is not None:
            self.owner.on_failed(None, error)
        elif isinstance(method, ConnectionCloseOk):
            self.owner.on_closed()

    def close_without_answers(self) -> None:
        self.send_deferred_close()

    # --- Sending ------------------------------------------------------------------------------

    def send_method(self, number: int, method: MethodBase) -> None:
        """Send a method without content.

        Raises:
            AmqpError: the method is out of order here; nothing was written.
        """
        if number == 0:
            if isinstance(method, ConnectionClose):
                if self.state_number >= STATE_CLOSING:
                    raise AmqpError(ReplyCode.COMMAND_INVALID, "the connection is closed")
                self.state_number = STATE_CLOSING
                self.send_last(method, None)
                return
            elif isinstance(method, ConnectionCloseOk):
                self.state_number = STATE_CLOSED
            else:
                self.advance_state(self.role, method)
        elif self.state_number != STATE_OPEN:
            raise AmqpError(ReplyCode.COMMAND_INVALID, "the connection is not open")
        elif isinstance(method, ChannelOpen | ChannelResume):
            if number in self.channels or number > self.channel_max:
                raise AmqpError(ReplyCode.CHANNEL_ERROR, f"channel {number} cannot be opened")
            self.channels[number] = self.owner.make_channel(number)
        else:
            channel = self.channels.get(number)
            if channel is None or channel.state == C_CLOSING:
                raise AmqpError(ReplyCode.CHANNEL_ERROR, f"channel {number} is not open")
            if isinstance(method, ChannelClose):
                channel.state = C_CLOSING
                channel.abandon()
        self.write_frame(FRAME_METHOD, number, encode_method(self.version, method))

    def send_content(self, number: int, method: MethodBase, header: bytes, body: bytes) -> None:
        """Send a method with content: ``header`` is an encoded content header.

        Raises:
            AmqpError: the channel is not open; nothing was written.
        """
        self.send_encoded(number, encode_method(self.version, method), header, body)

    def send_encoded(self, number: int, method: bytes, header: bytes, body: bytes) -> None:
        """Send a method with content that is encoded already.

        Raises:
            AmqpError: the channel is not open; nothing was written.
        """
        self.check_open(number)
        self.write_frame(FRAME_METHOD, number, method)
        self.write_frame(FRAME_HEADER, number, header)
        limit = self.frame_max - C_OVERHEAD
        if 0 < len(body) <= limit:
            self.write_frame(FRAME_BODY, number, body)
            return
        for position in range(0, len(body), limit):
            self.write_frame(FRAME_BODY, number, body[position : position + limit])

    def send_ack(self, number: int, delivery_tag: int, multiple: bool) -> None:
        """Send a basic.ack.

        Raises:
            AmqpError: the channel is not open; nothing was written.
        """
        self.check_open(number)
        self.reserve(C_ACK_LEN + C_OVERHEAD)
        buffer = self.buffer
        position = self.tail
        buffer[position] = C_METHOD
        put16(buffer, position + C_CHANNEL_AT, number)
        put32(buffer, position + C_SIZE_AT, C_ACK_LEN)
        put32(buffer, position + C_PAYLOAD_AT, BASIC_ACK)
        put64(buffer, position + C_ARGUMENTS_AT, delivery_tag)
        buffer[position + C_ACK_FLAG_AT] = 1 if multiple else 0
        buffer[position + C_PAYLOAD_AT + C_ACK_LEN] = C_END
        self.tail = position + C_ACK_LEN + C_OVERHEAD

    def check_open(self, number: int) -> None:
        """Raise AmqpError unless the channel is open."""
        channel = self.channels.get(number)
        if self.state_number != STATE_OPEN or channel is None or channel.state == C_CLOSING:
            raise AmqpError(ReplyCode.CHANNEL_ERROR, f"channel {number} is not open")

    def send_heartbeat(self) -> None:
        """Send a heartbeat frame."""
        self.write_frame(FRAME_HEARTBEAT, 0, b"")
