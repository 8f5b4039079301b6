# SPDX-License-Identifier: Apache-2.0
"""Groups of publishes: batches with one outcome, and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from headrace.client.message import several

if TYPE_CHECKING:
    from headrace.client.errors import ClientError, Returned
    from headrace.client.message import Content


class BatchPort(Protocol):
    """The publishing of a channel, as far as a batch uses it."""

    async def publish_soon(
        self, message: Content, routing_key: str, exchange: str, *, mandatory: bool
    ) -> asyncio.Future[None]:
        """Publish a message and return a future of its confirm, to have many in flight."""


class TransactionPort(Protocol):
    """The publishing of a channel, as far as a transaction uses it."""

    async def begin(self, transaction: Transaction) -> None:
        """Begin a transaction; UsageError when one is under way."""

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Commit or roll back a transaction."""


class Batch:
    """Publishes with many confirms in flight and one outcome."""

    def __init__(
        self, channel: BatchPort, routing_key: str, exchange: str, *, mandatory: bool
    ) -> None:
        self.failure: BaseException | None = None  # The first failure.
        self._channel = channel
        self._routing_key = routing_key
        self._exchange = exchange
        self._mandatory = mandatory
        self._count = 0
        self._outstanding = 0
        self._all_settled = asyncio.Event()

    async def add(self, message: Content) -> None:
        """Publish a message, waiting only while too many are unconfirmed."""
        outcome = await self._channel.publish_soon(
            message, self._routing_key, self._exchange, mandatory=self._mandatory
        )
        self._count += 1
        self._outstanding += 1
        outcome.add_done_callback(self._publish_done)

    async def finish(self) -> int:
        """Wait for every outcome; raise the first failure, or return the number of messages."""
        while self._outstanding:
            self._all_settled.clear()
            await self._all_settled.wait()
        if self.failure is not None:
            raise self.failure
        return self._count

    def _publish_done(self, outcome: asyncio.Future[None]) -> None:
        self._outstanding -= 1
        failure = None if outcome.cancelled() else outcome.exception()
        self.failure = self.failure or failure
        if not self._outstanding:
            self._all_settled.set()


# Keeps 0-9-1/s122, 0-9-1/tx#01, 0-9-1/tx#03.
class Transaction:
    """A transaction: commits at the end of an `async with` block, rolls back when it raises.

    If mandatory messages were returned, the first Returned is raised after the commit, which has
    taken effect for the other messages. `returned` lists them all.
    """

    def __init__(self, channel: TransactionPort) -> None:
        self.returned: list[Returned] = []
        self.error: ClientError | None = None  # The error that makes a commit impossible.
        # Set after the commit or rollback; None until that begins.
        self.ended: asyncio.Event | None = None
        self._channel = channel

    async def __aenter__(self) -> Self:
        await self._channel.begin(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._channel.end(self, commit=error is None)


async def iterate_messages(
    messages: Iterable[Content] | AsyncIterable[Content],
) -> AsyncIterator[Content]:
    """Yield the messages of an iterable or an asynchronous iterable."""
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
    else:
        for message in several(messages):
            yield message
