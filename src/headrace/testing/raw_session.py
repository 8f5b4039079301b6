# SPDX-License-Identifier: Apache-2.0
"""A client of AMQP 0-10 with sessions: it sends the commands that it is given, and keeps what the
broker sends until it is asked for.

Framing and a session's state are those of `headrace.protocol`. What no session allows is said with
`raw_client_0_10`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headrace.protocol.codec_0_10 import (
    Command,
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionRedirect,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Control,
    DeliveryProperties,
    MessageFlow,
    MessageProperties,
    MessageSubscribe,
    MessageTransfer,
    SessionDetach,
    Struct,
    decode_headers,
    encode_headers,
)
from headrace.protocol.v0_10.connection.connection import Connection
from headrace.protocol.v0_10.events import (
    CommandReceived,
    ControlReceived,
    Detached,
    Event,
    ResultReceived,
    SessionFailed,
    TransferReceived,
)
from headrace.protocol.v0_10.session.session import Session
from headrace.protocol.v0_x.handshake import STATE_OPEN, Role
from headrace.testing.raw_socket import HUNG_UP, TIMEOUT_S, RawSocket

if TYPE_CHECKING:
    from headrace.testing.raw_socket import Tls
    from headrace.untyped import Result
    from headrace.wire.types_0_10 import Value

UNLIMITED = 0xFFFFFFFF  # Credit.
C = TypeVar("C", bound=Control)
S = TypeVar("S", bound=Struct)


class Delivery:
    """One transfer from the broker."""

    def __init__(self, event: TransferReceived) -> None:
        self.id = event.command_id
        self.command = event.command
        self.destination = event.command.destination
        self.body = event.body
        self.structs = decode_headers(event.header)

    def properties(self, kind: type[S]) -> S | None:
        """Return one struct of the header; None if it has none of the kind."""
        return next((struct for struct in self.structs if isinstance(struct, kind)), None)

    @property
    def delivery(self) -> DeliveryProperties | None:
        """The delivery properties."""
        return self.properties(DeliveryProperties)

    @property
    def message(self) -> MessageProperties | None:
        """The message properties."""
        return self.properties(MessageProperties)


class SessionClient(RawSocket):
    """One connection. `open` logs in and opens the virtual host; `attach` begins a session."""

    product = "headrace raw client"  # What connection.start-ok says of the client.
    insist = False  # On this broker: it must not redirect us.

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = TIMEOUT_S,
        window: int = 0,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(host, port, timeout_s=timeout_s, window=window, tls=tls)
        self.begin()

    def begin(self) -> None:
        """Send the protocol header."""
        self.machine = Connection(Role.CLIENT)
        self.controls: list[Control] = []
        self.closed = False  # At the end of the stream.
        self.sessions: dict[bytes, RawSession] = {}
        self.push()

    def open(self) -> Control:
        """Log in and open the virtual host; return the answer to connection.open."""
        self.control(ConnectionStart)
        properties: dict[str, Value] = {"product": self.product}
        self.send(
            ConnectionStartOk(
                client_properties=properties,
                mechanism="PLAIN",
                response=f"\0{self.user}\0{self.password}".encode(),
                locale="en_US",
            )
        )
        tune = self.control(ConnectionTune)
        self.send(
            ConnectionTuneOk(
                channel_max=tune.channel_max, max_frame_size=tune.max_frame_size, heartbeat=0
            )
        )
        self.send(ConnectionOpen(virtual_host=self.vhost, insist=self.insist))
        return self.control(ConnectionOpenOk, ConnectionRedirect, ConnectionClose)

    def send(self, control: Control) -> None:
        """Send a control of the connection class."""
        self.machine.send_control(control)
        self.push()

    def push(self) -> None:
        """Send what waits."""
        self.send_bytes(self.machine.data_to_send())

    def pull(self) -> None:
        """Read the next input."""
        if not self.receive():
            self.closed = True
            return
        data, self.rest = self.rest, b""
        for event in self.machine.receive(data):
            self.take(event)
        if self.machine.pending():
            self.push()

    def take(self, event: Event) -> None:
        """Keep an event for who asks for it."""
        if isinstance(event, ControlReceived):
            self.controls.append(event.control)
        else:
            session = self.sessions.get(getattr(event, "session", b""))
            if session is not None:
                session.take(event)

    def control(self, *kinds: type[C]) -> C:
        """Wait for one of these controls of the connection class, and take it."""
        while True:
            for place, control in enumerate(self.controls):
                if isinstance(control, kinds):
                    del self.controls[place]
                    return control
            if self.closed:
                raise self.make_error(f"{HUNG_UP} instead of {' or '.join(c.NAME for c in kinds)}")
            self.pull()

    def attach(self, name: str = "s", channel: int = 0, force: bool = False) -> RawSession:
        """Attach a session that is new to this client."""
        return RawSession(self, Session(name.encode()), channel, force)

    def until_closed(self) -> None:
        """Wait for the end of the stream."""
        while not self.closed:
            self.pull()

    def close(self) -> None:
        """Close the connection politely, and then the socket."""
        try:
            if self.machine.state_number == STATE_OPEN:
                self.send(ConnectionClose(reply_code=200))
                self.until_closed()
        finally:
            self.drop()

    def vanish(self) -> None:
        """Close the socket without a word, once the broker has read all that was sent."""
        super().vanish()
        self.machine.lost()


class RawSession:
    """One session of a client."""

    def __init__(
        self, client: SessionClient, machine: Session, channel: int = 0, force: bool = False
    ) -> None:
        self.client = client
        self.machine = machine
        self.name = machine.name
        self.deliveries: list[Delivery] = []
        self.results: dict[int, Result] = {}
        self.commands: list[CommandReceived] = []
        self.exception: Result = None
        self.detached: int | None = None
        client.sessions[machine.name] = self
        client.machine.attach(machine, channel, force)
        client.push()

    def take(self, event: Event) -> None:
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

    def send(
        self, command: Command, header: bytes = b"", body: bytes = b"", sync: bool = False
    ) -> int:
        """Send a command; return its id."""
        number: int = self.machine.send_command(command, sync=sync, header=header, body=body)
        self.client.push()
        return number

    def call(self, command: Command) -> Result:
        """Send a command and wait for its completion; return its result."""
        number = self.send(command, sync=True)
        self.wait(number)
        return self.results.get(number)

    def wait(self, number: int) -> None:
        """Wait until a command is complete."""
        completed = self.machine.sent.completed
        while not completed.has(completed.unwrap(number)):
            self.pull()

    def pull(self) -> None:
        """Read the next input; the session must not have ended."""
        if self.exception is not None or self.detached is not None:
            raise self.client.make_error(f"the session failed: {self.exception or self.detached}")
        self._pull()

    def _pull(self) -> None:
        if self.client.closed:
            raise self.client.make_error(HUNG_UP)
        self.client.pull()

    def refused(self, command: Command, header: bytes = b"", body: bytes = b"") -> Result:
        """Send a command that fails; return the execution.exception."""
        self.send(command, header, body)
        return self.failure()

    def failure(self) -> Result:
        """Wait until the session has failed and is detached; return the exception."""
        while self.detached is None:
            self._pull()
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
        **delivery: object,
    ) -> int:
        """Transfer a message to an exchange; return the command's id."""
        header: list[Struct] = [DeliveryProperties(routing_key=key, **delivery)]  # type: ignore[arg-type]  # The fields of the struct.
        if message is not None:
            header.append(message)
        header += structs or []
        transfer = MessageTransfer(destination=exchange, accept_mode=accept_mode, acquire_mode=0)
        number = self.send(transfer, encode_headers(header), body, sync=wait)
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
        **fields: object,
    ) -> None:
        """Subscribe, and give credit."""
        command = MessageSubscribe(
            queue=queue,
            destination=destination,
            accept_mode=accept_mode,
            acquire_mode=acquire_mode,
            **fields,  # type: ignore[arg-type]  # The fields of the command.
        )
        number = self.send(command, sync=True)
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
            self.pull()
        taken, self.deliveries = self.deliveries[:count], self.deliveries[count:]
        return taken

    def bodies(self, count: int) -> list[bytes]:
        """Wait for so many deliveries, and take their bodies."""
        return [delivery.body for delivery in self.take_deliveries(count)]

    def detach(self) -> None:
        """End the attachment and wait for it."""
        self.client.machine.write_control(self.machine.channel, SessionDetach(name=self.name))
        self.client.push()
        while self.detached is None:
            self._pull()
