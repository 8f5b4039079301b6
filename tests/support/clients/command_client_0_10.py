# SPDX-License-Identifier: Apache-2.0
"""A 0-10 client that says exactly what a test tells it, by our machine in the client's role."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.protocol.codec_0_10 import (
    Command,
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    DeliveryProperties,
    MessageFlow,
    MessageProperties,
    MessageSubscribe,
    MessageTransfer,
    QueueQuery,
    SessionDetach,
    Struct,
    decode_headers,
    encode_headers,
)
from headrace.protocol.v0_10.connection.connection import Connection
from headrace.protocol.v0_10.events import (
    CommandReceived,
    Completed,
    ControlReceived,
    Detached,
    Event,
    ResultReceived,
    SessionFailed,
    TransferReceived,
)
from headrace.protocol.v0_10.session.session import Session
from headrace.protocol.v0_x.handshake import Role
from support.clients import raw_client
from support.timeouts import PATIENCE_S

UNLIMITED = 0xFFFFFFFF


class Delivery:
    """One transfer from the broker."""

    def __init__(self, event: TransferReceived) -> None:
        self.id = event.command_id
        self.destination = event.command.destination
        self.command = event.command
        self.body = event.body
        self.structs = decode_headers(event.header)

    def properties(self, kind: type[Struct]) -> Any:
        return next((struct for struct in self.structs if isinstance(struct, kind)), None)

    @property
    def delivery(self) -> DeliveryProperties:
        found: DeliveryProperties = self.properties(DeliveryProperties)
        return found

    @property
    def message(self) -> MessageProperties:
        found: MessageProperties = self.properties(MessageProperties)
        return found


class Talk:
    """One connection."""

    def __init__(
        self,
        port: int,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        insist: bool = False,
        opened: bool = True,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        raw_client.opened.append(self.socket)
        self.machine = Connection(Role.CLIENT)
        self.login = f"\0{user}\0{password}".encode()
        self.vhost = vhost
        self.insist = insist
        self.events: list[Event] = []
        self.controls: list[Any] = []
        self.closed = False
        self.sessions: dict[bytes, TalkSession] = {}
        self.push()
        if opened:
            self.open()

    def open(self) -> Any:
        """Log in and open; return the answer to connection.open."""
        self.control("connection.start")
        self.machine.send_control(
            ConnectionStartOk(
                client_properties={}, mechanism="PLAIN", response=self.login, locale="en_US"
            )
        )
        self.push()
        tune = self.control("connection.tune")
        self.machine.send_control(
            ConnectionTuneOk(
                channel_max=tune.channel_max, max_frame_size=tune.max_frame_size, heartbeat=0
            )
        )
        self.machine.send_control(ConnectionOpen(virtual_host=self.vhost, insist=self.insist))
        self.push()
        return self.control("connection.open-ok", "connection.redirect", "connection.close")

    def push(self) -> None:
        """Send what waits."""
        self.socket.sendall(self.machine.data_to_send())

    def pull(self) -> None:
        """Take what comes next."""
        data = self.socket.recv(65536)
        if not data:
            self.closed = True
            return
        for event in self.machine.receive(data):
            if isinstance(event, ControlReceived):
                self.controls.append(event.control)
            elif isinstance(event, Detached) or hasattr(event, "session"):
                name = event.session
                if name in self.sessions:
                    self.sessions[name].take(event)
            self.events.append(event)
        if self.machine.pending():
            self.push()

    def control(self, *names: str) -> Any:
        """Wait for one of these controls of the connection class, and take it."""
        while True:
            for at, control in enumerate(self.controls):
                if control.NAME in names:
                    return self.controls.pop(at)
            assert not self.closed, f"closed while waiting for {names}"
            self.pull()

    def attach(self, name: str = "s", channel: int = 0, force: bool = False) -> TalkSession:
        """Attach a session that is new to this client."""
        return TalkSession(self, name.encode(), channel, force)

    def until_closed(self) -> None:
        """Wait for the end of the stream."""
        while not self.closed:
            self.pull()

    def close(self) -> None:
        """Say goodbye."""
        if self.machine.state_number == 8:
            self.machine.send_control(ConnectionClose(reply_code=200))
            self.push()
            self.until_closed()
        self.socket.close()

    def drop(self) -> None:
        """End the connection without a word, once the broker has read all that was sent.

        Closing at once would reset the connection if an answer is unread, and a reset may overtake
        what was sent.
        """
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(65536):
                pass
        self.socket.close()
        self.machine.lost()


class TalkSession:
    """One session of a talk."""

    def __init__(
        self, talk: Talk, name: bytes, channel: int, force: bool, machine: Session | None = None
    ) -> None:
        self.talk = talk
        self.name = name
        self.machine = Session(name) if machine is None else machine
        self.deliveries: list[Delivery] = []
        self.results: dict[int, Any] = {}
        self.commands: list[CommandReceived] = []
        self.exception: Any = None
        self.detached: int | None = None
        talk.sessions[name] = self
        talk.machine.attach(self.machine, channel, force)
        talk.push()

    def take(self, event: Any) -> None:
        """Sort what came."""
        if isinstance(event, TransferReceived):
            self.deliveries.append(Delivery(event))
        elif isinstance(event, ResultReceived):
            self.results[event.command_id] = event.value
        elif isinstance(event, CommandReceived):
            self.commands.append(event)
        elif isinstance(event, SessionFailed):
            self.exception = event.error
        elif isinstance(event, Detached):
            self.detached = event.code
        elif isinstance(event, Completed):
            pass

    def send(
        self, command: Command, header: bytes = b"", body: bytes = b"", sync: bool = False
    ) -> int:
        """Send a command; return its id."""
        number = self.machine.send_command(command, sync=sync, header=header, body=body)
        self.talk.push()
        assert isinstance(number, int)
        return number

    def call(self, command: Command) -> Any:
        """Send a command and wait for its completion; return its result."""
        number = self.send(command, sync=True)
        self.wait(number)
        return self.results.get(number)

    def wait(self, number: int) -> None:
        """Wait until a command is complete."""
        sent = self.machine.sent.completed
        while not sent.has(sent.near(number)):
            assert self.exception is None, self.exception
            assert self.detached is None, self.detached
            assert not self.talk.closed
            self.talk.pull()

    def refused(self, command: Command, header: bytes = b"", body: bytes = b"") -> Any:
        """Send a command that fails; return the execution.exception."""
        self.send(command, header, body)
        return self.failure()

    def failure(self) -> Any:
        """Wait until the session has failed and is detached; return the exception."""
        while self.detached is None:
            assert not self.talk.closed
            self.talk.pull()
        return self.exception

    def publish(
        self,
        body: bytes,
        key: str = "",
        exchange: str = "",
        *,
        accept_mode: int = 1,
        message: MessageProperties | None = None,
        structs: list[Struct] | None = None,
        wait: bool = True,
        **delivery: Any,
    ) -> int:
        """Transfer a message to an exchange."""
        header: list[Any] = [DeliveryProperties(routing_key=key, **delivery)]
        if message is not None:
            header.append(message)
        header += structs or []
        number = self.send(
            MessageTransfer(destination=exchange, accept_mode=accept_mode, acquire_mode=0),
            encode_headers(header),
            body,
            sync=wait,
        )
        if wait:
            self.wait(number)
        return number

    def subscribe(
        self,
        queue: str,
        destination: str = "d",
        *,
        accept_mode: int = 0,
        acquire_mode: int = 0,
        messages: int | None = UNLIMITED,
        octets: int | None = UNLIMITED,
        **more: Any,
    ) -> None:
        """Subscribe, and give credit."""
        number = self.send(
            MessageSubscribe(
                queue=queue,
                destination=destination,
                accept_mode=accept_mode,
                acquire_mode=acquire_mode,
                **more,
            ),
            sync=True,
        )
        if octets is not None:
            number = self.send(MessageFlow(destination=destination, unit=1, value=octets))
        if messages is not None:
            number = self.send(
                MessageFlow(destination=destination, unit=0, value=messages), sync=True
            )
        self.wait(number)

    def take_deliveries(self, count: int) -> list[Delivery]:
        """Wait for so many deliveries, and take them."""
        while len(self.deliveries) < count:
            assert self.exception is None, self.exception
            assert not self.talk.closed
            self.talk.pull()
        taken, self.deliveries = self.deliveries[:count], self.deliveries[count:]
        return taken

    def bodies(self, count: int) -> list[bytes]:
        """Wait for so many deliveries, and take their bodies."""
        return [delivery.body for delivery in self.take_deliveries(count)]

    def detach(self) -> None:
        """End the attachment and wait for it."""
        self.talk.machine.write_control(self.machine.channel, SessionDetach(name=self.name))
        self.talk.push()
        while self.detached is None:
            self.talk.pull()


@contextmanager
def talking(port: int, **how: Any) -> Iterator[TalkSession]:
    """A session on a connection of its own."""
    talk = Talk(port, **how)
    try:
        yield talk.attach()
    finally:
        talk.close()


def depth(session: TalkSession, queue: str) -> int:
    """Return the number of ready messages of a queue."""
    count = session.call(QueueQuery(queue=queue)).message_count
    assert isinstance(count, int)
    return count


def failed(session: TalkSession, command: Command, code: int, field: str = "") -> None:
    """Expect the command to fail with the code, and one of its fields to be blamed."""
    failure = session.refused(command)
    assert failure.error_code == code, failure
    assert (failure.class_code, failure.command_code) == command.CODE
    if field:
        names = [one for one in command.__slots__ if isinstance(one, str)]
        assert names[failure.field_index] == field
