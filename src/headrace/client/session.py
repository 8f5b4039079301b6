# SPDX-License-Identifier: Apache-2.0
"""Sessions of AMQP 0-10 in their own terms: commands, credit, browsing, distributed transactions.

A session belongs to no connection: it is attached to one, and may be detached and attached to
another while the broker keeps its state (`timeout_s`). Commands have ids; a command is done when
the broker has completed it. `call` sends any command of the standard and waits for that; the other
methods are the same with names and defaults. An error of the broker (a ChannelClosed with the code
of execution.exception) ends the session for good.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.client.closing import AsyncClosing
from headrace.client.errors import (
    ChannelClosed,
    ClientError,
    ConnectionLost,
    Nacked,
    Returned,
    UsageError,
    channel_closed,
    fresh,
)
from headrace.client.message import Content, Message
from headrace.client.properties_0_10 import fields_of, place_of, structs_of
from headrace.client.session_calls import SessionCalls
from headrace.client.subscription import Subscription, Transfer
from headrace.protocol.codec_0_10 import (
    Acquired,
    Command,
    ExecutionException,
    ExecutionSync,
    MessageAccept,
    MessageAcquire,
    MessageFlow,
    MessageReject,
    MessageRelease,
    MessageSetFlowMode,
    MessageStop,
    MessageSubscribe,
    MessageTransfer,
    Struct,
    decode_headers,
    encode_headers,
)
from headrace.protocol.session_0_10 import Session as Machine
from headrace.spec.reply_0_10 import AcceptMode, AcquireMode, DetachCode, FlowMode, RejectCode
from headrace.wire.ranges import SequenceSet

if TYPE_CHECKING:
    from headrace.client.connection import Connection
    from headrace.client.intake import Intake
    from headrace.client.link_0_10 import Link010

NO_ROUTE = 312
COMMANDS_MAX = 65536  # Commands of the broker that nobody took.


@dataclass(slots=True, eq=False)
class _Call:
    """A command whose end somebody waits for."""

    future: asyncio.Future[Struct | None]
    wants_result: bool


@dataclass(slots=True, eq=False)
class _Sent:
    """A transfer whose acceptance somebody waits for."""

    message: Message
    future: asyncio.Future[None]
    exchange: str
    routing_key: str


class Session(AsyncClosing, SessionCalls):
    """One session. Make one with `connection.session(...)`."""

    def __init__(
        self, connection: Connection, name: str | bytes = "", timeout_s: int | None = 0
    ) -> None:
        super().__init__()
        raw = name.encode() if isinstance(name, str) else name
        self.name = raw or uuid.uuid4().hex.encode()
        self.timeout_s: int | None = 0  # As granted: how long the broker keeps it when detached.
        self.intake: Intake = connection.intake
        self.incoming: deque[tuple[Command, list[Struct], bytes]] = deque()
        self._wanted_s = timeout_s
        self._machine = Machine(self.name)
        self._link: Link010 | None = None
        self._attached: asyncio.Future[None] | None = None
        self._granted: asyncio.Future[None] | None = None
        self._detached: asyncio.Future[None] | None = None
        self._calls: dict[int, _Call] = {}
        self._sent: dict[int, _Sent] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._taking = asyncio.Event()
        self._modes: dict[str, tuple[bool, bool]] = {}  # Acquires, explicit: by destination.
        self._closing = False
        self._error: ClientError | None = None

    def __repr__(self) -> str:
        state = "closed" if self._error else "attached" if self._link else "detached"
        return f"<Session {self.name.decode(errors='replace')!r}, {state}>"

    @property
    def is_attached(self) -> bool:
        """Whether it has a connection now."""
        return self._link is not None

    @property
    def is_closed(self) -> bool:
        """Whether it is over for good."""
        return self._error is not None

    # --- Attachment ---------------------------------------------------------------------------

    async def attach(self, connection: Connection, *, force: bool = False) -> None:
        """Attach it to a connection; `force` takes it away from where it is attached.

        What was sent and not completed is sent again, and pending calls go on.
        """
        self._check_open()
        if self._link is not None:
            raise UsageError(f"{self!r} is attached already")
        link = await connection.session_link()
        self._attached = asyncio.get_running_loop().create_future()
        attached = self._attached
        link.attach(self._machine, self, link.free_number(connection.channel_numbers), force=force)
        self._link = link
        self.intake = connection.intake
        await self._wait(attached)
        if self._wanted_s != 0:
            await self.request_timeout(self._wanted_s)

    async def detach(self) -> None:
        """Leave the connection. The broker keeps the session for `timeout_s` seconds."""
        if self._link is None:
            return
        link = self._link
        self._detached = asyncio.get_running_loop().create_future()
        self._machine.detach()
        link.schedule_flush()
        await self._wait(self._detached)

    async def request_timeout(self, timeout_s: int | None) -> int | None:
        """Ask the broker to keep the session so long when it is detached; what it grants."""
        link = self._ready()
        self._granted = asyncio.get_running_loop().create_future()
        self._machine.request_timeout(timeout_s)
        link.schedule_flush()
        await self._wait(self._granted)
        return self.timeout_s

    async def close(self) -> None:
        """End the session: detach, and keep nothing."""
        if self._error is not None:
            return
        self._closing = True
        if self._link is not None:
            try:
                if self.timeout_s != 0:
                    await self.request_timeout(0)
                await self.detach()
            except ClientError:
                pass  # Over all the same.
        self._fail(ChannelClosed(200, "the session was closed by this program"))

    # --- Commands -----------------------------------------------------------------------------

    def send(
        self,
        command: Command,
        *,
        sync: bool = False,
        headers: Sequence[Struct] = (),
        body: bytes = b"",
    ) -> int:
        """Send a command without waiting; its id. While detached it waits for the next attach.

        Raises ConnectionLost when it is detached and the broker keeps nothing of it.
        """
        self._check_open()
        if self._link is None and not self._machine.keeps:
            raise ConnectionLost(f"{self!r} has no connection")
        number = self._machine.send_command(command, sync, encode_headers(headers), body)
        if self._link is not None:
            self._link.schedule_flush()
        return int(number)

    async def call(
        self, command: Command, *, headers: Sequence[Struct] = (), body: bytes = b""
    ) -> Struct | None:
        """Send any command, wait until it is completed, and return its result if it has one."""
        number = self.send(command, sync=True, headers=headers, body=body)
        call = _Call(asyncio.get_running_loop().create_future(), command.RESULT is not None)
        self._calls[number] = call
        value: Struct | None = await self._wait(call.future)
        return value

    async def sync(self) -> None:
        """Wait until the broker has completed every command sent so far."""
        await self.call(ExecutionSync())

    async def next_command(self) -> tuple[Command, list[Struct], bytes]:
        """The next command of the broker that is none of the message class: with its content."""
        while not self.incoming:
            self._check_open()
            self._taking.clear()
            await self._taking.wait()
        return self.incoming.popleft()

    # --- Messages -----------------------------------------------------------------------------

    async def transfer(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        accept: bool = True,
        discard_unroutable: bool = True,
        immediate: bool = False,
        extra: Sequence[Struct] = (),
    ) -> None:
        """Send a message and wait until the broker accepts it.

        A message without an id gets a random one.

        Raises Returned when it is rejected as unroutable (only without `discard_unroutable`), and
        Nacked for another rejection. With `accept=False` its completion is enough. `extra` are more
        structs for the header segment.
        """
        sent = await self.transfer_soon(
            message,
            routing_key,
            exchange,
            accept=accept,
            discard_unroutable=discard_unroutable,
            immediate=immediate,
            extra=extra,
        )
        await self._wait(sent)

    async def transfer_soon(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        accept: bool = True,
        discard_unroutable: bool = True,
        immediate: bool = False,
        extra: Sequence[Struct] = (),
    ) -> asyncio.Future[Any]:
        """As `transfer`, and return a future of the outcome."""
        if self._link is not None:
            await self._link.can_write.wait()
        message = Message.of(message)
        if message.message_id is None:
            message = replace(message, message_id=str(uuid.uuid4()))
        structs = structs_of(
            message,
            exchange,
            routing_key,
            discard_unroutable=discard_unroutable,
            immediate=immediate,
        )
        command = MessageTransfer(
            destination=exchange,
            accept_mode=AcceptMode.EXPLICIT if accept else AcceptMode.NONE,
            acquire_mode=AcquireMode.PRE_ACQUIRED,
        )
        number = self.send(command, sync=True, headers=[*structs, *extra], body=message.body)
        loop = asyncio.get_running_loop()
        if accept:
            sent = _Sent(message, loop.create_future(), exchange, routing_key)
            self._sent[number] = sent
            return sent.future
        call = _Call(loop.create_future(), False)
        self._calls[number] = call
        return call.future

    async def subscribe(
        self,
        queue: str,
        destination: str = "",
        *,
        accept: bool = True,
        acquire: bool = True,
        exclusive: bool = False,
        arguments: dict[str, Any] | None = None,
        window: bool = False,
    ) -> Subscription:
        """Subscribe to a queue; give credit with `flow` before anything comes.

        `acquire=False` browses: the messages stay in the queue for others. `accept=False` counts
        them as accepted when they are sent. `window` sets the flow mode at once.
        """
        destination = destination or uuid.uuid4().hex
        if destination in self._subscriptions:
            raise UsageError(f"destination {destination!r} is in use in this session")
        if self._transactional == "tx" and not accept:
            raise UsageError("in a transactional session messages must be accepted explicitly")
        subscription = Subscription(self, queue, destination)
        self._subscriptions[destination] = subscription
        self._modes[destination] = (acquire, accept)
        await self.call(
            MessageSubscribe(
                queue=queue,
                destination=destination,
                accept_mode=AcceptMode.EXPLICIT if accept else AcceptMode.NONE,
                acquire_mode=AcquireMode.PRE_ACQUIRED if acquire else AcquireMode.NOT_ACQUIRED,
                exclusive=exclusive,
                arguments=arguments,
            )
        )
        if window:
            await subscription.set_flow_mode(FlowMode.WINDOW)
        return subscription

    async def accept(self, *transfers: Transfer) -> None:
        """Done with these messages."""
        numbers = self._own(transfers)
        self._acquired(transfers)
        self._complete(numbers)
        await self.call(MessageAccept(transfers=numbers))

    async def reject(
        self, *transfers: Transfer, code: RejectCode = RejectCode.UNSPECIFIED, text: str = ""
    ) -> None:
        """Not to be done by anybody: they go to the alternate exchange of their queue."""
        numbers = self._own(transfers)
        self._acquired(transfers)
        self._complete(numbers)
        await self.call(MessageReject(transfers=numbers, code=code, text=text or None))

    async def release(self, *transfers: Transfer, set_redelivered: bool = False) -> None:
        """Put them back into their queue."""
        numbers = self._own(transfers)
        self._complete(numbers)
        await self.call(MessageRelease(transfers=numbers, set_redelivered=set_redelivered))

    async def acquire(self, *transfers: Transfer) -> list[Transfer]:
        """Take messages that were browsed; those that could be had."""
        result = await self._result(MessageAcquire(transfers=self._own(transfers)), Acquired)
        had = result.transfers or SequenceSet()
        taken = [transfer for transfer in transfers if transfer.number in had]
        for transfer in taken:
            transfer.acquired = True
        return taken

    def complete(self, *transfers: Transfer) -> None:
        """Tell the broker that these are dealt with: in window mode their credit comes back."""
        self._complete(self._own(transfers))

    # --- For the link -------------------------------------------------------------------------

    def attached(self) -> None:
        """The broker attached the session."""
        _settle(self._attached)

    def detached(self, code: int) -> None:
        """The session left its channel."""
        link, self._link = self._link, None
        if link is not None:
            link.forget(self._machine)
        if self._detached is not None and not self._detached.done():
            self._detached.set_result(None)
            if not self._machine.keeps and not self._closing:
                self._fail(ConnectionLost(f"{self!r} was detached and not kept"))
            return
        reason = DetachCode(code).name if code in list(DetachCode) else str(code)
        error = ChannelClosed(code, f"the broker detached the session: {reason}")
        attaching = self._attached
        if attaching is not None and not attaching.done():
            attaching.set_exception(fresh(error))
        elif self._machine.keeps and not self._machine.ended:
            return
        self._fail(error)

    def transferred(self, number: int, command: Any, header: bytes, body: bytes) -> None:
        """A message came."""
        destination = command.destination or ""
        subscription = self._subscriptions.get(destination)
        structs = decode_headers(header)
        redelivered, exchange, routing_key = place_of(structs)
        transfer = Transfer(
            body,
            exchange=exchange,
            routing_key=routing_key,
            redelivered=redelivered,
            delivery_tag=number,
            consumer_tag=destination,
            number=number,
            destination=destination,
            acquired=command.acquire_mode != AcquireMode.NOT_ACQUIRED,
            explicit=command.accept_mode != AcceptMode.NONE,
            structs=structs,
            session=self,
            **fields_of(structs),
        )
        if subscription is None:
            if transfer.acquired:
                self._machine.send_command(MessageRelease(transfers=_numbers([transfer])))
            self._complete(_numbers([transfer]))
            return
        self.intake.hold(len(body))
        subscription.add(transfer)

    def command(self, number: int, command: Command, header: bytes, body: bytes) -> None:
        """The broker sent another command."""
        match command:
            case MessageAccept():
                self._outcome(command.transfers, None, "")
            case MessageReject():
                self._outcome(command.transfers, command.code or 0, command.text or "")
            case MessageRelease():
                self._outcome(command.transfers, 0, "the broker released it")
            case MessageFlow() | MessageStop() | MessageSetFlowMode():
                pass  # How fast the broker wants transfers: it stops reading, too.
            case _:
                if len(self.incoming) >= COMMANDS_MAX:
                    raise ConnectionLost(f"more than {COMMANDS_MAX} commands were not taken")
                self.incoming.append((command, decode_headers(header), body))
                self._taking.set()

    def result(self, number: int, value: Struct | None) -> None:
        """What a command resulted in."""
        call = self._calls.pop(number, None)
        if call is not None and not call.future.done():
            call.future.set_result(value)

    def completed(self, low: int, high: int) -> None:
        """These commands are executed."""
        size = (high - low) & 0xFFFFFFFF
        for number in [each for each in self._calls if (each - low) & 0xFFFFFFFF <= size]:
            if not self._calls[number].wants_result:
                call = self._calls.pop(number)
                if not call.future.done():
                    call.future.set_result(None)

    def given_up(self, low: int, high: int) -> None:
        """These commands were lost with an attachment."""
        size = (high - low) & 0xFFFFFFFF
        error = ConnectionLost("the command was lost with the connection")
        for number in [each for each in self._calls if (each - low) & 0xFFFFFFFF <= size]:
            _refuse(self._calls.pop(number).future, error)
        for number in [each for each in self._sent if (each - low) & 0xFFFFFFFF <= size]:
            _refuse(self._sent.pop(number).future, error)

    def exception(self, error: ExecutionException) -> None:
        """A command failed, and the session with it."""
        where = (error.class_code or 0, error.command_code or 0)
        closed = channel_closed(error.error_code or 0, error.description or "", where)
        closed.field_index = error.field_index
        self._fail(closed)

    def resumed(self, kept: bool) -> None:
        """Attached again."""
        if not kept:
            error = ConnectionLost("the broker does not know the session any more")
            for subscription in self._subscriptions.values():
                subscription.fail(error)

    def granted(self, timeout_s: int | None) -> None:
        """How long the broker keeps the session when it is detached."""
        self.timeout_s = timeout_s
        _settle(self._granted)

    def lost(self, error: ClientError) -> None:
        """The connection is gone; the session may be attached to another."""
        self._link = None
        if self._machine.ended or not self._machine.keeps:
            self._fail(error)
            return
        for future in (self._attached, self._granted, self._detached):
            _refuse(future, error)

    # --- For subscriptions --------------------------------------------------------------------

    def taken(self, transfer: Transfer) -> None:
        """A message was handed out."""
        self.intake.release(len(transfer.body))
        if not transfer.explicit or not transfer.acquired:
            self._complete(_numbers([transfer]))

    def dropped(self, subscription: Subscription) -> None:
        """A subscription was cancelled."""
        self._subscriptions.pop(subscription.destination, None)
        self._modes.pop(subscription.destination, None)

    # --- Inside -------------------------------------------------------------------------------

    def _ready(self) -> Link010:
        self._check_open()
        if self._link is None:
            raise ConnectionLost(f"{self!r} has no connection")
        return self._link

    def _check_open(self) -> None:
        if self._error is not None:
            raise fresh(self._error)

    def _all_explicit(self) -> bool:
        return all(explicit for _, explicit in self._modes.values())

    def _own(self, transfers: Iterable[Transfer]) -> SequenceSet:
        """The ids of transfers, which must have come by this session."""
        if not all(transfer.session is self for transfer in transfers):
            raise UsageError("a message came by another session")
        return _numbers(transfers)

    def _acquired(self, transfers: Iterable[Transfer]) -> None:
        if not all(transfer.acquired for transfer in transfers):
            raise UsageError("a message that was only looked at must be acquired first")

    async def _wait(self, future: asyncio.Future[Any]) -> Any:
        self.intake.wait_begins()
        try:
            return await future
        finally:
            self.intake.wait_ends()

    def _complete(self, transfers: SequenceSet) -> None:
        for low, high in transfers:
            self._machine.complete_range(low, high)
        if self._link is not None:
            self._link.schedule_flush()

    def _outcome(self, transfers: SequenceSet | None, code: int | None, text: str) -> None:
        """The broker accepted (None) or rejected transfers of ours."""
        if transfers is None:
            return
        for number in [each for each in self._sent if each in transfers]:
            sent = self._sent.pop(number)
            if sent.future.done():
                continue
            if code is None:
                sent.future.set_result(None)
            elif code == RejectCode.UNSPECIFIED:
                sent.future.set_exception(Nacked(sent.message, text or "rejected"))
            else:
                sent.future.set_exception(
                    Returned(sent.message, text, NO_ROUTE, sent.exchange, sent.routing_key)
                )

    def _fail(self, error: ClientError) -> None:
        """The session is over."""
        if self._error is not None:
            return
        self._error = error
        for call in self._calls.values():
            _refuse(call.future, error)
        for sent in self._sent.values():
            _refuse(sent.future, error)
        for future in (self._attached, self._granted, self._detached):
            _refuse(future, error)
        self._calls.clear()
        self._sent.clear()
        for subscription in self._subscriptions.values():
            subscription.fail(error)
        self._subscriptions.clear()
        self._taking.set()


def _numbers(transfers: Iterable[Transfer]) -> SequenceSet:
    return SequenceSet((transfer.number, transfer.number) for transfer in transfers)


def _settle(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _refuse(future: asyncio.Future[Any] | None, error: ClientError) -> None:
    if future is not None and not future.done():
        future.set_exception(fresh(error))
        future.exception()  # Nobody may be waiting: that is no news.
