# SPDX-License-Identifier: Apache-2.0
"""A low-level client of AMQP 0-8, 0-9 and 0-9-1 for tests, checks and measurements.

The client sends single methods, frames or bytes, and returns the broker's next frame or method. It
sends nothing by itself, not even the answer to a close, and it may break the standard. Programs use
``headrace.client``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicProperties,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    MethodBase,
    PropertiesBase,
    QueueDeclare,
    QueueDeclareOk,
    decode_content_header,
    decode_method,
    encode_content_header,
    encode_method,
)
from headrace.protocol.errors import AmqpError
from headrace.spec.tables import V0_8, V0_9_1, Version
from headrace.testing.raw_socket import HUNG_UP, TIMEOUT_S, RawSocket, UnexpectedAnswer
from headrace.wire.frame import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD_SIZE,
    FRAME_HEADER,
    FRAME_METHOD,
    body_frames,
    encode_frame,
)

if TYPE_CHECKING:
    from headrace.client.url import Settings
    from headrace.testing.raw_socket import Tls
    from headrace.untyped import Properties
    from headrace.wire.table import Value

FRAME_MAX = 131072
CHANNEL_MAX = 2047
PRODUCT = "headrace raw client"
CLOSE_S_MAX = 2.0  # `RawClient.close` waits no longer for the broker's answer.
PROTOCOL_HEADER_SIZE = 8
M = TypeVar("M", bound=MethodBase)


class VersionNotServed(Exception):
    """The broker does not serve this version of AMQP."""

    def __init__(self, answer: bytes = b"") -> None:
        super().__init__(answer)
        self.answer = answer  # To the protocol header; empty if the broker hung up.


class Content(NamedTuple):
    """A received method with its content."""

    method: MethodBase
    properties: Properties
    body: bytes


class CloseReason(NamedTuple):
    """The reason that a channel.close or connection.close of the broker contains."""

    code: int
    text: str
    method: tuple[int, int]  # Class id and method id of the failed method, or zeros.


class RawClient(RawSocket):
    """A connection of AMQP 0-8, 0-9 or 0-9-1. The first bytes are sent by ``open`` or ``greet``."""

    def __init__(
        self,
        host: str,
        port: int,
        version: Version = V0_9_1,
        *,
        timeout_s: float = TIMEOUT_S,
        window: int = 0,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(host, port, timeout_s=timeout_s, window=window, tls=tls)
        self.version = version
        self.frame_max = FRAME_MAX
        self.heartbeat_s = 0
        self.probe = ""  # The last declared queue, by which `silent` makes a round trip.

    @classmethod
    def connect_to(cls, settings: Settings, version: Version = V0_9_1, *, window: int = 0) -> Self:
        """Connect to the address of a URL; its user, password and virtual host are the defaults.

        Raises:
            OSError: the address is not reachable, or the broker's certificate is refused.
        """
        client = super().connect_to(settings, window=window)
        client.version = version
        return client

    # --- Methods --------------------------------------------------------------------------------

    def send(self, method: MethodBase, channel: int | None = None) -> None:
        """Send a method, by default on channel 0 if its class is connection, else on channel 1."""
        self.send_bytes(method_frame(_choose_channel(type(method), channel), method, self.version))

    def frame(self) -> tuple[int, int, bytes] | None:
        """Return type, channel and payload of the next frame; None at the end of the stream."""
        head = self.read(FRAME_HEAD_SIZE)
        if not head:
            return None
        size = int.from_bytes(head[3:], "big")
        payload = self.read(size + 1) if len(head) == FRAME_HEAD_SIZE else b""
        if len(payload) <= size:
            self.cut_off()
            return None
        if payload[-1] != FRAME_END:
            raise self.make_error(f"a frame ends with octet {payload[-1]}")
        return head[0], int.from_bytes(head[1:3], "big"), payload[:-1]

    def cut_off(self) -> None:
        """Raise the error of a stream that ended within a frame.

        Subclasses that treat it like an end between two frames override this and return.
        """
        raise self.make_error(f"{HUNG_UP} in a frame")

    def next_method(self) -> tuple[int, MethodBase] | None:
        """Return channel and method of the next method frame; None at the end of the stream.

        Headers and bodies before it are skipped.
        """
        while (frame := self.frame()) is not None:
            kind, channel, payload = frame
            if kind == FRAME_METHOD:
                return channel, self._decode(payload)
        return None

    def next(self) -> tuple[int, MethodBase | Content]:
        """Return the channel and the next method, with its content if it carries one."""
        while (frame := self.frame()) is not None:
            kind, channel, payload = frame
            if kind in (FRAME_HEADER, FRAME_BODY):
                raise self.make_error(f"a frame of type {kind} instead of a method")
            if kind != FRAME_METHOD:  # A heartbeat.
                continue
            method = self._decode(payload)
            return channel, self._content(method, channel) if method.CONTENT else method
        raise self.make_error(HUNG_UP)

    def _decode(self, payload: bytes) -> MethodBase:
        try:
            return decode_method(self.version, payload)
        except AmqpError as error:
            raise self.make_error(f"the broker's frame cannot be decoded: {error}") from error

    def _content(self, method: MethodBase, channel: int) -> Content:
        frame = self.frame()
        if frame is None or frame[:2] != (FRAME_HEADER, channel):
            raise self.make_error(f"no content header after {method.NAME}")
        try:
            class_id, size, properties = decode_content_header(self.version, frame[2])
        except AmqpError as error:
            raise self.make_error(f"the broker's frame cannot be decoded: {error}") from error
        if class_id != method.INDEX[self.version][0]:
            raise self.make_error(f"a content header of class {class_id} after {method.NAME}")
        body = b""
        while len(body) < size:
            frame = self.frame()
            if frame is None or frame[:2] != (FRAME_BODY, channel):
                raise self.make_error("a body that ends before its size")
            body += frame[2]
        return Content(method, properties, body)

    def expect(self, kind: type[M], channel: int | None = None) -> M:
        """Return the next method, which must be of this kind; its content is discarded."""
        number, answer = self.next()
        method = answer.method if isinstance(answer, Content) else answer
        if not isinstance(method, kind) or number != _choose_channel(kind, channel):
            raise self.make_error(
                f"{describe_answer(method)} on channel {number} instead of {kind.NAME}"
            )
        return method

    def content(self, kind: type[M], channel: int = 1) -> tuple[M, bytes]:
        """Return the next method, which must be of this kind, and the body of its content."""
        number, answer = self.next()
        if not isinstance(answer, Content) or not isinstance(answer.method, kind):
            raise self.make_error(
                f"{describe_answer(answer)} on channel {number} instead of {kind.NAME}"
            )
        if number != channel:
            raise self.make_error(f"{kind.NAME} on channel {number}, not {channel}")
        return answer.method, answer.body

    def call(self, method: MethodBase, answer: type[M], channel: int | None = None) -> M:
        """Send a method and return its answer, which must be the broker's next method."""
        self.send(method, channel)
        return self.expect(answer, channel)

    # --- Opening --------------------------------------------------------------------------------

    def client_properties(self) -> dict[str, Value]:
        """Return the client properties; a capability requests the reason of a refused login."""
        return {"product": PRODUCT, "capabilities": {"authentication_failure_close": True}}

    def greet(self) -> ConnectionStart:
        """Send the protocol header; return the broker's connection.start.

        Raises:
            VersionNotServed: the broker does not serve this version.
        """
        self.send_bytes(self.version.header)
        answer = self.read(PROTOCOL_HEADER_SIZE)
        if not answer or answer.startswith(b"AMQP"):
            raise VersionNotServed(answer)
        self.rest = answer + self.rest
        start = self.expect(ConnectionStart)
        numbers = (8, 0) if self.version is V0_8 else (0, 9)
        if (start.version_major, start.version_minor) != numbers:
            raise VersionNotServed(answer)
        return start

    def log_in(
        self, user: str | None = None, password: str | None = None, *, mechanism: str = "PLAIN"
    ) -> ConnectionTune:
        """Log in, by default as the user of the URL; return the broker's connection.tune."""
        self.greet()
        answer = start_ok(
            self.user if user is None else user,
            self.password if password is None else password,
            mechanism=mechanism,
        )
        answer.client_properties = self.client_properties()
        self.send(answer)
        return self.expect(ConnectionTune)

    def tune(
        self,
        user: str | None = None,
        password: str | None = None,
        *,
        frame_max: int = 0,
        heartbeat_s: int = 0,
    ) -> Self:
        """Log in and send connection.tune-ok. A `frame_max` of 0 accepts the broker's."""
        tune = self.log_in(user, password)
        self.frame_max = tune.frame_max or FRAME_MAX
        if frame_max:
            self.frame_max = min(self.frame_max, frame_max)
        self.heartbeat_s = min(tune.heartbeat, heartbeat_s)
        self.send(
            ConnectionTuneOk(
                channel_max=tune.channel_max or CHANNEL_MAX,
                frame_max=self.frame_max,
                heartbeat=self.heartbeat_s,
            )
        )
        return self

    def open_connection(
        self,
        user: str | None = None,
        password: str | None = None,
        vhost: str | None = None,
        *,
        frame_max: int = 0,
        heartbeat_s: int = 0,
    ) -> Self:
        """Log in and open a virtual host."""
        self.tune(user, password, frame_max=frame_max, heartbeat_s=heartbeat_s)
        self.call(
            ConnectionOpen(virtual_host=self.vhost if vhost is None else vhost), ConnectionOpenOk
        )
        return self

    def channel(self, number: int) -> Self:
        """Open a channel."""
        self.call(ChannelOpen(), ChannelOpenOk, number)
        return self

    def open(self, *, frame_max: int = FRAME_MAX, heartbeat_s: int = 0) -> Self:
        """Log in, open the virtual host, and open channel 1."""
        self.open_connection(frame_max=frame_max, heartbeat_s=heartbeat_s)
        return self.channel(1)

    # --- Closing --------------------------------------------------------------------------------

    def expect_channel_close(self, channel: int = 1) -> CloseReason:
        """Answer the broker's channel.close, which must be its next method; return the reason."""
        close = self.expect(ChannelClose, channel)
        self.send(ChannelCloseOk(), channel)
        method = (close.class_id, close.method_id)
        return CloseReason(close.reply_code, close.reply_text, method)

    def expect_connection_close(self) -> CloseReason:
        """Answer the broker's connection.close, which must be its next method; return the reason.

        The broker must then end the stream.
        """
        close = self.expect(ConnectionClose)
        self.try_send_bytes(method_frame(0, ConnectionCloseOk(), self.version))
        if not self.hung_up():
            raise self.make_error("the broker kept the connection open after connection.close-ok")
        method = (close.class_id, close.method_id)
        return CloseReason(close.reply_code, close.reply_text, method)

    def close(self) -> None:
        """Send connection.close, wait up to `CLOSE_S_MAX` for the answer, and close the socket."""
        try:
            self.socket.settimeout(CLOSE_S_MAX)
            self.send(ConnectionClose(reply_code=200, reply_text="done"))
            deadline = time.monotonic() + CLOSE_S_MAX
            while (frame := self.frame()) is not None and time.monotonic() < deadline:
                if encode_frame(*frame) == method_frame(0, ConnectionCloseOk(), self.version):
                    break
        except (UnexpectedAnswer, OSError):
            pass
        finally:
            self.drop()

    # --- Queues and messages --------------------------------------------------------------------

    def declare(self, queue: str = "", channel: int = 1, **fields: object) -> QueueDeclareOk:
        """Declare a queue; `fields` are other fields of queue.declare, such as ``durable=True``."""
        self.probe = queue
        method = QueueDeclare(queue=queue, **fields)  # type: ignore[arg-type]  # The fields of the method.
        return self.call(method, QueueDeclareOk, channel)

    def with_queue(self, queue: str, channel: int = 1, **fields: object) -> Self:
        """Declare a queue; return this client, to declare it where the client is opened."""
        self.declare(queue, channel, **fields)
        return self

    def count(self, queue: str, channel: int = 1) -> int:
        """Return the number of ready messages of a queue."""
        return self.declare(queue, channel, passive=True).message_count

    def silent(self, channel: int = 1) -> bool:
        """Return True if the broker's next method answers a passive declaration sent now.

        Otherwise the broker had sent another method before, which raises the error of `expect`.
        """
        self.count(self.probe, channel)
        return True

    def publish(
        self,
        routing_key: str,
        *bodies: bytes,
        exchange: str = "",
        channel: int = 1,
        mandatory: bool = False,
        immediate: bool = False,
        **properties: object,
    ) -> None:
        """Publish a message for each body; `properties` are those of all messages."""
        method = BasicPublish(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, immediate=immediate
        )
        shared = BasicProperties(**properties)  # type: ignore[arg-type]  # The fields of the properties.
        for body in bodies:
            self.send_content(method, shared, body, channel)

    def send_content(
        self, method: MethodBase, properties: PropertiesBase, body: bytes, channel: int = 1
    ) -> None:
        """Send a method with content."""
        self.send_bytes(self.content_frames(method, properties, body, channel))

    def content_frames(
        self, method: MethodBase, properties: PropertiesBase, body: bytes, channel: int = 1
    ) -> bytes:
        """Return the frames of a method with content."""
        header = encode_content_header(self.version, properties.CLASS_ID, len(body), properties)
        return (
            method_frame(channel, method, self.version)
            + encode_frame(FRAME_HEADER, channel, header)
            + body_frames(channel, body, self.frame_max)
        )

    def consume(self, queue: str, tag: str = "tag", channel: int = 1, **fields: object) -> None:
        """Consume from a queue."""
        method = BasicConsume(queue=queue, consumer_tag=tag, **fields)  # type: ignore[arg-type]  # The fields of the method.
        self.call(method, BasicConsumeOk, channel)

    def ack(self, tag: int, channel: int = 1, *, multiple: bool = False) -> None:
        """Acknowledge a delivery."""
        self.send(BasicAck(delivery_tag=tag, multiple=multiple), channel)

    def get_content(self, queue: str, channel: int = 1, *, no_ack: bool = True) -> Content | None:
        """Return the next message of a queue; None if it has none."""
        self.send(BasicGet(queue=queue, no_ack=no_ack), channel)
        _, answer = self.next()
        if isinstance(answer, BasicGetEmpty):
            return None
        if not isinstance(answer, Content) or not isinstance(answer.method, BasicGetOk):
            raise self.make_error(f"{describe_answer(answer)} instead of {BasicGetOk.NAME}")
        return answer

    def get(self, queue: str, channel: int = 1, *, no_ack: bool = True) -> bytes | None:
        """Return the body of the next message of a queue; None if it has none."""
        content = self.get_content(queue, channel, no_ack=no_ack)
        return None if content is None else content.body


