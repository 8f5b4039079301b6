# SPDX-License-Identifier: Apache-2.0
"""The file class of AMQP 0-8 and 0-9: files that are staged first, and then published.

`staged` has the partly received files. Pass it to the `Files` of another channel to continue there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.content_classes.shielded_task import ShieldedTask
from headrace.client.content_classes.staged_files import ReceivedFile, Staged, StagedFiles
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


@dataclass(slots=True, eq=False)
class FileDelivery(ReceivedFile[FileProperties]):
    """A file from a queue, or a published one that was returned (`returned` says why)."""


class Files(StagedFiles[FileProperties, FilePublish]):
    """Files of one channel. One task at a time may receive."""

    _make_properties = FileProperties
    _make_publish = FilePublish

    def __init__(
        self, channel: Channel, staged: dict[str, Staged[FileProperties]] | None = None
    ) -> None:
        super().__init__(staged)
        self._channel = channel

    async def _ask_staged(self, identifier: str, size: int) -> int:
        answer = await self._channel.call(FileOpen(identifier=identifier, content_size=size))
        assert isinstance(answer, FileOpenOk)
        return answer.staged_size

    async def _send_stage(self, properties: FileProperties, body: bytes) -> None:
        await self._channel.send(FileStage(), properties=properties, body=body)

    async def _send_publish(self, publish: FilePublish) -> None:
        await self._channel.send(publish)

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
                staged_size = self._begin_staged(method.identifier, method.content_size)
                await ShieldedTask(
                    self._channel.send(FileOpenOk(staged_size=staged_size))
                ).outcome()
            elif isinstance(method, FileStage):
                properties = arrived.properties
                self._add_staged(
                    arrived.body, properties if isinstance(properties, FileProperties) else None
                )
            elif isinstance(method, FileDeliver):
                return FileDelivery(
                    *self._take_staged(method.identifier),
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
