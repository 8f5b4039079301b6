# SPDX-License-Identifier: Apache-2.0
"""The file class of AMQP 0-10: files that are staged first, and then published.

`headrace.client.content_classes.files` is the same for 0-8 and 0-9, on a channel.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.client.content_classes.staged_files import ReceivedFile, Staged, StagedFiles
from headrace.client.errors import BufferOverflow, ClientError
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

DEFERRED_MAX = 1024  # The maximum number of commands kept for `receive`.

Answer = TypeVar("Answer", bound=Command)


@dataclass(slots=True, eq=False)
class SessionFile(ReceivedFile[FileProperties]):
    """A file from a queue, or a published one that was returned (`returned` says why)."""


class SessionFiles(StagedFiles[FileProperties, FilePublish]):
    """Files of one session. One task at a time may receive."""

    _make_properties = FileProperties
    _make_publish = FilePublish

    def __init__(
        self, session: Session, staged: dict[str, Staged[FileProperties]] | None = None
    ) -> None:
        super().__init__(staged)
        self._session = session
        self._arrived: deque[tuple[Command, list[Struct], bytes]] = deque()
        # Answers arrive in the order of the requests, even if a caller was cancelled.
        self._pending_answers: dict[type[Command], deque[asyncio.Future[Command]]] = {
            kind: deque() for kind in (FileOpenOk, FileQosOk, FileConsumeOk)
        }
        # Held by the one task that reads commands for all waiting tasks.
        self._reading = asyncio.Lock()

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
                (struct for struct in headers if isinstance(struct, FileProperties)),
                FileProperties(),
            )
            match command:
                case FileOpen():
                    staged_size = self._begin_staged(
                        command.identifier or "", command.content_size or 0
                    )
                    self._session.send(FileOpenOk(staged_size=staged_size))
                case FileStage():
                    self._add_staged(body, properties)
                case FileDeliver():
                    return SessionFile(
                        *self._take_staged(command.identifier or ""),
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

    async def _ask_staged(self, identifier: str, size: int) -> int:
        opening = FileOpen(identifier=identifier, content_size=size)
        return (await self._ask(opening, FileOpenOk)).staged_size or 0

    async def _send_stage(self, properties: FileProperties, body: bytes) -> None:
        await self._session.call(FileStage(), headers=[properties], body=body)

    async def _send_publish(self, publish: FilePublish) -> None:
        await self._session.call(publish)

    async def _ask(self, request: Command, kind: type[Answer]) -> Answer:
        """Send a request and return its answer; other commands are kept for `receive`."""
        completed = self._session.begin(request)
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._pending_answers[kind].append(answer)
        try:
            await self._session.wait_for(completed)
        except ClientError:
            self._pending_answers[kind].remove(answer)
            raise
        await self._read_until(answer.done)
        reply = answer.result()
        assert isinstance(reply, kind)
        return reply

    async def _read_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            async with self._reading:
                if condition():  # Another task has read it.
                    return
                self._dispatch(await self._session.next_command())

    def _dispatch(self, arrived: tuple[Command, list[Struct], bytes]) -> None:
        pending_answers = self._pending_answers.get(type(arrived[0]))
        if pending_answers:
            pending_answers.popleft().set_result(arrived[0])
            return
        if len(self._arrived) >= DEFERRED_MAX:
            raise BufferOverflow(f"more than {DEFERRED_MAX} commands were not taken")
        self._arrived.append(arrived)