def method_frame(channel: int, method: MethodBase, version: Version = V0_9_1) -> bytes:
    """Return a method in its frame."""
    return encode_frame(FRAME_METHOD, channel, encode_method(version, method))


def start_ok(
    user: str = "guest",
    password: str = "guest",
    *,
    mechanism: str = "PLAIN",
    reports_failure: bool = True,
) -> ConnectionStartOk:
    """Return a connection.start-ok. With `reports_failure` a refused login gets connection.close.

    Without it the broker closes the socket without a reason, as the standard requires.
    """
    capabilities: dict[str, Value] = {"authentication_failure_close": reports_failure}
    return ConnectionStartOk(
        client_properties={"product": PRODUCT, "capabilities": capabilities},
        mechanism=mechanism,
        response=f"\0{user}\0{password}".encode(),
        locale="en_US",
    )


def describe_answer(answer: MethodBase | Content) -> str:
    """Return the name of a method, with code and text if it is a close."""
    method = answer.method if isinstance(answer, Content) else answer
    if isinstance(method, ChannelClose | ConnectionClose):
        return f"{method.NAME} {method.reply_code} {method.reply_text}"
    return method.NAME


def _choose_channel(kind: type[MethodBase], channel: int | None) -> int:
    """Return the channel, by default 0 for methods of class connection and 1 for others."""
    if channel is not None:
        return channel
    return 0 if kind.NAME.startswith("connection.") else 1
