# SPDX-License-Identifier: Apache-2.0
"""One blocking 0-10 connection with one session: what the generator needs around a load."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from headrace.bench.load.link import TIMEOUT_S, BenchError, connect_socket
from headrace.protocol.codec_0_10 import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ExecutionException,
    ExecutionSync,
    decode_command,
    decode_control,
)
from headrace.protocol.v0_10.connection.connection import Connection
from headrace.protocol.v0_10.events import ControlReceived, Failed, HeaderRejected, SessionFailed
from headrace.protocol.v0_10.session.session import Session
from headrace.protocol.v0_x.handshake import STATE_OPEN, Role
from headrace.wire.errors import MalformedError

if TYPE_CHECKING:
    from headrace.client.url import Settings
    from headrace.protocol.codec_0_10 import Command

CHANNEL = 0


class Link010:
    """A connection that is open, with one session attached."""

    heartbeat_s = 0  # None are asked for.

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.machine = Connection(Role.CLIENT)
        self.session = Session(uuid.uuid4().bytes)
        self.controls: list[Any] = []
        self.rest = b""
        self.socket = connect_socket(settings)
        try:
            self._open()
        except BaseException:
            self.socket.close()
            raise

    @property
    def frame_max(self) -> int:
        """Octets of a frame, as agreed on."""
        return self.machine.max_frame_size

    def _open(self) -> None:
        settings = self.settings
        self._push()
        self._control("connection.start")
        response = b"\0" + settings.username.encode() + b"\0" + settings.password.encode()
        self.machine.send_control(
            ConnectionStartOk(
                client_properties={"product": "headrace bench"},
                mechanism="PLAIN",
                response=response,
                locale="en_US",
            )
        )
        self._push()
        tune = self._control("connection.tune")
        self.machine.send_control(
            ConnectionTuneOk(
                channel_max=tune.channel_max, max_frame_size=tune.max_frame_size, heartbeat=0
            )
        )
        self.machine.send_control(ConnectionOpen(virtual_host=settings.vhost))
        self._push()
        self._control("connection.open-ok")
        self.machine.attach(self.session, CHANNEL)
        self.call(ExecutionSync())

    def _push(self) -> None:
        self.socket.sendall(self.machine.data_to_send())

    def _pull(self) -> None:
        try:
            octets = self.socket.recv(65536)
        except OSError as error:
            raise BenchError(f"{self.settings.address}: {error}") from error
        if not octets:
            raise BenchError(f"{self.settings.address} closed the connection")
        for event in self.machine.receive(octets):
            if isinstance(event, ControlReceived):
                if isinstance(event.control, ConnectionClose):
                    raise BenchError(f"the broker closed: {event.control.reply_text}")
                self.controls.append(event.control)
            elif isinstance(event, SessionFailed):
                raise BenchError(f"the session failed: {event.error}")
            elif isinstance(event, HeaderRejected | Failed):
                raise BenchError(f"{self.settings.address} does not speak AMQP 0-10")

    def _control(self, name: str) -> Any:
        while True:
            for at, control in enumerate(self.controls):
                if name == control.NAME:
                    return self.controls.pop(at)
            self._pull()

    def send(self, command: Command) -> int:
        """Send one command; return its id."""
        number: int = self.session.send_command(command, sync=True)
        self._push()
        return number

    def call(self, command: Command) -> None:
        """Send a command and wait until it is complete."""
        number = self.send(command)
        sent = self.session.sent.completed
        while not sent.has(sent.near(number)):
            self._pull()

    def flush(self) -> None:
        """Send what the machine has to say."""
        self._push()

    def close(self) -> None:
        """Close politely, however far that goes."""
        try:
            self.socket.settimeout(min(5.0, TIMEOUT_S))
            if self.machine.state_number == STATE_OPEN:
                self.machine.send_control(ConnectionClose(reply_code=200))
                self._push()
        except OSError:
            pass
        finally:
            self.socket.close()


def raise_failure(payload: bytes) -> None:
    """Raise when a control or command ends the session or the connection."""
    try:
        if payload[:2] == bytes(ExecutionException.CODE):
            failure: Any = decode_command(payload)[1]
            raise BenchError(f"the session failed: {failure.error_code} {failure.description}")
        if payload[:2] == bytes(ConnectionClose.CODE):
            close: Any = decode_control(payload)
            raise BenchError(f"the broker closed: {close.reply_code} {close.reply_text}")
    except MalformedError as error:
        raise BenchError(f"the broker sent what cannot be read: {error}") from error
