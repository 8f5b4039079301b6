# SPDX-License-Identifier: Apache-2.0
"""A client of AMQP 0-8, 0-9 or 0-9-1 that says what a check tells it, method by method.

It hides nothing: what the broker says next is what a check hears next, so that a check can tell an
answer from an error and silence from both.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headrace import certificate_faults
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
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
    QueueDeclare,
    QueueDeclareOk,
    decode_content_header,
    decode_method,
    encode_content_header,
    encode_method,
)
from headrace.protocol.errors import AmqpError
from headrace.wire.frame import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    encode_frame,
)

if TYPE_CHECKING:
    from headrace.client.url import Settings
    from headrace.spec.tables import Version

CLOSE_S_MAX = 2.0  # A polite close takes no longer.
HEAD_OCTETS = 7  # Of a frame, before its payload.
PROTOCOL_HEADER = 8
BASIC = 60
M = TypeVar("M", bound=MethodBase)


class BrokenRule(Exception):
    """The broker did something else than the rule says."""


class NotServed(Exception):
    """The broker does not speak this version."""


class Content(NamedTuple):
    """A method that came with content."""

    method: MethodBase
    properties: BasicProperties
    body: bytes


class Closed(NamedTuple):
    """The broker's close of a channel (or, `fatal`, of the connection)."""

    code: int
    text: str
    fatal: bool


def must(condition: object, what: str) -> None:
    """Raise BrokenRule when the condition does not hold; `what` says what should have been."""
    if not condition:
        raise BrokenRule(what)


