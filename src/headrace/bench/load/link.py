# SPDX-License-Identifier: Apache-2.0
"""One blocking connection with one channel: what the generator needs before and after a load."""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING, TypeVar

from headrace import certificate_faults
from headrace.protocol.codec_0_x import (
    ChannelClose,
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
    decode_method,
    encode_method,
)
from headrace.spec.tables import Version
from headrace.wire.frame import FRAME_METHOD, HEARTBEAT, decode_frame, encode_frame

if TYPE_CHECKING:
    from headrace.client.url import Settings
    from headrace.wire.table import Value

VERSION = Version.V0_9_1
FRAME_MAX = 131072
CHANNEL_MAX_DEFAULT = 2047
TIMEOUT_S = 60.0
# The capability asks to be told of a refused login.
PROPERTIES: dict[str, Value] = {
    "product": "headrace bench",
    "capabilities": {"authentication_failure_close": True},
}

M = TypeVar("M", bound=MethodBase)


class BenchError(Exception):
    """The broker cannot be reached, or refused what a workload asks for."""


class Link:
    """A connection that is open, with channel 1 open."""

    def __init__(self, settings: Settings, version: Version = VERSION) -> None:
        self.settings = settings
        self.version = version
        self.frame_max = FRAME_MAX
        self.heartbeat_s = 0
        self.rest = b""  # Received, not yet looked at.
        self.socket = connect_socket(settings)
        try:
            self._shake_hands()
        except BaseException:
            self.socket.close()
            raise

    def _shake_hands(self) -> None:
        settings = self.settings
        self.socket.sendall(self.version.header)
        self.wait(ConnectionStart)
        response = b"\0" + settings.username.encode() + b"\0" + settings.password.encode()
        start_ok = ConnectionStartOk(
            client_properties=PROPERTIES if self.version is VERSION else {},
            mechanism="PLAIN",
            response=response,
            locale="en_US",
        )
        self.send(start_ok, channel=0)
        tune = self.wait(ConnectionTune)
        self.frame_max = min(tune.frame_max or FRAME_MAX, settings.frame_max)
        self.heartbeat_s = min(tune.heartbeat, settings.heartbeat_s)
        self.send(
            ConnectionTuneOk(
                channel_max=tune.channel_max or CHANNEL_MAX_DEFAULT,
                frame_max=self.frame_max,
                heartbeat=self.heartbeat_s,
            ),
            channel=0,
        )
        self.send(ConnectionOpen(virtual_host=settings.vhost), channel=0)
        self.wait(ConnectionOpenOk)
        self.call(ChannelOpen(), ChannelOpenOk)

    def send(self, method: MethodBase, channel: int = 1) -> None:
        """Send one method."""
        payload = encode_method(self.version, method)
        self.socket.sendall(encode_frame(FRAME_METHOD, channel, payload))

    def call(self, method: MethodBase, answer: type[M]) -> M:
        """Send a method and return its answer."""
        self.send(method)
        return self.wait(answer)

    def wait(self, wanted: type[M]) -> M:
        """Return the next method of one kind; drop others."""
        while True:
            method = self._next_method()
            if isinstance(method, wanted):
                return method
            raise_close(method)

    def _next_method(self) -> MethodBase:
        while True:
            frame = decode_frame(self.rest, 0, self.frame_max)
            if frame is not None:
                self.rest = self.rest[frame.end :]
                if frame.type == FRAME_METHOD:
                    return decode_method(self.version, frame.payload)
                continue
            try:
                octets = self.socket.recv(65536)
            except OSError as error:
                raise BenchError(f"{self.settings.address}: {error}") from error
            if not octets:
                raise BenchError(f"{self.settings.address} closed the connection")
            if octets.startswith(b"AMQP") and not self.rest:
                raise BenchError(
                    f"{self.settings.address} does not speak AMQP {self.version.label}"
                )
            self.rest += octets

    def heartbeat(self) -> None:
        """Send a heartbeat."""
        self.socket.sendall(HEARTBEAT)

    def close(self) -> None:
        """Close politely, however far that goes."""
        try:
            self.socket.settimeout(5.0)
            self.send(ConnectionClose(reply_code=200, reply_text="done"), channel=0)
            self.wait(ConnectionCloseOk)
        except (BenchError, OSError):
            pass
        finally:
            self.socket.close()


def connect_socket(settings: Settings) -> socket.socket:
    """Connect, with TLS when the URL says so."""
    try:
        context = settings.ssl_context() if settings.tls else None
        raw = socket.create_connection(
            (settings.host, settings.port), settings.connection_timeout_s
        )
        raw.settimeout(TIMEOUT_S)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            name = settings.server_name or settings.host
            return context.wrap_socket(raw, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        why = certificate_faults.explained(error, "the broker")
        raise BenchError(f"{settings.address}: {why}") from error
    except OSError as error:
        raise BenchError(f"{settings.address}: {error}") from error
    return raw


def raise_close(method: MethodBase) -> None:
    """Raise when the peer closes; anything else is of no interest here."""
    if isinstance(method, ChannelClose | ConnectionClose):
        raise BenchError(f"the broker closed: {method.reply_code} {method.reply_text}")


def ready_count(link: Link, queue: str) -> int:
    """Return the number of ready messages of a queue."""
    return link.call(QueueDeclare(queue=queue, passive=True), QueueDeclareOk).message_count


def wait_for_queue(settings: Settings, queue: str, timeout_s: float) -> int:
    """Connect until the broker knows the queue; return how many messages wait there."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            link = Link(settings)
            try:
                return ready_count(link, queue)
            finally:
                link.close()
        except BenchError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
