# SPDX-License-Identifier: Apache-2.0
"""The file class of AMQP 0-10: files that are staged first, and then published.

As `headrace.client.content_classes.files` for 0-8 and 0-9, on a session.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from headrace.client.content_classes.files import STAGED_MAX
from headrace.client.errors import BufferOverflow, ProtocolViolation, UsageError
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
    """Files of one session. One task at a time may use it."""

    def __init__(self, session: Session, staged: dict[str, Staging] | None = None) -> None:
        self.staged: dict[str, Staging] = {} if staged is None else staged
        self._session = session
        self._open = ""  # The identifier that the next stage is for.
        self._deferred: deque[tuple[Command, list[Struct], bytes]] = deque()

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
        """Stage and publish a file; return the number of bytes that the broker already had."""
        body = octets_of(body)
        identifier = identifier or uuid.uuid4().hex
        await self._session.call(FileOpen(identifier=identifier, content_size=len(body)))
        start = (await self._wait(FileOpenOk)).staged_size or 0
        if start > len(body):
            raise UsageError(f"the broker has {start} octets of {identifier!r}, not {len(body)}")
        headers = [properties or FileProperties()]
        await self._session.call(FileStage(), headers=headers, body=body[start:])
        await self._session.call(
            FilePublish(
                exchange=exchange,
                routing_key=routing_key,
                mandatory=mandatory,
                immediate=immediate,
                identifier=identifier,
            )
        )
        return start

    async def qos(self, count: int = 0, *, size: int = 0, shared: bool = False) -> None:
        """Limit the unsettled files, and their bytes."""
        await self._session.call(FileQos(prefetch_count=count, prefetch_size=size, global_=shared))
        await self._wait(FileQosOk)

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
        await self._session.call(request)
        return (await self._wait(FileConsumeOk)).consumer_tag or ""

    async def cancel(self, tag: str) -> None:
        """Cancel a consumer."""
        await self._session.call(FileCancel(consumer_tag=tag))

    async def receive(self) -> SessionFile:
        """Wait for the next whole file.

        Raises ProtocolViolation when the broker stages more than `STAGED_MAX` bytes at a time, or
        more of a file than it announced.
        """
        while True:
            command, headers, body = await self._next()
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

    async def _next(self) -> tuple[Command, list[Struct], bytes]:
        return self._deferred.popleft() if self._deferred else await self._session.next_command()

    async def _wait(self, kind: type[Wanted]) -> Wanted:
        """Return the broker's answer; commands before it are kept for `receive`."""
        while True:
            arrived = await self._session.next_command()
            if isinstance(arrived[0], kind):
                return arrived[0]
            if len(self._deferred) >= DEFERRED_MAX:
                raise BufferOverflow(f"more than {DEFERRED_MAX} commands were not taken")
            self._deferred.append(arrived)

    def _opened(self, command: FileOpen) -> None:
        """Answer file.open with the number of bytes received before."""
        self._open = command.identifier or ""
        staged = self.staged.setdefault(self._open, Staging())
        staged.size = command.content_size or 0
        if sum(each.size for each in self.staged.values()) > STAGED_MAX:
            raise ProtocolViolation(f"more than {STAGED_MAX} octets of files are staged")
        self._session.send(FileOpenOk(staged_size=len(staged.body)))
