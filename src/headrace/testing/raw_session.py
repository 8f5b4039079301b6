# SPDX-License-Identifier: Apache-2.0
"""A low-level client of AMQP 0-10 that follows the rules of connections and sessions.

The state machines of ``headrace.protocol`` frame the commands and keep the state of sessions. The
client stores the broker's controls, commands, transfers and results until a test takes them.
``raw_client_0_10`` has a client that can break the rules of a session.
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

UNLIMITED = 0xFFFFFFFF  # The value of message.flow that removes a limit of credit.
C = TypeVar("C", bound=Control)
S = TypeVar("S", bound=Struct)


class Delivery:
    """A message.transfer from the broker."""

    def __init__(self, event: TransferReceived) -> None:
        self.id = event.command_id
        self.command = event.command
        self.destination = event.command.destination
        self.body = event.body
        self.structs = decode_headers(event.header)

    def properties(self, kind: type[S]) -> S | None:
        """Return the header's struct of a kind; None if the header has none."""
        return next((struct for struct in self.structs if isinstance(struct, kind)), None)

    @property
    def delivery(self) -> DeliveryProperties | None:
        """The header's delivery properties, if any."""
        return self.properties(DeliveryProperties)

    @property
    def message(self) -> MessageProperties | None:
        """The header's message properties, if any."""
        return self.properties(MessageProperties)


class SessionClient(RawSocket):
    """A connection of AMQP 0-10. ``open`` logs in; ``attach`` creates a session."""

    product = "headrace raw client"  # The product in the client properties.
    insist = False  # The flag of connection.open that forbids the broker to redirect the client.

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
        """Create the state machine of the connection and send the protocol header."""
        self.machine = Connection(Role.CLIENT)
        self.controls: list[Control] = []
        self.closed = False  # True at the end of the stream.
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
        """Send the bytes that the state machine has produced."""
        self.send_bytes(self.machine.data_to_send())

    def pull(self) -> None:
        """Wait for input and handle its events; set `closed` at the end of the stream."""
        if not self.receive():
            self.closed = True
            return
        data, self.rest = self.rest, b""
        for event in self.machine.receive(data):
            self.take(event)
        if self.machine.pending():
            self.push()

    def take(self, event: Event) -> None:
        """Store a control, or pass an event to its session."""
        if isinstance(event, ControlReceived):
            self.controls.append(event.control)
        else:
            session = self.sessions.get(getattr(event, "session", b""))
            if session is not None:
                session.take(event)

    def control(self, *kinds: type[C]) -> C:
        """Wait for a control of one of these kinds; remove and return it."""
        while True:
            for index, control in enumerate(self.controls):
                if isinstance(control, kinds):
                    del self.controls[index]
                    return control
            if self.closed:
                names = " or ".join(kind.NAME for kind in kinds)
                raise self.make_error(f"{HUNG_UP} instead of {names}")
            self.pull()

    def attach(self, name: str = "s", channel: int = 0, force: bool = False) -> RawSession:
        """Create a session with a name and attach it. A channel of 0 is chosen by the client."""
        return RawSession(self, Session(name.encode()), channel, force)

    def until_closed(self) -> None:
        """Wait for the end of the stream."""
        while not self.closed:
            self.pull()

    def close(self) -> None:
        """Send connection.close if the connection is open, wait for the end, close the socket."""
        try:
            if self.machine.state_number == STATE_OPEN:
                self.send(ConnectionClose(reply_code=200))
                self.until_closed()
        finally:
            self.drop()

    def vanish(self) -> None:
        """Close the socket without connection.close, after the broker has read all bytes."""
        super().vanish()
        self.machine.detach_all()


class RawSession:
    """A session of a ``SessionClient``, with its unread input."""

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
        """Store an event of the session."""
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
        """Wait until the broker has completed a command."""
        completed = self.machine.sent.completed
        while not completed.has(completed.unwrap(number)):
            self.pull()

    def pull(self) -> None:
        """Wait for input and handle its events. The session must be attached and not failed."""
        if self.exception is not None or self.detached is not None:
            raise self.client.make_error(f"the session failed: {self.exception or self.detached}")
        self._pull()

    def _pull(self) -> None:
        if self.client.closed:
            raise self.client.make_error(HUNG_UP)
        self.client.pull()

    def expect_exception(self, command: Command, header: bytes = b"", body: bytes = b"") -> Result:
        """Send a command that must fail; return the broker's execution.exception."""
        self.send(command, header, body)
        return self.wait_for_exception()

    def wait_for_exception(self) -> Result:
        """Wait until the session is detached; return its execution.exception, if any."""
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
        """Transfer a message to an exchange; return the command id.

        Args:
            body: the body of the message.
            key: its routing key.
            exchange: the exchange; "" is the default exchange.
            accept_mode: 0 requires an explicit accept, 1 none.
            message: the message properties, if any.
            structs: further structs of the header.
            wait: whether to wait until the transfer is complete.
            delivery: further delivery properties, such as ``ttl=1000``.
        """
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
        byte_credit: int | None = UNLIMITED,
        **fields: object,
    ) -> None:
        """Subscribe to a queue and grant credit of messages and bytes; None grants no credit."""
        command = MessageSubscribe(
            queue=queue,
            destination=destination,
            accept_mode=accept_mode,
            acquire_mode=acquire_mode,
            **fields,  # type: ignore[arg-type]  # The fields of the command.
        )
        number = self.send(command, sync=True)
        if byte_credit is not None:
            number = self.send(MessageFlow(destination=destination, unit=1, value=byte_credit))
        if messages is not None:
            number = self.send(
                MessageFlow(destination=destination, unit=0, value=messages), sync=True
            )
        self.wait(number)

    def take_deliveries(self, count: int) -> list[Delivery]:
        """Wait for a number of deliveries; remove and return them."""
        while len(self.deliveries) < count:
            self.pull()
        deliveries, self.deliveries = self.deliveries[:count], self.deliveries[count:]
        return deliveries

    def bodies(self, count: int) -> list[bytes]:
        """Wait for a number of deliveries; remove them and return their bodies."""
        return [delivery.body for delivery in self.take_deliveries(count)]

    def detach(self) -> None:
        """Send session.detach and wait for the broker's session.detached."""
        self.client.machine.write_control(self.machine.channel, SessionDetach(name=self.name))
        self.client.push()
        while self.detached is None:
            self._pull()
