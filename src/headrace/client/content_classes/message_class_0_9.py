# SPDX-License-Identifier: Apache-2.0
"""The message class of AMQP 0-9: transfers both ways, with bodies inside or under references.

A reference is a body that is sent in chunks before the transfer that names it. A checkpoint keeps
the appended bytes, so that `resume` on another channel continues after them.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.client.channel.closing import AsyncClosing
from headrace.client.content_classes.shielded_task import ShieldedTask
from headrace.client.errors import ProtocolViolation, PublishFailed
from headrace.client.message import Content as Body
from headrace.client.message import Message, octets_of
from headrace.protocol.codec_0_x import (
    Content,
    MessageAppend,
    MessageCancel,
    MessageCheckpoint,
    MessageClose,
    MessageConsume,
    MessageEmpty,
    MessageGet,
    MessageOffset,
    MessageOk,
    MessageOpen,
    MessageQos,
    MessageRecover,
    MessageReject,
    MessageResume,
    MessageTransfer,
)
from headrace.wire.table import EPOCH

if TYPE_CHECKING:
    from headrace.client.channel.channel import Channel
    from headrace.client.channel.pending_calls import PendingCall
    from headrace.protocol.codec_0_x import MethodBase

REFERENCES_MAX = 1024  # The maximum number of open references of the broker.
REFERENCE_BYTES_MAX = 128 << 20  # The maximum bytes of all open references of the broker.


@dataclass(slots=True, eq=False)
class Transferred:
    """A message from the broker, to be answered with `ok` or `reject`."""

    method: MessageTransfer
    body: bytes

    @property
    def destination(self) -> str:
        """The consumer's destination."""
        return self.method.destination


@dataclass(slots=True, eq=False)
class Reference(AsyncClosing):
    """A body that is sent in chunks. `async with` closes it."""

    messages: Messages
    name: bytes
    offset: int = 0  # The number of bytes that the broker has.
    transfers: list[tuple[Message, PendingCall]] = field(default_factory=list)  # Unanswered.
    _closing: ShieldedTask[None] | None = None

    async def append(self, data: bytes) -> None:
        """Send the next bytes of the body."""
        data = octets_of(data)
        await self.messages.channel.call(MessageAppend(reference=self.name, data=data))
        self.offset += len(data)

    async def checkpoint(self, identifier: str) -> None:
        """Make the broker keep the bytes sent so far under an identifier."""
        request = MessageCheckpoint(reference=self.name, identifier=identifier)
        await self.messages.channel.call(request)

    async def close(self) -> None:
        """Close the reference, and wait for the outcome of its transfers.

        A cancelled call does not stop the close; another call waits for the same outcome. Raises
        PublishFailed for a rejected transfer.
        """
        if self._closing is None:
            self._closing = ShieldedTask(self._close())
        await self._closing.outcome()

    def abandon(self) -> None:
        """Close the reference without waiting for the broker."""
        self._closing = ShieldedTask(self._close())

    async def _close(self) -> None:
        channel = self.messages.channel
        closing = await channel.ask(MessageClose(reference=self.name))
        answers = [(message, await channel.answer(call)) for message, call in self.transfers]
        self.transfers.clear()
        await channel.answer(closing)
        for message, answer in answers:
            _check_accepted(message, answer)


