# SPDX-License-Identifier: Apache-2.0
"""A client that says what it is told to, method by method, and hears everything."""

from __future__ import annotations

from typing import Any, NamedTuple, Self, TypeVar

from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicProperties,
    BasicPublish,
    MethodBase,
    QueueDeclare,
    QueueDeclareOk,
    decode_content_header,
    decode_method,
    encode_content_header,
)
from headrace.spec.tables import V0_9_1, Version
from headrace.wire.frame import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, encode_frame
from support.clients.raw_client import Closed, Raw, method_frame

BODY_FRAME_MAX = 131072 - 8
M = TypeVar("M", bound=MethodBase)


class Content(NamedTuple):
    """A method that came with content."""

    method: MethodBase
    properties: Any
    body: bytes


class Talk:
    """A client with channel 1 open."""

    version: Version = V0_9_1

    def __init__(self, host: str, port: int, version: Version = V0_9_1) -> None:
        self.version = version
        self.raw = Raw(host, port, version).opened().channel(1)

    @classmethod
    def of(cls, raw: Raw) -> Talk:
        """A client around a connection with a channel open already."""
        talk = cls.__new__(cls)
        talk.version = raw.version
        talk.raw = raw
        return talk

    def close(self) -> None:
        self.raw._socket.close()

    def vanish(self) -> None:
        """End the connection without a word, once the broker has read all that was sent."""
        self.raw.end()
        while self.raw._more():
            pass
        self.close()

    def channel(self, number: int) -> None:
        self.raw.channel(number)

    def send(self, method: MethodBase, channel: int = 1) -> None:
        self.raw.method(channel, method)

    def call(self, method: MethodBase, answer: type[M], channel: int = 1) -> M:
        """Send a method; its answer must be the next thing that comes."""
        self.send(method, channel)
        return self.heard(answer, channel)

    def heard(self, kind: type[M], channel: int = 1) -> M:
        """The next frame must be this method."""
        number, method = self.next()
        assert number == channel, (number, method)
        assert isinstance(method, kind), method
        return method

    def next(self) -> tuple[int, MethodBase | Content]:
        """The next method, with its content if it carries one."""
        while True:
            frame = self.raw.frame()
            assert frame is not None, "the broker hung up"
            kind, channel, payload = frame
            if kind == FRAME_METHOD:
                break
        method = decode_method(self.version, payload)
        if not method.CONTENT:
            return channel, method
        frame = self.raw.frame()
        assert frame is not None
        assert frame[:2] == (FRAME_HEADER, channel), frame
        _, size, properties = decode_content_header(self.version, frame[2])
        body = b""
        while len(body) < size:
            frame = self.raw.frame()
            assert frame is not None
            assert frame[:2] == (FRAME_BODY, channel), frame
            body += frame[2]
        return channel, Content(method, properties, body)

    def content(self, kind: type[M], channel: int = 1) -> tuple[M, bytes]:
        """The next thing that comes must be this content; return its method and its body."""
        number, content = self.next()
        assert number == channel, (number, content)
        assert isinstance(content, Content), content
        assert isinstance(content.method, kind), content
        return content.method, content.body

    def silent(self, channel: int = 1) -> bool:
        """Nothing was on its way to us: the answer to a harmless question comes next."""
        self.call(QueueDeclare(queue=self.probe, passive=True), QueueDeclareOk, channel)
        return True

    probe = ""

    def closed(self, channel: int = 1) -> Closed:
        return self.raw.closed_channel(channel)

    # -- The usual -----------------------------------------------------------------------------

    def declare(self, name: str, channel: int = 1, **flags: Any) -> QueueDeclareOk:
        self.probe = name
        return self.call(QueueDeclare(queue=name, **flags), QueueDeclareOk, channel)

    def with_queue(self, name: str, channel: int = 1, **flags: Any) -> Self:
        """Declare a queue; return the client."""
        self.declare(name, channel, **flags)
        return self

    def publish(
        self,
        routing_key: str,
        *bodies: bytes,
        exchange: str = "",
        channel: int = 1,
        mandatory: bool = False,
        immediate: bool = False,
        **properties: Any,
    ) -> None:
        publish = BasicPublish(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, immediate=immediate
        )
        made = BasicProperties(**properties)
        for body in bodies:
            octets = method_frame(channel, publish, self.version)
            header = encode_content_header(self.version, 60, len(body), made)
            octets += encode_frame(FRAME_HEADER, channel, header)
            for at in range(0, len(body), BODY_FRAME_MAX):
                octets += encode_frame(FRAME_BODY, channel, body[at : at + BODY_FRAME_MAX])
            self.raw.send(octets)

    def consume(self, queue: str, tag: str = "tag", channel: int = 1, **flags: Any) -> None:
        method = BasicConsume(queue=queue, consumer_tag=tag, **flags)
        self.call(method, BasicConsumeOk, channel)

    def ack(self, tag: int, channel: int = 1, *, multiple: bool = False) -> None:
        self.send(BasicAck(delivery_tag=tag, multiple=multiple), channel)

    def get(self, queue: str, channel: int = 1, *, no_ack: bool = True) -> bytes | None:
        """The body of the next message, or None when there is none."""
        self.send(BasicGet(queue=queue, no_ack=no_ack), channel)
        _, answer = self.next()
        if isinstance(answer, BasicGetEmpty):
            return None
        assert isinstance(answer, Content), answer
        assert isinstance(answer.method, BasicGetOk)
        return answer.body

    def count(self, queue: str, channel: int = 1) -> int:
        return self.declare(queue, channel, passive=True).message_count