class Peer:
    """One connection; `open` logs in and opens channel 1."""

    def __init__(self, settings: Settings, version: Version, window: int = 0) -> None:
        self.settings = settings
        self.version = version
        self.answer_s = settings.connection_timeout_s  # What takes longer does not come.
        self.frame_max = 4096
        self.start = ConnectionStart()
        self.tune = ConnectionTune()
        self._rest = b""
        context = settings.ssl_context() if settings.tls else None
        raw = _connect(settings, window)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            name = settings.server_name or settings.host
            try:
                raw = context.wrap_socket(raw, server_hostname=name)
            except ssl.SSLCertVerificationError as error:
                raise certificate_faults.explained(error, "the broker") from None
        self.socket = raw

    # --- Frames ---------------------------------------------------------------------------------

    def put(self, octets: bytes) -> None:
        """Send octets as they are."""
        try:
            self.socket.sendall(octets)
        except OSError as error:
            raise BrokenRule(f"the broker hung up: {error}") from error

    def read(self, size: int) -> bytes:
        """The next octets; fewer when the stream ends before."""
        while len(self._rest) < size:
            try:
                more = self.socket.recv(65536)
            except TimeoutError:
                raise BrokenRule(f"no answer within {self.answer_s:g} s") from None
            except (ConnectionError, ssl.SSLError):
                more = b""
            if not more:
                break
            self._rest += more
        octets, self._rest = self._rest[:size], self._rest[size:]
        return octets

    def frame(self) -> tuple[int, int, bytes] | None:
        """Type, channel and payload of the next frame but heartbeats; None at the end."""
        while True:
            head = self.read(HEAD_OCTETS)
            if len(head) < HEAD_OCTETS:
                return None
            size = int.from_bytes(head[3:7], "big")
            payload = self.read(size + 1)
            if len(payload) <= size:
                return None
            if head[0] not in (FRAME_METHOD, FRAME_HEADER, FRAME_BODY):
                continue
            return head[0], int.from_bytes(head[1:3], "big"), payload[:size]

    # --- Methods --------------------------------------------------------------------------------

    def send(self, method: MethodBase, channel: int = 1) -> None:
        """Send a method."""
        self.put(encode_frame(FRAME_METHOD, channel, encode_method(self.version, method)))

    def next(self) -> tuple[int, MethodBase | Content]:
        """The next method, with its content if it carries one, and its channel."""
        frame = self.frame()
        if frame is None:
            raise BrokenRule("the broker hung up")
        kind, channel, payload = frame
        must(kind == FRAME_METHOD, f"a frame of type {kind} where a method was due")
        try:
            method = decode_method(self.version, payload)
            return channel, self._content(method) if method.CONTENT else method
        except AmqpError as error:
            raise BrokenRule(f"what the broker sent cannot be read: {error}") from error

    def _content(self, method: MethodBase) -> Content:
        frame = self.frame()
        if frame is None or frame[0] != FRAME_HEADER:
            raise BrokenRule("no content header behind a method that has one")
        _, size, properties = decode_content_header(self.version, frame[2])
        must(isinstance(properties, BasicProperties), "not the properties of the basic class")
        assert isinstance(properties, BasicProperties)
        body = b""
        while len(body) < size:
            frame = self.frame()
            if frame is None or frame[0] != FRAME_BODY:
                raise BrokenRule("a body that ends before its size")
            body += frame[2]
        return Content(method, properties, body)

    def heard(self, kind: type[M], channel: int = 1) -> M:
        """The next method, which must be this one."""
        number, method = self.next()
        if not isinstance(method, kind) or number != channel:
            raise BrokenRule(f"{_named(method)} on channel {number} instead of {kind.NAME}")
        return method

    def call(self, method: MethodBase, answer: type[M], channel: int = 1) -> M:
        """Send a method; its answer must be the next thing that comes."""
        self.send(method, channel)
        return self.heard(answer, channel)

    def closed(self, channel: int = 1) -> Closed:
        """The broker closes the channel or the connection, and is agreed with."""
        number, method = self.next()
        if isinstance(method, ConnectionClose):
            with contextlib.suppress(BrokenRule):
                self.send(ConnectionCloseOk(), 0)
            return Closed(method.reply_code, method.reply_text, fatal=True)
        if not isinstance(method, ChannelClose) or number != channel:
            raise BrokenRule(f"{_named(method)} on channel {number} instead of an error")
        self.send(ChannelCloseOk(), channel)
        return Closed(method.reply_code, method.reply_text, fatal=False)

    def refused(self, method: MethodBase, code: int, fatal: bool = False, channel: int = 1) -> None:
        """Send a method, which must be answered with this code; the channel is opened again."""
        self.send(method, channel)
        closed = self.closed(channel)
        what = f"{method.NAME} closes the {'connection' if fatal else 'channel'} with {code}"
        must(
            (closed.code, closed.fatal) == (code, fatal),
            f"{what}, not the {'connection' if closed.fatal else 'channel'} with {closed.code} "
            f"{closed.text}",
        )
        if not fatal:
            self.call(ChannelOpen(), ChannelOpenOk, channel)

    # --- The usual ------------------------------------------------------------------------------

    def greet(self) -> ConnectionStart:
        """Say which version; raise NotServed when the broker speaks others only."""
        self.put(self.version.header)
        first = self.read(PROTOCOL_HEADER)
        if not first or first.startswith(b"AMQP"):
            raise NotServed
        self._rest = first + self._rest
        self.start = self.heard(ConnectionStart, 0)
        if (self.start.version_major, self.start.version_minor) != _numbers(self.version):
            raise NotServed
        return self.start

    def log_in(self) -> ConnectionTune:
        """Up to and with the broker's tune."""
        self.greet()
        settings = self.settings
        self.send(
            ConnectionStartOk(
                client_properties={"product": "headrace conformance"},
                mechanism="PLAIN",
                response=f"\0{settings.username}\0{settings.password}".encode(),
                locale="en_US",
            ),
            0,
        )
        self.tune = self.heard(ConnectionTune, 0)
        return self.tune

    def open(self) -> Peer:
        """Log in and open channel 1."""
        tune = self.log_in()
        self.frame_max = min(tune.frame_max or 131072, 131072)
        self.send(ConnectionTuneOk(channel_max=tune.channel_max, frame_max=self.frame_max), 0)
        self.call(ConnectionOpen(virtual_host=self.settings.vhost), ConnectionOpenOk, 0)
        self.channel(1)
        return self

    def channel(self, number: int) -> None:
        """Open a channel."""
        self.call(ChannelOpen(), ChannelOpenOk, number)

    def close(self) -> None:
        """Close politely, then let go of the socket."""
        with contextlib.suppress(BrokenRule, OSError):
            self.socket.settimeout(CLOSE_S_MAX)
            self.send(ConnectionClose(reply_code=200, reply_text="done"), 0)
            ok = encode_frame(FRAME_METHOD, 0, encode_method(self.version, ConnectionCloseOk()))
            deadline = time.monotonic() + CLOSE_S_MAX
            while (frame := self.frame()) is not None and time.monotonic() < deadline:
                if encode_frame(*frame) == ok:
                    break
        self.drop()

    def drop(self) -> None:
        """Let go of the socket without a word."""
        self.socket.close()

    def declare(self, queue: str = "", channel: int = 1, **fields: object) -> QueueDeclareOk:
        """Declare a queue."""
        return self.call(QueueDeclare(queue=queue, **fields), QueueDeclareOk, channel)  # type: ignore[arg-type]  # The fields of the method.

    def count(self, queue: str, channel: int = 1) -> int:
        """Return the number of ready messages of a queue."""
        return self.declare(queue, channel, passive=True).message_count

    def holds(self, queue: str, count: int, channel: int = 1) -> bool:
        """Return True once a queue holds so many messages; some brokers count a bit late."""
        deadline = time.monotonic() + self.answer_s / 2
        while self.count(queue, channel) != count:
            if time.monotonic() > deadline:
                return False
        return True

    def publish(
        self,
        routing_key: str,
        *bodies: bytes,
        exchange: str = "",
        mandatory: bool = False,
        immediate: bool = False,
        channel: int = 1,
        priority: int | None = None,
        delivery_mode: int | None = None,
    ) -> None:
        """Publish messages with these bodies."""
        properties = BasicProperties(priority=priority, delivery_mode=delivery_mode)
        method = BasicPublish(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, immediate=immediate
        )
        step = self.frame_max - FRAME_OVERHEAD
        for body in bodies:
            self.send(method, channel)
            header = encode_content_header(self.version, BASIC, len(body), properties)
            self.put(encode_frame(FRAME_HEADER, channel, header))
            for at in range(0, len(body), step):
                self.put(encode_frame(FRAME_BODY, channel, body[at : at + step]))

    def consume(self, queue: str, tag: str = "c", channel: int = 1, **fields: object) -> None:
        """Consume from a queue."""
        method = BasicConsume(queue=queue, consumer_tag=tag, **fields)  # type: ignore[arg-type]  # The fields of the method.
        self.call(method, BasicConsumeOk, channel)

    def content(self, kind: type[M], channel: int = 1) -> tuple[M, Content]:
        """The next thing that comes must be this content."""
        number, content = self.next()
        if not isinstance(content, Content) or not isinstance(content.method, kind):
            raise BrokenRule(f"{_named(content)} on channel {number} instead of {kind.NAME}")
        must(number == channel, f"{kind.NAME} on channel {number}, not {channel}")
        return content.method, content

    def delivered(self, channel: int = 1) -> tuple[BasicDeliver, bytes]:
        """The next thing that comes must be a delivery."""
        method, content = self.content(BasicDeliver, channel)
        return method, content.body

    def get(self, queue: str, channel: int = 1, *, no_ack: bool = True) -> Content | None:
        """The next message of a queue, or None when there is none."""
        self.send(BasicGet(queue=queue, no_ack=no_ack), channel)
        _, answer = self.next()
        if isinstance(answer, BasicGetEmpty):
            return None
        if not isinstance(answer, Content) or not isinstance(answer.method, BasicGetOk):
            raise BrokenRule(f"{_named(answer)} instead of basic.get-ok")
        return answer

    def bodies(self, queue: str) -> list[bytes]:
        """All that waits in a queue, taken out."""
        found = []
        while (content := self.get(queue)) is not None:
            found.append(content.body)
        return found


def _connect(settings: Settings, window: int) -> socket.socket:
    """Connect; what a socket takes must be said before."""
    failure = OSError("no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM
    ):
        raw = socket.socket(family, kind, protocol)
        try:
            if window:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
            raw.settimeout(settings.connection_timeout_s)
            raw.connect(address)
        except OSError as error:
            raw.close()
            failure = error
            continue
        return raw
    raise failure


def _numbers(version: Version) -> tuple[int, int]:
    """Return the version numbers in connection.start."""
    return {"0-8": (8, 0), "0-9": (0, 9), "0-9-1": (0, 9)}[version.label]


def _named(method: MethodBase | Content) -> str:
    if isinstance(method, Content):
        method = method.method
    if isinstance(method, ChannelClose | ConnectionClose):
        return f"{method.NAME} {method.reply_code} {method.reply_text}"
    return method.NAME
