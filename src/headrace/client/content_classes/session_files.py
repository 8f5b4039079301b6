# SPDX-License-Identifier: Apache-2.0
"""The file class of AMQP 0-10: files that are staged first, and then published.

As `headrace.client.content_classes.files` for 0-8 and 0-9, on a session.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from headrace.client.content_classes.files import STAGED_MAX
from headrace.client.content_classes.owed import Owed
from headrace.client.errors import BufferOverflow, ClientError, ProtocolViolation, UsageError
from headrace.client.message import octets_of
from headrace.protocol.codec_0_10 import (
    Command,
    FileAck,
    FileCancel,
    FileConsume,
    FileConsumeOk,
    FileDeliver,
    FileOpen,
    FileOpenOk,
    FileProperties,
    FilePublish,
    FileQos,
    FileQosOk,
    FileReject,
    FileReturn,
    FileStage,
    Struct,
)

if TYPE_CHECKING:
    from headrace.client.session.session import Session

DEFERRED_MAX = 1024  # Commands that came while another was waited for.

Wanted = TypeVar("Wanted", bound=Command)


@dataclass(slots=True, eq=False)
class SessionFile:
    """A file from a queue, or a published one that was returned (`returned` says why)."""

    body: bytes
    properties: FileProperties
    exchange: str = ""
    routing_key: str = ""
    delivery_tag: int = 0
    consumer_tag: str = ""
    redelivered: bool = False
    returned: str = ""


@dataclass(slots=True)
class Staging:
    """The bytes received so far of one file."""

    body: bytearray = field(default_factory=bytearray)
    properties: FileProperties = field(default_factory=FileProperties)
    size: int = 0


class SessionFiles:
    """Files of one session. One task at a time may receive."""

    def __init__(self, session: Session, staged: dict[str, Staging] | None = None) -> None:
        self.staged: dict[str, Staging] = {} if staged is None else staged
        self._session = session
        self._open = ""  # The identifier that the next stage is for.
        self._arrived: deque[tuple[Command, list[Struct], bytes]] = deque()
        # Answers come in the order of their requests, also those whose callers have left.
        self._awaited: dict[type[Command], deque[asyncio.Future[Command]]] = {
            kind: deque() for kind in (FileOpenOk, FileQosOk, FileConsumeOk)
        }
        self._reading = asyncio.Lock()  # By one task at a time, for all.
        self._staging = asyncio.Lock()  # Of one file at a time.
        self._last: Owed[int] | None = None

    async def publish(
        self,
        body: bytes,
        routing_key: str = "",
        exchange: str = "",
        *,
        identifier: str = "",
        properties: FileProperties | None = None,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> int:
        """Stage and publish a file; return the number of bytes that the broker already had.

        It is published even if the call is cancelled: the next publish waits for it.
        """
        publish = FilePublish(
            exchange=exchange,
            routing_key=routing_key,
            mandatory=mandatory,
            immediate=immediate,
            identifier=identifier or uuid.uuid4().hex,
        )
        self._last = Owed(self._publish(publish, octets_of(body), properties or FileProperties()))
        return await self._last.outcome()

    async def qos(self, count: int = 0, *, size: int = 0, shared: bool = False) -> None:
        """Limit the unsettled files, and their bytes."""
        request = FileQos(prefetch_count=count, prefetch_size=size, global_=shared)
        await self._ask(request, FileQosOk)

    async def consume(
        self, queue: str, tag: str = "", *, no_ack: bool = False, exclusive: bool = False
    ) -> str:
        """Consume the files of a queue; return the consumer tag, which is never empty."""
        request = FileConsume(
            queue=queue,
            consumer_tag=tag or uuid.uuid4().hex,
            no_ack=no_ack,
            exclusive=exclusive,
        )
        return (await self._ask(request, FileConsumeOk)).consumer_tag or ""

    async def cancel(self, tag: str) -> None:
        """Cancel a consumer."""
        await self._session.call(FileCancel(consumer_tag=tag))

    async def receive(self) -> SessionFile:
        """Wait for the next whole file.

        Raises ProtocolViolation when the broker stages more than `STAGED_MAX` bytes at a time, or
        more of a file than it announced.
        """
        while True:
            await self._read_until(lambda: bool(self._arrived))
            command, headers, body = self._arrived.popleft()
            properties = next(
                (each for each in headers if isinstance(each, FileProperties)), FileProperties()
            )
            match command:
                case FileOpen():
                    self._opened(command)
                case FileStage():
                    staged = self.staged.setdefault(self._open, Staging())
                    staged.body += body
                    staged.properties = properties
                    if len(staged.body) > staged.size:
                        raise ProtocolViolation(f"more than {staged.size} octets were staged")
                case FileDeliver():
                    whole = self.staged.pop(command.identifier or "", Staging())
                    return SessionFile(
                        bytes(whole.body),
                        whole.properties,
                        exchange=command.exchange or "",
                        routing_key=command.routing_key or "",
                        delivery_tag=command.delivery_tag or 0,
                        consumer_tag=command.consumer_tag or "",
                        redelivered=command.redelivered,
                    )
                case FileReturn():
                    return SessionFile(
                        body,
                        properties,
                        exchange=command.exchange or "",
                        routing_key=command.routing_key or "",
                        returned=f"{command.reply_code} {command.reply_text}",
                    )

    async def ack(self, delivery: SessionFile, *, multiple: bool = False) -> None:
        """Ack a file."""
        await self._session.call(FileAck(delivery_tag=delivery.delivery_tag, multiple=multiple))

    async def reject(self, delivery: SessionFile, *, requeue: bool = True) -> None:
        """Reject a file."""
        await self._session.call(FileReject(delivery_tag=delivery.delivery_tag, requeue=requeue))

    async def _publish(self, publish: FilePublish, body: bytes, properties: FileProperties) -> int:
        async with self._staging:
            opening = FileOpen(identifier=publish.identifier, content_size=len(body))
            start = (await self._ask(opening, FileOpenOk)).staged_size or 0
            if start > len(body):
                has = f"the broker has {start} octets of {publish.identifier!r}"
                raise UsageError(f"{has}, not {len(body)}")
            await self._session.call(FileStage(), headers=[properties], body=body[start:])
            await self._session.call(publish)
            return start

    async def _ask(self, request: Command, kind: type[Wanted]) -> Wanted:
        """Send a request and return its answer; other commands are kept for `receive`."""
        completed = self._session.begin(request)
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._awaited[kind].append(answer)
        try:
            await self._session.wait_for(completed)
        except ClientError:
            self._awaited[kind].remove(answer)
            raise
        await self._read_until(answer.done)
        reply = answer.result()
        assert isinstance(reply, kind)
        return reply

    async def _read_until(self, met: Callable[[], bool]) -> None:
        while not met():
            async with self._reading:
                if met():  # Another task has read it.
                    return
                self._sort(await self._session.next_command())

    def _sort(self, arrived: tuple[Command, list[Struct], bytes]) -> None:
        awaited = self._awaited.get(type(arrived[0]))
        if awaited:
            awaited.popleft().set_result(arrived[0])
            return
        if len(self._arrived) >= DEFERRED_MAX:
            raise BufferOverflow(f"more than {DEFERRED_MAX} commands were not taken")
        self._arrived.append(arrived)

    def _opened(self, command: FileOpen) -> None:
        """Answer file.open with the number of bytes received before."""
        self._open = command.identifier or ""
        staged = self.staged.setdefault(self._open, Staging())
        staged.size = command.content_size or 0
        if sum(each.size for each in self.staged.values()) > STAGED_MAX:
            raise ProtocolViolation(f"more than {STAGED_MAX} octets of files are staged")
        self._session.send(FileOpenOk(staged_size=len(staged.body)))
