# SPDX-License-Identifier: Apache-2.0
"""Sessions of AMQP 0-10: commands, credit, browsing and distributed transactions.

A session is independent of connections: it is attached to one, and may be detached and attached to
another while the broker keeps its state (`timeout_s`). Commands have ids, and the broker reports
their completion. `call` sends any command of the standard and waits for its completion; the other
methods do so for one command each. An execution.exception of the broker ends the session for good
and is raised as ChannelClosed with its code.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError, ConnectionLost, Nacked, Returned, UsageError
from headrace.client.link.properties_0_10 import (
    build_header_structs,
    read_message_fields,
    read_routing,
)
from headrace.client.message import Content, Message
from headrace.client.session.commands import (
    LOST_COMMAND_TEXT,
    LOST_SESSION_TEXT,
    CommandSession,
    fail_future,
    numbers_between,
)
from headrace.client.session.subscription import Subscription, Transfer
from headrace.protocol.codec_0_10 import (
    Acquired,
    Command,
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
)
from headrace.spec.reply_0_10 import AcceptMode, AcquireMode, FlowMode, RejectCode
from headrace.wire.ranges import SequenceSet

if TYPE_CHECKING:
    from headrace.client.session.commands import SessionCarrier
    from headrace.client.session.queries import SessionArguments

NO_ROUTE = 312


@dataclass(slots=True, eq=False)
class _UnacceptedTransfer:
    """A transfer without an outcome, and the future that gets it."""

    message: Message
    future: asyncio.Future[None]
    exchange: str
    routing_key: str


class Session(CommandSession):
    """One session. Make one with `connection.session(...)`."""

    def __init__(
        self, connection: SessionCarrier, name: str | bytes = "", timeout_s: int | None = 0
    ) -> None:
        super().__init__(connection, name, timeout_s)
        self._unaccepted: dict[int, _UnacceptedTransfer] = {}
        self._subscriptions: dict[str, Subscription] = {}
        # Whether a subscription acquires, and whether it accepts explicitly, by destination.
        self._modes: dict[str, tuple[bool, bool]] = {}

    # --- Messages -----------------------------------------------------------------------------

    # Keeps 0-10/s073, 0-10/s074.
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

        A message without an id gets a random one. With `accept=False` the call waits only until the
        command is completed. `extra` are more structs for the header segment. Raises Returned when
        the message is rejected as unroutable (only without `discard_unroutable`), and Nacked for
        any other rejection.
        """
        outcome = await self.transfer_soon(
            message,
            routing_key,
            exchange,
            accept=accept,
            discard_unroutable=discard_unroutable,
            immediate=immediate,
            extra=extra,
        )
        await self._wait(outcome)

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
    ) -> asyncio.Future[None] | asyncio.Future[Struct | None]:
        """Send a message and return a future of its outcome."""
        if self._link is not None:
            await self._link.can_write.wait()
        message = Message.of(message)
        if message.message_id is None:
            message = replace(message, message_id=str(uuid.uuid4()))
        structs = build_header_structs(
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
            pending = _UnacceptedTransfer(message, loop.create_future(), exchange, routing_key)
            self._unaccepted[number] = pending
            return pending.future
        return self._expect(number)

    async def subscribe(
        self,
        queue: str,
        destination: str = "",
        *,
        accept: bool = True,
        acquire: bool = True,
        exclusive: bool = False,
        arguments: SessionArguments | None = None,
        window: bool = False,
    ) -> Subscription:
        """Subscribe to a queue. Messages arrive once there is credit: see `Subscription.flow`.

        `acquire=False` browses: the messages stay in the queue for others. With `accept=False` the
        broker counts messages as accepted when it sends them. `window` sets the flow mode at once.
        """
        destination = destination or uuid.uuid4().hex
        if destination in self._subscriptions:
            raise UsageError(f"destination {destination!r} is in use in this session")
        if self._transactional == "tx" and not accept:
            raise UsageError("in a transactional session messages must be accepted explicitly")
        subscription = Subscription(self, queue, destination)
        self._subscriptions[destination] = subscription
        self._modes[destination] = (acquire, accept)
        try:
            await self.call(
                MessageSubscribe(
                    queue=queue,
                    destination=destination,
                    accept_mode=AcceptMode.EXPLICIT if accept else AcceptMode.NONE,
                    acquire_mode=AcquireMode.PRE_ACQUIRED if acquire else AcquireMode.NOT_ACQUIRED,
                    exclusive=exclusive,
                    arguments=None if arguments is None else dict(arguments),
                )
            )
            if window:
                await subscription.set_flow_mode(FlowMode.WINDOW)
        except asyncio.CancelledError:
            self.give_up(subscription)
            raise
        except BaseException:
            self.remove_subscription(subscription)
            raise
        return subscription

    async def accept(self, *transfers: Transfer) -> None:
        """Accept messages, which removes them from their queue."""
        numbers = self._checked_ids(transfers)
        self._check_acquired(transfers)
        self._complete(numbers)
        await self.call(MessageAccept(transfers=numbers))

    async def reject(
        self, *transfers: Transfer, code: RejectCode = RejectCode.UNSPECIFIED, text: str = ""
    ) -> None:
        """Reject messages: they go to the alternate exchange of their queue, or are dropped."""
        numbers = self._checked_ids(transfers)
        self._check_acquired(transfers)
        self._complete(numbers)
        await self.call(MessageReject(transfers=numbers, code=code, text=text or None))

    async def release(self, *transfers: Transfer, set_redelivered: bool = False) -> None:
        """Release messages: they are requeued, and marked redelivered with `set_redelivered`."""
        await self._wait(self.begin_release(*transfers, set_redelivered=set_redelivered))

    def begin_release(
        self, *transfers: Transfer, set_redelivered: bool = False
    ) -> asyncio.Future[Struct | None]:
        """Release messages, and return a future of the command's completion."""
        numbers = self._checked_ids(transfers)
        self._complete(numbers)
        return self.begin(MessageRelease(transfers=numbers, set_redelivered=set_redelivered))

    async def acquire(self, *transfers: Transfer) -> list[Transfer]:
        """Acquire browsed messages; return those that were still available.

        If the call is cancelled, messages that are acquired afterwards are released.
        """
        acquiring = self.begin(MessageAcquire(transfers=self._checked_ids(transfers)))
        try:
            result = self.as_result(await self.wait_for(acquiring), MessageAcquire, Acquired)
        except asyncio.CancelledError:
            acquiring.add_done_callback(self._release_acquired)
            raise
        acquired_ids = result.transfers or SequenceSet()
        acquired = [transfer for transfer in transfers if transfer.number in acquired_ids]
        for transfer in acquired:
            transfer.acquired = True
        return acquired

    def complete(self, *transfers: Transfer) -> None:
        """Complete transfers: in window mode their credit returns."""
        self._complete(self._checked_ids(transfers))

    # --- For the link -------------------------------------------------------------------------

    def transferred(
        self, number: int, command: MessageTransfer, header: bytes, body: bytes
    ) -> None:
        """Pass a message to its subscription; release it if that is cancelled."""
        destination = command.destination or ""
        subscription = self._subscriptions.get(destination)
        structs = decode_headers(header)
        redelivered, exchange, routing_key = read_routing(structs)
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
            epoch=self._epoch,
            **read_message_fields(structs),
        )
        if subscription is None:
            if transfer.acquired:
                self._machine.send_command(MessageRelease(transfers=_numbers([transfer])))
            self._complete(_numbers([transfer]))
            return
        self.backpressure.hold(len(body))
        subscription.add(transfer)

    def command(self, number: int, command: Command, header: bytes, body: bytes) -> None:
        """Handle a command other than a transfer."""
        match command:
            case MessageAccept():
                self._settle(command.transfers, None, "")
            case MessageReject():
                self._settle(command.transfers, command.code or 0, command.text or "")
            case MessageRelease():
                self._settle(command.transfers, 0, "the broker released it")
            case MessageFlow() | MessageStop() | MessageSetFlowMode():
                pass  # Credit for transfers is not tracked: TCP flow control has the same effect.
            case _:
                super().command(number, command, header, body)

    def given_up(self, low: int, high: int) -> None:
        """Fail commands that were lost with an attachment."""
        super().given_up(low, high)
        for number in numbers_between(self._unaccepted, low, high):
            fail_future(self._unaccepted.pop(number).future, ConnectionLost(LOST_COMMAND_TEXT))

    def resumed(self, kept: bool) -> None:
        """Forget the old state if the broker has not kept it."""
        if not kept:
            self.forget()

    def forget(self) -> None:
        """Fail transfers and subscriptions: the broker has attached the session as a new one."""
        super().forget()
        error = ConnectionLost(LOST_SESSION_TEXT)
        for pending in self._unaccepted.values():  # Also completed transfers without an outcome.
            fail_future(pending.future, error)
        self._unaccepted.clear()
        for subscription in self._subscriptions.values():
            subscription.fail(error)
        self._subscriptions.clear()
        self._modes.clear()

    # --- For cancelled and interrupted calls --------------------------------------------------

    def give_up(self, subscription: Subscription) -> None:
        """Cancel the subscription of a cancelled call, which frees its destination at once."""
        self.remove_subscription(subscription)
        subscription.abandon()

    def unacquire(self, transfers: list[Transfer]) -> None:
        """Release transfers that were acquired for a thread that was interrupted."""
        for transfer in transfers:
            transfer.acquired = False
        self._release(_numbers(transfers))

    # --- For subscriptions --------------------------------------------------------------------

    def on_received(self, transfer: Transfer) -> None:
        """Free the buffer space of a received message; complete it if it needs no accept."""
        self.backpressure.release(len(transfer.body))
        if transfer.epoch == self._epoch and not (transfer.explicit and transfer.acquired):
            self._complete(_numbers([transfer]))

    def remove_subscription(self, subscription: Subscription) -> None:
        """Remove a cancelled subscription."""
        if self._subscriptions.get(subscription.destination) is subscription:
            del self._subscriptions[subscription.destination]
            self._modes.pop(subscription.destination, None)

    # The former names.
    taken = on_received
    dropped = remove_subscription

    # --- Inside -------------------------------------------------------------------------------

    def _all_explicit(self) -> bool:
        return all(explicit for _, explicit in self._modes.values())

    def _checked_ids(self, transfers: Iterable[Transfer]) -> SequenceSet:
        """Return the ids of transfers.

        Raises UsageError when a transfer was received by another session, and ConnectionLost when
        the broker has forgotten the session since: the id may be that of another message now.
        """
        if not all(transfer.session is self for transfer in transfers):
            raise UsageError("a message was received by another session")
        if not all(transfer.epoch == self._epoch for transfer in transfers):
            raise ConnectionLost(LOST_SESSION_TEXT)
        return _numbers(transfers)

    def _check_acquired(self, transfers: Iterable[Transfer]) -> None:
        if not all(transfer.acquired for transfer in transfers):
            raise UsageError("a message that was only browsed must be acquired first")

    def _release_acquired(self, acquiring: asyncio.Future[Struct | None]) -> None:
        """Release the transfers that a cancelled call has acquired."""
        if acquiring.cancelled() or acquiring.exception() is not None:
            return
        result = acquiring.result()
        if isinstance(result, Acquired) and result.transfers:
            self._release(result.transfers)

    def _release(self, transfers: SequenceSet) -> None:
        with suppress(ClientError):  # They are released with the session.
            self.send(MessageRelease(transfers=transfers))

    def _complete(self, transfers: SequenceSet) -> None:
        for low, high in transfers:
            self._machine.complete_range(low, high)
        if self._link is not None:
            self._link.schedule_flush()

    def _settle(self, transfers: SequenceSet | None, code: int | None, text: str) -> None:
        """Set the outcome of transfers: accepted (`code` None), or rejected with a code."""
        if transfers is None:
            return
        for number in [number for number in self._unaccepted if number in transfers]:
            pending = self._unaccepted.pop(number)
            if pending.future.done():
                continue
            if code is None:
                pending.future.set_result(None)
            elif code == RejectCode.UNSPECIFIED:
                pending.future.set_exception(Nacked(pending.message, text or "rejected"))
            else:
                pending.future.set_exception(
                    Returned(pending.message, text, NO_ROUTE, pending.exchange, pending.routing_key)
                )

    def _fail(self, error: ClientError) -> None:
        """End the session for good."""
        if self._error is not None:
            return
        super()._fail(error)
        for pending in self._unaccepted.values():
            fail_future(pending.future, error)
        self._unaccepted.clear()
        for subscription in self._subscriptions.values():
            subscription.fail(error)
        self._subscriptions.clear()


def _numbers(transfers: Iterable[Transfer]) -> SequenceSet:
    return SequenceSet((transfer.number, transfer.number) for transfer in transfers)