@dataclass(slots=True, eq=False)
class Messages:
    """The message class of one channel. One task at a time may receive."""

    channel: Channel
    _incoming: dict[bytes, bytearray] = field(default_factory=dict)

    async def transfer(
        self,
        message: Body,
        routing_key: str = "",
        exchange: str = "",
        *,
        reference: Reference | None = None,
        immediate: bool = False,
    ) -> None:
        """Send a message and wait for the broker's ok.

        With a reference the message has its body, and the broker answers once the reference is
        closed: `Reference.close` then raises PublishFailed for a rejected message.
        """
        message = Message.of(message)
        body = Content(message.body) if reference is None else Content(reference.name, True)
        ttl = message.expiration
        call = await self.channel.ask(
            MessageTransfer(
                destination=exchange,
                exchange=exchange,
                routing_key=routing_key,
                immediate=immediate,
                ttl=0 if ttl is None else round(ttl.total_seconds() * 1000),
                priority=message.priority or 0,
                timestamp=EPOCH if message.timestamp is None else message.timestamp,
                delivery_mode=2 if message.persistent else 1,
                message_id=message.message_id or "",
                correlation_id=message.correlation_id or "",
                reply_to=message.reply_to or "",
                content_type=message.content_type or "",
                content_encoding=message.content_encoding or "",
                user_id=message.user_id or "",
                app_id=message.app_id or "",
                application_headers=dict(message.headers),
                body=body,
            )
        )
        if reference is not None:
            reference.transfers.append((message, call))
            return
        _check_accepted(message, await self.channel.answer(call))

    async def open(self) -> Reference:
        """Open a reference, to send a body in chunks."""
        reference = Reference(self, uuid.uuid4().hex.encode())
        await self._open_reference(reference, MessageOpen(reference=reference.name))
        return reference

    async def resume(self, identifier: str) -> Reference:
        """Open a reference that continues after its checkpoint, at `offset`."""
        reference = Reference(self, uuid.uuid4().hex.encode())
        request = MessageResume(reference=reference.name, identifier=identifier)
        answer = await self._open_reference(reference, request)
        if isinstance(answer, MessageOffset):
            reference.offset = answer.value
        return reference

    async def consume(
        self, queue: str, destination: str, *, no_ack: bool = False, exclusive: bool = False
    ) -> None:
        """Make the broker transfer the messages of a queue to a destination."""
        await self.channel.call(
            MessageConsume(queue=queue, destination=destination, no_ack=no_ack, exclusive=exclusive)
        )

    async def cancel(self, destination: str) -> None:
        """Cancel a consumer."""
        await self.channel.call(MessageCancel(destination=destination))

    async def get(self, queue: str, destination: str = "", *, no_ack: bool = False) -> bool:
        """Request one message, for `receive`; return False when the queue is empty."""
        request = MessageGet(queue=queue, destination=destination, no_ack=no_ack)
        return not isinstance(await self.channel.call(request), MessageEmpty)

    async def qos(self, count: int = 0, *, size: int = 0, shared: bool = False) -> None:
        """Limit the unanswered messages, and their bytes."""
        request = MessageQos(prefetch_count=count, prefetch_size=size, global_=shared)
        await self.channel.call(request)

    async def recover(self, *, requeue: bool = True) -> None:
        """Make the broker transfer unanswered messages again."""
        await self.channel.call(MessageRecover(requeue=requeue))

    async def receive(self) -> Transferred:
        """Wait for the next message with its whole body; answer it with `ok` or `reject`.

        Raises ProtocolViolation when the broker breaks a rule of references, or has more of them
        open, or more bytes in them, than `REFERENCES_MAX` and `REFERENCE_BYTES_MAX` allow.
        """
        while True:
            method = (await self.channel.next_method()).method
            match method:
                case MessageOpen():
                    if method.reference in self._incoming:
                        raise ProtocolViolation(f"reference {method.reference!r} is open already")
                    if len(self._incoming) >= REFERENCES_MAX:
                        raise ProtocolViolation(f"more than {REFERENCES_MAX} references are open")
                    self._incoming[method.reference] = bytearray()
                    await ShieldedTask(self.ok()).outcome()
                case MessageAppend():
                    self._open(method.reference).extend(method.data)
                    if sum(map(len, self._incoming.values())) > REFERENCE_BYTES_MAX:
                        raise ProtocolViolation(f"more than {REFERENCE_BYTES_MAX} bytes are open")
                    await ShieldedTask(self.ok()).outcome()
                case MessageClose():
                    self._open(method.reference)
                    del self._incoming[method.reference]
                    await ShieldedTask(self.ok()).outcome()
                case MessageTransfer():
                    content = method.body
                    data = content.data
                    if content.is_reference:
                        data = bytes(self._open(content.data))
                    return Transferred(method, data)

    async def ok(self) -> None:
        """Answer ok to the broker's oldest unanswered method."""
        await self.channel.send(MessageOk())

    async def reject(self, code: int = 311, text: str = "") -> None:
        """Reject the broker's oldest unanswered transfer."""
        await self.channel.send(MessageReject(code=code, text=text))

    async def _open_reference(self, reference: Reference, request: MethodBase) -> MethodBase:
        """Return the answer to an open or resume; if the wait is cancelled, close it."""
        call = await self.channel.ask(request)
        try:
            return await self.channel.answer(call)
        except asyncio.CancelledError:
            reference.abandon()
            raise

    def _open(self, reference: bytes) -> bytearray:
        body = self._incoming.get(reference)
        if body is None:
            raise ProtocolViolation(f"reference {reference!r} is not open")
        return body


def _check_accepted(message: Message, answer: MethodBase) -> None:
    if isinstance(answer, MessageReject):
        raise PublishFailed(message, f"{answer.code} {answer.text}")
