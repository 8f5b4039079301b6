# SPDX-License-Identifier: Apache-2.0
"""Staged batches: many tasks publish, and one commit makes their messages visible exactly once.

A `Stage` is one attempt of one task: it publishes into transaction branches of the broker, and
prepares them. A `Sink`, in the driver, owns the batches of one name, and commits each batch with
the list of its successful attempts. docs/guides/staged-batches.md has the failure cases.

A stage opens a connection in AMQP 0-9, whose dtx class it uses, whatever the version of the
program's connection; its messages are stored like publishes of 0-9-1.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.client.bulk.encode import (
    MANDATORY,
    OUTPUT_SIZE_MAX,
    Octets,
    RowError,
    encode_properties,
    encode_publishes,
)
from headrace.client.channel.closing import AsyncClosing
from headrace.client.errors import ClientError
from headrace.client.message import Content, Message, several
from headrace.client.requests import Answer, RequestRefused, Requests
from headrace.protocol.codec_0_x import DtxSelect, DtxStart
from headrace.spec.tables import V0_9

if TYPE_CHECKING:
    from headrace.client.channel.channel import Channel
    from headrace.client.connection.connection import Connection

CHUNK_MESSAGES: Final = 16_384  # Maximum messages of a branch.
CHUNK_BYTES: Final = 16 << 20  # Maximum bytes of bodies of a branch.
PREPARING_MAX: Final = 4  # The maximum number of branches with an unanswered prepare.
FORMAT: Final = 0x48525342
PREPARE_S: Final = 120.0  # The timeout of a prepare, commit or rollback.


class StageError(ClientError):
    """A publish failed; `index` counts the messages of the stage from 0."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason

    def __str__(self) -> str:
        return f"message {self.index} cannot be published: {self.reason}"


@dataclass(frozen=True, slots=True)
class Staged:
    """The prepared branches of an attempt, for `Sink.commit`."""

    branches: str  # The name of the attempt and the number of its branches; "" without branches.
    messages: int
    already: bool = False  # True if the batch was committed before, so nothing is staged.


@dataclass(frozen=True, slots=True)
class SinkState:
    """A sink, as the broker returned it: its owner, and its last committed batch."""

    sink: str
    owner: str
    epoch: int
    last: int | None  # The last committed batch.
    at_ms: int  # The time of that commit, in milliseconds since 1970.
    already: bool = False  # True if the batch had been committed before.
    messages: int = 0  # The number of messages that the commit made visible.


def _parse_state(answer: Answer) -> SinkState:
    names = SinkState.__dataclass_fields__
    return SinkState(**{name: value for name, value in answer.items() if name in names})


class Sink:
    """The batches of one sink, for their owner.

    All calls are idempotent. They raise RequestRefused with code `conflict` when another owner, or
    a later run of this one, has the sink.
    """

    def __init__(
        self, connection: Connection, name: str, *, requests: Requests | None = None
    ) -> None:
        self.name = name
        self.epoch = 0  # The epoch from `begin`; 0 acts for any owner.
        self._requests = requests or Requests(connection, timeout_s=PREPARE_S)

    async def begin(self, owner: str, run: str = "", *, force: bool = False) -> SinkState:
        """Become the sink's owner; undecided batches of earlier runs are rolled back.

        `owner` is the program that numbers the batches, such as a query; `run` is one run of it. A
        repeated run keeps its epoch; an empty `run` is always new. `force` takes the sink from a
        live owner.
        """
        answer = await self._ask("batch.begin", owner=owner, run=run, force=force)
        self.epoch = int(answer["epoch"])
        return _parse_state(answer)

    async def state(self) -> SinkState | None:
        """Return the state of the sink; None when it does not exist."""
        try:
            return _parse_state(await self._ask("batch.last"))
        except RequestRefused as error:
            if error.code == "not-found":
                return None
            raise

    async def last(self) -> int | None:
        """Return the number of the owner's last committed batch; None before the first commit."""
        state = await self.state()
        return None if state is None else state.last

    async def commit(self, batch: int, staged: Iterable[Staged | str]) -> SinkState:
        """Make these attempts visible together, and roll back all others of the batch.

        Raises RequestRefused with code `not-found` or `precondition` when an attempt is missing:
        the batch must be written again.
        """
        names = [attempt if isinstance(attempt, str) else attempt.branches for attempt in staged]
        names = [name for name in names if name]
        return _parse_state(
            await self._ask("batch.commit", epoch=self.epoch, batch=batch, branches=names)
        )

    async def abort(self, batch: int) -> int:
        """Roll back the prepared branches of a batch; return their number."""
        answer = await self._ask("batch.abort", epoch=self.epoch, batch=batch)
        return int(answer["branches"])

    async def release(self, owner: str) -> None:
        """End the ownership, so that another owner may begin at once."""
        await self._ask("batch.release", owner=owner)

    async def close(self) -> None:
        """Close the channel for requests."""
        await self._requests.close()

    async def _ask(self, request: str, **fields: object) -> Answer:
        return await self._requests.ask(request, sink=self.name, **fields)


