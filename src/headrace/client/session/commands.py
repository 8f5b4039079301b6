# SPDX-License-Identifier: Apache-2.0
"""A session of AMQP 0-10 and its commands: attaching, completion and results."""

from __future__ import annotations

import asyncio
import uuid
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from headrace.client.channel.closing import AsyncClosing
from headrace.client.errors import (
    ChannelClosed,
    ClientError,
    ConnectionLost,
    UsageError,
    channel_closed,
    fresh,
)
from headrace.client.message import octets_of
from headrace.client.session.queries import SessionQueries
from headrace.protocol.codec_0_10 import (
    Command,
    ExecutionException,
    ExecutionSync,
    Struct,
    decode_headers,
    encode_headers,
)
from headrace.protocol.v0_10.session.session import Session as Machine
from headrace.spec.reply_0_10 import DetachCode

if TYPE_CHECKING:
    from collections.abc import Container

    from headrace.client.link.backpressure import Backpressure
    from headrace.client.link.link_0_10 import Link010
    from headrace.protocol.codec_0_10 import MessageTransfer

_T = TypeVar("_T")

COMMANDS_MAX = (
    65536  # The maximum number of received commands that `next_command` has not returned.
)
LOST_COMMAND_TEXT = "the command was lost with the connection"
LOST_SESSION_TEXT = "the broker no longer has the session"


class SessionCarrier(Protocol):
    """The members of a connection that a session uses while it is attached."""

    backpressure: Backpressure

    @property
    def channel_numbers(self) -> Container[int]:
        """The numbers of the open channels."""

    async def session_link(self) -> Link010:
        """Return the link for a session; UsageError when its version is not 0-10."""


@dataclass(slots=True, eq=False)
class _Call:
    """A command, with a future of its completion."""

    future: asyncio.Future[Struct | None]
    wants_result: bool


