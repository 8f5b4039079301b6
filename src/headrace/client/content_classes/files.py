# SPDX-License-Identifier: Apache-2.0
"""The file class of AMQP 0-8 and 0-9: files that are staged first, and then published.

A transfer that broke off goes on where it stopped: the receiver says how much it has. `staged` has
the files staged so far; give it to the `Files` of the next channel.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.client.content_classes.owed import Owed
from headrace.client.errors import ProtocolViolation, UsageError
from headrace.client.message import octets_of
from headrace.protocol.codec_0_x import (
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
    FileReject,
    FileReturn,
    FileStage,
)

if TYPE_CHECKING:
    from headrace.client.channel.channel import Channel

STAGED_MAX = 1 << 30  # Octets staged here and not delivered.


@dataclass(slots=True, eq=False)
class FileDelivery:
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
class Staged:
    """The bytes received so far of one file."""

    body: bytearray = field(default_factory=bytearray)
    properties: FileProperties = field(default_factory=FileProperties)
    size: int = 0


class Files:
    """Files of one channel. One task at a time may receive."""

    def __init__(self, channel: Channel, staged: dict[str, Staged] | None = None) -> None:
        self.staged: dict[str, Staged] = {} if staged is None else staged
        self._channel = channel
        self._open = ""  # The identifier that the next stage is for.
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

    async def _publish(self, publish: FilePublish, body: bytes, properties: FileProperties) -> int:
        async with self._staging:
            return await self._stage_and_publish(publish, body, properties)

    async def _stage_and_publish(
        self, publish: FilePublish, body: bytes, properties: FileProperties
    ) -> int:
        identifier = publish.identifier
        answer = await self._channel.call(FileOpen(identifier=identifier, content_size=len(body)))
        assert isinstance(answer, FileOpenOk)
        start = answer.staged_size
        if start > len(body):
            raise UsageError(f"the broker has {start} octets of {identifier!r}, not {len(body)}")
        await self._channel.send(FileStage(), properties=properties, body=body[start:])
        await self._channel.send(publish)
        return start

    async def qos(self, count: int = 0, *, size: int = 0, shared: bool = False) -> None:
        """Limit the unsettled files, and their bytes."""
        await self._channel.call(FileQos(prefetch_count=count, prefetch_size=size, global_=shared))

    async def consume(
        self, queue: str, tag: str = "", *, no_ack: bool = False, exclusive: bool = False
    ) -> str:
        """Consume the files of a queue; return the consumer tag."""
        request = FileConsume(queue=queue, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive)
        answer = await self._channel.call(request)
        assert isinstance(answer, FileConsumeOk)
        return answer.consumer_tag

    async def cancel(self, tag: str) -> None:
        """Cancel a consumer."""
        await self._channel.call(FileCancel(consumer_tag=tag))

    async def receive(self) -> FileDelivery:
        """Wait for the next whole file.

        Raises ProtocolViolation when the broker stages more than `STAGED_MAX` bytes at a time, or
        more of a file than it announced.
        """
        while True:
            arrived = await self._channel.next_method()
            method = arrived.method
            if isinstance(method, FileOpen):
                await self._opened(method)
            elif isinstance(method, FileStage):
                staged = self.staged.setdefault(self._open, Staged())
                staged.body += arrived.body
                if isinstance(arrived.properties, FileProperties):
                    staged.properties = arrived.properties
                if len(staged.body) > staged.size:
                    raise ProtocolViolation(f"more than {staged.size} octets were staged")
            elif isinstance(method, FileDeliver):
                whole = self.staged.pop(method.identifier, Staged())
                return FileDelivery(
                    bytes(whole.body),
                    whole.properties,
                    exchange=method.exchange,
                    routing_key=method.routing_key,
                    delivery_tag=method.delivery_tag,
                    consumer_tag=method.consumer_tag,
                    redelivered=method.redelivered,
                )
            elif isinstance(method, FileReturn):
                properties = arrived.properties
                assert isinstance(properties, FileProperties)
                return FileDelivery(
                    arrived.body,
                    properties,
                    exchange=method.exchange,
                    routing_key=method.routing_key,
                    returned=f"{method.reply_code} {method.reply_text}",
                )

    async def ack(self, delivery: FileDelivery, *, multiple: bool = False) -> None:
        """Ack a file."""
        await self._channel.send(FileAck(delivery_tag=delivery.delivery_tag, multiple=multiple))

    async def reject(self, delivery: FileDelivery, *, requeue: bool = True) -> None:
        """Reject a file."""
        await self._channel.send(FileReject(delivery_tag=delivery.delivery_tag, requeue=requeue))

    async def _opened(self, method: FileOpen) -> None:
        """Answer file.open with the number of bytes received before."""
        staged = self.staged.setdefault(method.identifier, Staged())
        staged.size = method.content_size
        held = sum(each.size for each in self.staged.values())
        if held > STAGED_MAX:
            raise ProtocolViolation(f"more than {STAGED_MAX} octets of files are staged")
        self._open = method.identifier
        await Owed(self._channel.send(FileOpenOk(staged_size=len(staged.body)))).outcome()