class Stage(AsyncClosing):
    """One attempt at one partition of a batch. Use it with `async with`.

    Its messages are discarded unless `prepare` is called.
    """

    def __init__(
        self,
        connection: Connection,
        sink: str,
        batch: int,
        partition: int,
        attempt: int,
        *,
        epoch: int = 0,
        chunk_messages: int = CHUNK_MESSAGES,
        chunk_octets: int = CHUNK_BYTES,
    ) -> None:
        """Use the `epoch` of the sink's owner; with an earlier one `prepare` fails."""
        self.sink = sink
        self.batch = batch
        self.name = f"{partition}.{attempt}.{secrets.token_hex(3)}"
        self.epoch = epoch
        self.messages = 0  # The number of messages published so far.
        self._source = connection
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._requests: Requests | None = None
        self._branch_number = -1  # The number of the open branch; -1 before the first.
        self._branch_messages = 0  # Messages in the open branch.
        self._branch_bytes = 0  # Bytes of bodies in the open branch.
        self._chunk_messages = chunk_messages
        self._chunk_octets = chunk_octets
        self._preparing: deque[asyncio.Task[bool]] = deque()
        self._is_committed = False

    async def publish_many(
        self,
        messages: Iterable[Content],
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = True,
    ) -> None:
        """Publish messages; without an exchange the routing key is the name of a queue.

        With `mandatory`, a message that the broker cannot route makes the stage fail.
        """
        batch = [Message.of(message) for message in several(messages)]
        await self.publish_columns(
            len(batch),
            Octets.of(message.body for message in batch),
            properties=Octets.of(encode_properties(message) for message in batch),
            routing_key=Octets(routing_key.encode()),
            exchange=Octets(exchange.encode()),
            mandatory=mandatory,
        )

    async def publish_columns(
        self,
        count: int,
        body: Octets,
        *,
        properties: Octets,
        routing_key: Octets,
        exchange: Octets,
        mandatory: bool = True,
    ) -> None:
        """Publish rows of columns (see `headrace.client.bulk.encode`).

        Raises StageError for a row that cannot be encoded, or that the broker refused; a refusal
        may be raised by a later call.
        """
        flags = MANDATORY if mandatory else 0
        row = 0
        while row < count:
            channel = await self._ready()
            row_end = min(count, row + self._chunk_messages - self._branch_messages)
            bytes_max = min(OUTPUT_SIZE_MAX, self._chunk_octets - self._branch_bytes)
            try:
                frames, next_row = encode_publishes(
                    channel.number,
                    self._frame_max(),
                    exchange,
                    routing_key,
                    properties,
                    body,
                    row,
                    row_end,
                    flags,
                    bytes_max,
                )
            except RowError as error:
                raise StageError(self.messages + error.row - row, error.reason) from None
            await channel.send_frames(frames)
            self._branch_messages += next_row - row
            self._branch_bytes += len(frames)
            self.messages += next_row - row
            row = next_row

    async def prepare(self) -> Staged:
        """Prepare the messages, which ends the stage: they survive a restart until the decision.

        Raises StageError when a publish failed, RequestRefused when the stage is too late (code
        `conflict`: another run owns the sink) or cannot be prepared.
        """
        if self._branch_messages:
            self._begin_prepare()
        while self._preparing:
            await self._await_prepare()
        if self._is_committed:
            return Staged("", 0, already=True)
        chunks = self._branch_number + 1
        return Staged(f"{self.name}:{chunks}" if chunks else "", self.messages)

    async def close(self) -> None:
        """Discard unprepared messages, and close the stage's connection."""
        for task in self._preparing:
            task.cancel()
        self._preparing.clear()
        connection, self._connection = self._connection, None
        self._channel = None
        if connection is not None:
            await connection.close()

    # --- Inside -------------------------------------------------------------------------------

    def _frame_max(self) -> int:
        assert self._connection is not None
        return self._connection.frame_max

    async def _ready(self) -> Channel:
        """Return the channel, with an open branch that is not full."""
        if self._connection is None:
            self._connection = await self._source.beside(V0_9)
            self._requests = Requests(self._connection, timeout_s=PREPARE_S)
            self._channel = await self._connection.channel(confirm=False)
            await self._channel.call(DtxSelect())
        assert self._channel is not None
        is_full = (
            self._branch_messages >= self._chunk_messages
            or self._branch_bytes >= self._chunk_octets
        )
        if self._branch_number < 0 or is_full:
            if is_full:
                self._begin_prepare()
            while self._preparing and (
                len(self._preparing) >= PREPARING_MAX or self._preparing[0].done()
            ):
                await self._await_prepare()
            self._branch_number += 1
            self._branch_messages = self._branch_bytes = 0
            await self._channel.call(DtxStart(dtx_identifier=self._identifier()))
        return self._channel

    def _identifier(self) -> str:
        global_id = f"{self.sink}\0{self.batch}".encode()
        return f"{FORMAT:x}:{global_id.hex()}:{self._branch_name().encode().hex()}"

    def _branch_name(self) -> str:
        return f"{self.name}/{self._branch_number}"

    def _begin_prepare(self) -> None:
        """Begin to prepare the current branch; the next branch does not wait for it."""
        first = self.messages - self._branch_messages
        prepare = self._prepare(self._branch_name(), self._branch_messages, first)
        self._preparing.append(asyncio.create_task(prepare))

    async def _prepare(self, branch: str, count: int, first: int) -> bool:
        assert self._requests is not None
        try:
            answer = await self._requests.ask(
                "batch.prepare",
                sink=self.sink,
                epoch=self.epoch,
                batch=self.batch,
                branch=branch,
                count=count,
            )
        except RequestRefused as error:
            index, _, reason = error.text.removeprefix("message ").partition(": ")
            if error.code == "precondition" and index.isdigit():
                raise StageError(first + int(index), reason) from None
            raise
        return bool(answer["already"])

    async def _await_prepare(self) -> None:
        """Wait for the oldest prepare."""
        if await self._preparing.popleft():
            self._is_committed = True
