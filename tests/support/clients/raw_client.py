# SPDX-License-Identifier: Apache-2.0
"""A client made of single frames: it sends what no client should, and reads what comes back."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from headrace.protocol.codec_0_x import (
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
    decode_method,
    encode_method,
)
from headrace.spec.tables import V0_9_1, Version
from headrace.wire.frame import FRAME_METHOD, encode_frame
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = b"AMQP\x00\x00\x09\x01"
M = TypeVar("M", bound=MethodBase)
opened: list[socket.socket] = []  # Closed at the end of the test that opened them.


@contextlib.contextmanager
def hanging_up() -> Iterator[None]:
    """Close what was opened meanwhile, and left open."""
    before = len(opened)
    yield
    for one in opened[before:]:
        one.close()
    del opened[before:]


class Closed(NamedTuple):
    """The reason with which the broker closed a channel or the connection."""

    code: int
    text: str
    method: tuple[int, int]


def method_frame(channel: int, method: MethodBase, version: Version = V0_9_1) -> bytes:
    return encode_frame(FRAME_METHOD, channel, encode_method(version, method))


class Raw:
    """One socket to a broker."""

    def __init__(
        self, host: str, port: int, version: Version = V0_9_1, kernel_holds: int | None = None
    ) -> None:
        """Connect; `kernel_holds` bounds the octets that the kernel keeps for who does not read."""
        self.version = version
        self._socket = socket.socket()
        self._socket.settimeout(PATIENCE_S)
        if kernel_holds is not None:  # Before the connection: its window is told then.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kernel_holds)
        self._socket.connect((host, port))
        opened.append(self._socket)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._got = b""
        self.frame_max = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    # -- Sending -----------------------------------------------------------------------------

    def send(self, octets: bytes) -> None:
        """Send octets as they are."""
        self._socket.sendall(octets)

    def try_send(self, octets: bytes) -> None:
        """Send to a broker that may have hung up already."""
        with contextlib.suppress(OSError):
            self.send(octets)

    def method(self, channel: int, method: MethodBase) -> None:
        self.send(method_frame(channel, method, self.version))

    def end(self) -> None:
        """Send no more."""
        self._socket.shutdown(socket.SHUT_WR)

    # -- Receiving ---------------------------------------------------------------------------

    def _more(self) -> bool:
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError:
            return False
        self._got += data
        return bool(data)

    def read(self, size: int) -> bytes:
        """The next octets; fewer only when the broker hung up."""
        while len(self._got) < size and self._more():
            pass
        data, self._got = self._got[:size], self._got[size:]
        return data

    def frame(self) -> tuple[int, int, bytes] | None:
        """The next frame, or None when the broker hung up."""
        head = self.read(7)
        if len(head) < 7:
            assert not head, f"the broker hung up in a frame: {head!r}"
            return None
        size = int.from_bytes(head[3:], "big")
        rest = self.read(size + 1)
        assert len(rest) == size + 1, "the broker hung up in a frame"
        assert rest[-1] == 0xCE
        return head[0], int.from_bytes(head[1:3], "big"), rest[:-1]

    def next_method(self) -> tuple[int, MethodBase] | None:
        """The next method and its channel; heartbeats and content are passed over."""
        while True:
            frame = self.frame()
            if frame is None:
                return None
            kind, channel, payload = frame
            if kind == FRAME_METHOD:
                return channel, decode_method(self.version, payload)

    def expect(self, kind: type[M]) -> M:
        """The next method must be of this class."""
        received = self.next_method()
        assert received is not None, f"the broker hung up instead of {kind.NAME}"
        assert isinstance(received[1], kind), received
        return received[1]

    def hung_up(self) -> bool:
        """True when the broker ends the stream without another octet."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._got and time.monotonic() < deadline:
            if not self._more():
                return True
        return False

    # -- The usual --------------------------------------------------------------------------

    def greet(self) -> ConnectionStart:
        self.send(self.version.header)
        return self.expect(ConnectionStart)

    def log_in(
        self, user: str = "guest", password: str = "guest", *, mechanism: str = "PLAIN"
    ) -> ConnectionTune:
        """Up to and with the broker's tune."""
        self.greet()
        self.method(0, start_ok(user, password, mechanism=mechanism))
        return self.expect(ConnectionTune)

    def tuned(
        self, user: str = "guest", password: str = "guest", *, frame_max: int | None = None
    ) -> Raw:
        """`frame_max` lowers the broker's."""
        tune = self.log_in(user, password)
        self.frame_max = frame_max or tune.frame_max
        self.method(0, ConnectionTuneOk(channel_max=tune.channel_max, frame_max=self.frame_max))
        return self

    def opened(
        self,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        *,
        frame_max: int | None = None,
    ) -> Raw:
        self.tuned(user, password, frame_max=frame_max)
        self.method(0, ConnectionOpen(virtual_host=vhost))
        self.expect(ConnectionOpenOk)
        return self

    def channel(self, number: int) -> Raw:
        self.method(number, ChannelOpen())
        self.expect(ChannelOpenOk)
        return self

    def closed_connection(self) -> Closed:
        """The broker closes the connection: agree, and see it end."""
        close = self.expect(ConnectionClose)
        self.try_send(method_frame(0, ConnectionCloseOk(), self.version))
        assert self.hung_up(), "the broker kept the connection"
        return Closed(close.reply_code, close.reply_text, (close.class_id, close.method_id))

    def closed_channel(self, number: int) -> Closed:
        """The broker closes one channel: agree."""
        received = self.next_method()
        assert received is not None, "the broker hung up"
        channel, close = received
        assert channel == number, received
        assert isinstance(close, ChannelClose), received
        self.method(number, ChannelCloseOk())
        return Closed(close.reply_code, close.reply_text, (close.class_id, close.method_id))


def start_ok(
    user: str = "guest",
    password: str = "guest",
    *,
    mechanism: str = "PLAIN",
    hears_failure: bool = True,
) -> ConnectionStartOk:
    capabilities: dict[str, Any] = {"authentication_failure_close": hears_failure}
    return ConnectionStartOk(
        client_properties={"product": "raw", "capabilities": capabilities},
        mechanism=mechanism,
        response=f"\0{user}\0{password}".encode(),
        locale="en_US",
    )
