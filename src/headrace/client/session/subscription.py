# SPDX-License-Identifier: Apache-2.0
"""Subscriptions of a session of AMQP 0-10, and the transfers they receive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from headrace.client.errors import ClientError, UsageError, fresh
from headrace.client.message import Received
from headrace.protocol.codec_0_10 import (
    Command,
    MessageCancel,
    MessageFlow,
    MessageFlush,
    MessageSetFlowMode,
    MessageStop,
    Struct,
)
from headrace.spec.reply_0_10 import CreditUnit, FlowMode

if TYPE_CHECKING:
    from headrace.client.link.backpressure import Backpressure

UNLIMITED = 0xFFFFFFFF  # The value of message.flow for credit without a limit.


_T = TypeVar("_T")


class SessionPort(Protocol):
    """The members of a session that its subscriptions use."""

    backpressure: Backpressure

    def on_received(self, transfer: Transfer) -> None:
        """Free the buffer space of a message that the program has received."""

    def remove_subscription(self, subscription: Subscription) -> None:
        """Remove a cancelled subscription."""

    async def call(self, command: Command) -> Struct | None:
        """Send a command, wait for its completion, and return its result, if it has one."""

    def begin(self, command: Command) -> asyncio.Future[Struct | None]:
        """Send a command, and return a future of its completion."""

    def begin_release(self, *transfers: Transfer) -> asyncio.Future[Struct | None]:
        """Release messages, and return a future of the command's completion."""

    async def wait_for(self, future: asyncio.Future[_T]) -> _T:
        """Wait for a future that stays as it is when the wait is cancelled."""


@dataclass(slots=True, eq=False, repr=False)
class Transfer(Received):
    """A message received by message.transfer; `number` is the id of that command."""

    number: int = field(kw_only=True)
    destination: str = field(default="", kw_only=True)
    acquired: bool = field(default=True, kw_only=True)  # False for a browsed message.
    explicit: bool = field(default=True, kw_only=True)  # False if the broker needs no accept.
    structs: list[Struct] = field(default_factory=list, kw_only=True, repr=False)
    session: SessionPort = field(kw_only=True, repr=False)
    epoch: int = field(default=0, kw_only=True, repr=False)  # The session's epoch.

    @property
    def row(self) -> int:
        """The former name of `epoch`."""
        return self.epoch


class Subscription:
    """Messages that the broker sends to one destination of a session.

    No message arrives without credit, which `flow` gives in messages and in bytes. In window mode
    the credit of a message returns when it is settled, or received if it needs no settlement.
    """

    def __init__(self, session: SessionPort, queue: str, destination: str) -> None:
        self.session = session
        self.queue = queue
        self.destination = destination
        self._buffer: deque[Transfer] = deque()
        self._changed = asyncio.Event()
        self._error: ClientError | None = None
        self._is_cancelled = False
        self._releasing: asyncio.Future[Struct | None] | None = None

    def __aiter__(self) -> AsyncIterator[Transfer]:
        return self

    async def __anext__(self) -> Transfer:
        while not self._buffer:
            if self._error is not None:
                raise fresh(self._error)
            if self._is_cancelled:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        transfer = self._buffer.popleft()
        self.session.on_received(transfer)
        return transfer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.cancel()
        except ClientError:
            if error is None:
                raise

    async def receive(self, timeout_s: float | None = None) -> Transfer:
        """Wait for the next message; TimeoutError after `timeout_s` seconds."""
        async with asyncio.timeout(timeout_s):
            try:
                return await anext(self)
            except StopAsyncIteration:
                text = f"subscription {self.destination!r} was cancelled by this program"
                raise UsageError(text) from None

    def receive_nowait(self) -> Transfer | None:
        """Return the next message that has arrived, or None."""
        if not self._buffer:
            return None
        transfer = self._buffer.popleft()
        self.session.on_received(transfer)
        return transfer

    async def set_flow_mode(self, mode: FlowMode) -> None:
        """Set credit or window mode; the credit is 0 then."""
        await self._call(MessageSetFlowMode(destination=self.destination, flow_mode=mode))

    async def flow(self, messages: int | None = None, octets: int | None = UNLIMITED) -> None:
        """Add credit in messages and bytes: `UNLIMITED` removes a limit, None adds nothing."""
        for unit, value in ((CreditUnit.MESSAGE, messages), (CreditUnit.BYTE, octets)):
            if value is not None:
                await self._call(MessageFlow(destination=self.destination, unit=unit, value=value))

    async def flush(self) -> None:
        """Wait until every message that has credit has arrived; the credit is used up then."""
        await self._call(MessageFlush(destination=self.destination))

    async def stop(self) -> None:
        """Withdraw all credit; no message arrives once this returns."""
        await self._call(MessageStop(destination=self.destination))

    async def cancel(self) -> None:
        """Cancel the subscription; messages that the program has not received are released."""
        cancelling = self._begin_cancel()
        if cancelling is not None:
            await self.session.wait_for(cancelling)
            if self._releasing is not None:
                await self.session.wait_for(self._releasing)

    def abandon(self) -> None:
        """Cancel the subscription as `cancel` does, without waiting for the broker."""
        with suppress(ClientError):  # The subscription ends with the session.
            self._begin_cancel()

    def put_back(self, transfers: Iterable[Transfer]) -> None:
        """Return the transfers received last to the buffer: the program did not get them."""
        for transfer in reversed(list(transfers)):
            self._buffer.appendleft(transfer)
            self.session.backpressure.hold(len(transfer.body))

    async def _call(self, command: Command) -> None:
        """Send a command for the destination, unless the subscription has failed.

        After a failure the session may use the destination for another subscription.
        """
        if self._error is not None:
            raise fresh(self._error)
        await self.session.call(command)

    def _begin_cancel(self) -> asyncio.Future[Struct | None] | None:
        if self._is_cancelled or self._error is not None:
            return None
        self._is_cancelled = True
        cancelling = self.session.begin(MessageCancel(destination=self.destination))
        cancelling.add_done_callback(self._after_cancel)
        return cancelling

    def _after_cancel(self, cancelling: asyncio.Future[Struct | None]) -> None:
        """Release the buffered messages: the broker has stopped sending."""
        self._changed.set()
        if cancelling.cancelled() or cancelling.exception() is not None:
            return
        self.session.remove_subscription(self)
        unreceived = [transfer for transfer in self._buffer if transfer.acquired]
        for transfer in self._buffer:
            self.session.backpressure.release(len(transfer.body))
        self._buffer.clear()
        if unreceived:
            with suppress(ClientError):  # The end of the session releases them.
                self._releasing = self.session.begin_release(*unreceived)

    # --- For the session ----------------------------------------------------------------------

    def add(self, transfer: Transfer) -> None:
        """Buffer a message for the program."""
        self._buffer.append(transfer)
        self._changed.set()

    def fail(self, error: ClientError) -> None:
        """End the subscription with an error."""
        self._error = self._error or error
        self._changed.set()
