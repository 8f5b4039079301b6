# SPDX-License-Identifier: Apache-2.0
"""Publishes that belong together: many with one outcome, or a transaction."""

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
        self.failure: BaseException | None = None  # The first.
        self._channel = channel
        self._routing_key = routing_key
        self._exchange = exchange
        self._mandatory = mandatory
        self._count = 0
        self._outstanding = 0
        self._settled = asyncio.Event()

    async def add(self, message: Content) -> None:
        """Publish one more."""
        confirmed = await self._channel.publish_soon(
            message, self._routing_key, self._exchange, mandatory=self._mandatory
        )
        self._count += 1
        self._outstanding += 1
        confirmed.add_done_callback(self._note)

    async def finish(self) -> int:
        """Wait for every outcome; raise the first failure, or return the number of messages."""
        while self._outstanding:
            self._settled.clear()
            await self._settled.wait()
        if self.failure is not None:
            raise self.failure
        return self._count

    def _note(self, confirmed: asyncio.Future[None]) -> None:
        self._outstanding -= 1
        failure = None if confirmed.cancelled() else confirmed.exception()
        self.failure = self.failure or failure
        if not self._outstanding:
            self._settled.set()


class Transaction:
    """`async with channel.transaction():` commits at the end, rolls back when an exception leaves.

    When mandatory messages were returned, the commit has taken effect for the others; then the
    first Returned is raised. `returned` holds them all.
    """

    def __init__(self, channel: TransactionPort) -> None:
        self.returned: list[Returned] = []
        self.broken: ClientError | None = None  # Why it can no longer be committed.
        self.over: asyncio.Event | None = None  # Set once it has ended; None before its end begins.
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


async def each(messages: Iterable[Content] | AsyncIterable[Content]) -> AsyncIterator[Content]:
    """Give messages of an iterable or an asynchronous one."""
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
    else:
        for message in several(messages):
            yield message