class CommandSession(AsyncClosing, SessionQueries):
    """Sends commands and records their completion."""

    def __init__(
        self, connection: SessionCarrier, name: str | bytes, timeout_s: int | None
    ) -> None:
        super().__init__()
        session_name = name.encode() if isinstance(name, str) else name
        self.name = session_name or uuid.uuid4().hex.encode()
        self.timeout_s: int | None = 0  # Seconds for which the broker keeps a detached session.
        self.backpressure: Backpressure = connection.backpressure
        self.incoming: deque[tuple[Command, list[Struct], bytes]] = deque()
        self._requested_timeout_s = timeout_s
        self._machine = Machine(self.name)
        self._link: Link010 | None = None
        self._attached: asyncio.Future[None] | None = None
        # The answers arrive in the order of the requests.
        self._timeout_requests: deque[asyncio.Future[None]] = deque()
        self._detached: asyncio.Future[None] | None = None
        self._calls: dict[int, _Call] = {}
        self._command_arrived = asyncio.Event()
        self._is_closing = False
        self._epoch = 0  # The number of times that the broker had lost the session.
        self._error: ClientError | None = None

    def __repr__(self) -> str:
        state = "closed" if self._error else "attached" if self._link else "detached"
        return f"<Session {self.name.decode(errors='replace')!r}, {state}>"

    @property
    def is_attached(self) -> bool:
        """True while the session is attached to a connection."""
        return self._link is not None

    @property
    def is_closed(self) -> bool:
        """True if the session has ended for good."""
        return self._error is not None

    # --- Attachment ---------------------------------------------------------------------------

    async def attach(self, connection: SessionCarrier, *, force: bool = False) -> None:
        """Attach the session to a connection; `force` detaches it from another.

        Uncompleted commands are sent again, and pending calls continue. A broker that has lost the
        session, as after a restart, opens a new one: pending calls and subscriptions fail with
        ConnectionLost, and transactions must be selected again.
        """
        self._check_open()
        link = await connection.session_link()
        if self._link is not None:
            raise UsageError(f"{self!r} is attached already")
        self._attached = asyncio.get_running_loop().create_future()
        attached = self._attached
        link.attach(self._machine, self, link.free_number(connection.channel_numbers), force=force)
        self._link = link
        self.backpressure = connection.backpressure
        try:
            await self._wait(attached)
            if self._requested_timeout_s != 0:
                await self.request_timeout(self._requested_timeout_s)
        except asyncio.CancelledError:
            self._begin_detach()
            raise

    async def detach(self) -> None:
        """Detach the session. The broker keeps it for `timeout_s` seconds."""
        detached = self._begin_detach()
        if detached is not None:
            await self.wait_for(detached)

    async def request_timeout(self, timeout_s: int | None) -> int | None:
        """Ask the broker to keep a detached session this long; return the seconds it grants.

        None is for good.
        """
        link = self._ready()
        self._requested_timeout_s = timeout_s
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timeout_requests.append(granted)
        self._machine.sent.request_timeout(timeout_s)
        link.schedule_flush()
        await self._wait(granted)
        return self.timeout_s

    async def close(self) -> None:
        """End the session: detach it, and have the broker keep nothing."""
        if self._error is not None:
            return
        self._is_closing = True
        try:
            if self._link is not None:
                if self.timeout_s != 0:
                    await self.request_timeout(0)
                await self.detach()
        except ClientError:
            pass  # The session has ended with its connection.
        finally:
            self._begin_detach()  # A cancelled wait has not detached it.
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
        """Send a command without waiting; return its id. A detached session sends it when attached.

        Raises ConnectionLost when the session is detached and the broker does not keep it.
        """
        self._check_open()
        body = octets_of(body)
        if self._link is None and not self._machine.sent.keeps_for_replay:
            raise ConnectionLost(f"{self!r} has no connection")
        number = self._machine.send_command(command, sync, encode_headers(headers), body)
        if self._link is not None:
            self._link.schedule_flush()
        return int(number)

    async def call(
        self, command: Command, *, headers: Sequence[Struct] = (), body: bytes = b""
    ) -> Struct | None:
        """Send a command, wait for its completion, and return its result, if it has one."""
        value: Struct | None = await self._wait(self.begin(command, headers=headers, body=body))
        return value

    def begin(
        self, command: Command, *, headers: Sequence[Struct] = (), body: bytes = b""
    ) -> asyncio.Future[Struct | None]:
        """Send a command, and return a future of its completion, with its result if it has one."""
        number = self.send(command, sync=True, headers=headers, body=body)
        return self._expect(number, command.RESULT is not None)

    async def wait_for(self, future: asyncio.Future[_T]) -> _T:
        """Wait for a future that stays as it is when the wait is cancelled."""
        return await self._wait(asyncio.shield(future))

    async def sync(self) -> None:
        """Wait until the broker has completed every command sent so far."""
        await self.call(ExecutionSync())

    async def next_command(self) -> tuple[Command, list[Struct], bytes]:
        """Return the broker's next command outside the message class, with its content.

        Raises ConnectionLost when the broker forgets the session during the wait.
        """
        epoch = self._epoch
        while not self.incoming:
            self._check_open()
            if self._epoch != epoch:
                raise ConnectionLost(LOST_SESSION_TEXT)
            self._command_arrived.clear()
            await self._command_arrived.wait()
        return self.incoming.popleft()

    # --- For the link -------------------------------------------------------------------------

    def attached(self) -> None:
        """End the wait for the attachment."""
        _settle(self._attached)

    def detached(self, code: int) -> None:
        """End the wait for the detachment, or fail a session that the broker detached."""
        link, self._link = self._link, None
        if link is not None:
            link.forget(self._machine)
        if self._detached is not None and not self._detached.done():
            self._detached.set_result(None)
            self._refuse_controls(ConnectionLost(f"{self!r} was detached"))
            if not self._machine.sent.keeps_for_replay and not self._is_closing:
                self._fail(ConnectionLost(f"{self!r} was detached and not kept"))
            return
        reason = DetachCode(code).name if code in list(DetachCode) else str(code)
        self._fail(ChannelClosed(code, f"the broker detached the session: {reason}"))

    def command(self, number: int, command: Command, header: bytes, body: bytes) -> None:
        """Handle a command other than a transfer."""
        if len(self.incoming) >= COMMANDS_MAX:
            raise ConnectionLost(f"more than {COMMANDS_MAX} commands were not taken")
        self.incoming.append((command, decode_headers(header), body))
        self._command_arrived.set()

    @abstractmethod
    def transferred(
        self, number: int, command: MessageTransfer, header: bytes, body: bytes
    ) -> None:
        """Handle a message; complete the command `number` afterwards."""

    @abstractmethod
    def resumed(self, kept: bool) -> None:
        """Handle a new attachment; `kept` is True if the broker still had the state."""

    def forget(self) -> None:
        """Fail the pending calls: the broker has attached the session as a new one."""
        self._epoch += 1
        self._transactional = ""
        for call in self._calls.values():  # Also completed commands without their result.
            fail_future(call.future, ConnectionLost(LOST_SESSION_TEXT))
        self._calls.clear()
        self._command_arrived.set()

    def result(self, number: int, value: Struct | None) -> None:
        """Set the result of a command."""
        call = self._calls.pop(number, None)
        if call is not None and not call.future.done():
            call.future.set_result(value)

    def completed(self, low: int, high: int) -> None:
        """Settle the calls of the commands from `low` to `high` that have no result."""
        for number in numbers_between(self._calls, low, high):
            if not self._calls[number].wants_result:
                call = self._calls.pop(number)
                if not call.future.done():
                    call.future.set_result(None)

    def given_up(self, low: int, high: int) -> None:
        """Fail commands that were lost with an attachment."""
        for number in numbers_between(self._calls, low, high):
            fail_future(self._calls.pop(number).future, ConnectionLost(LOST_COMMAND_TEXT))

    def exception(self, error: ExecutionException) -> None:
        """Fail the session with the error of the failed command."""
        command_id = (error.class_code or 0, error.command_code or 0)
        closed = channel_closed(error.error_code or 0, error.description or "", command_id)
        closed.field_index = error.field_index
        self._fail(closed)

    def granted(self, timeout_s: int | None) -> None:
        """Record the granted timeout, the answer to `request_timeout`."""
        self.timeout_s = timeout_s
        if self._timeout_requests:
            _settle(self._timeout_requests.popleft())

    def lost(self, error: ClientError) -> None:
        """Detach the session; fail it if the broker does not keep it."""
        self._link = None
        if self._machine.ended or not self._machine.sent.keeps_for_replay:
            self._fail(error)
            return
        self._refuse_controls(error)

    # --- Inside -------------------------------------------------------------------------------

    def _ready(self) -> Link010:
        self._check_open()
        if self._link is None:
            raise ConnectionLost(f"{self!r} has no connection")
        return self._link

    def _check_open(self) -> None:
        if self._error is not None:
            raise fresh(self._error)

    def _expect(self, number: int, wants_result: bool = False) -> asyncio.Future[Struct | None]:
        """Return a future of a command's completion, or of its result."""
        call = _Call(asyncio.get_running_loop().create_future(), wants_result)
        self._calls[number] = call
        return call.future

    async def _wait(self, future: Awaitable[_T]) -> _T:
        self.backpressure.wait_begins()
        try:
            return await future
        finally:
            self.backpressure.wait_ends()

    def _begin_detach(self) -> asyncio.Future[None] | None:
        """Send session.detach; return a future of the answer, or None if not attached."""
        link = self._link
        if link is None:
            return None
        if self._detached is None or self._detached.done():
            self._detached = asyncio.get_running_loop().create_future()
            self._machine.detach()
            link.schedule_flush()
        return self._detached

    def _refuse_controls(self, error: ClientError) -> None:
        """Fail the waits for answers to controls."""
        for future in (self._attached, self._detached, *self._timeout_requests):
            fail_future(future, error)
        self._timeout_requests.clear()

    def _fail(self, error: ClientError) -> None:
        """End the session for good."""
        if self._error is not None:
            return
        self._error = error
        for call in self._calls.values():
            fail_future(call.future, error)
        self._refuse_controls(error)
        self._calls.clear()
        self._command_arrived.set()


def numbers_between(numbers: Iterable[int], low: int, high: int) -> list[int]:
    """Return the numbers from `low` to `high`, in serial-number arithmetic of 32 bits."""
    size = (high - low) & 0xFFFFFFFF
    return [number for number in numbers if (number - low) & 0xFFFFFFFF <= size]


def _settle(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def fail_future(future: asyncio.Future[_T] | None, error: ClientError) -> None:
    """Fail a future with the error, unless it is done."""
    if future is not None and not future.done():
        future.set_exception(fresh(error))
        future.exception()  # Read it, so that asyncio does not log an unawaited error.
