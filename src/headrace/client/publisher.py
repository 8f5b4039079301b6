# SPDX-License-Identifier: Apache-2.0
"""Publishing each message once: messages have ids, and the broker drops ids that it has.

After a lost connection the client cannot know which unconfirmed messages the broker has. A
`Publisher` sends them again in order, with the same ids, and the broker drops duplicates. A
restarted program continues after `last`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from headrace.client.channel.batch import iterate_messages
from headrace.client.channel.closing import AsyncClosing
from headrace.client.errors import ConfirmLost, ConnectionLost, UsageError
from headrace.client.message import Content, Message
from headrace.client.requests import Requests

if TYPE_CHECKING:
    from headrace.client.channel.channel import Channel
    from headrace.client.connection.connection import Connection

NAME_MAX = 255  # The maximum bytes of a publisher's name.
ATTEMPTS_MAX = 100  # The maximum number of times that one message is sent after lost connections.
IN_FLIGHT_MAX = 1000  # The maximum number of messages of `publish_many` in flight.


class Publisher(AsyncClosing):
    """Publishes under a name, each message once. Use it with `async with`, one for each name.

    Two publishers with one name at a time lose messages: the broker drops the ids of the slower
    one as duplicates.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        if not 0 < len(name.encode()) <= NAME_MAX:
            raise ValueError(f"a publisher's name has 1 to {NAME_MAX} bytes: {name!r}")
        self.name = name
        self._connection = connection
        self._channel: Channel | None = None
        self._next = 0
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Publisher {self.name!r} of {self._connection!r}>"

    async def __aenter__(self) -> Self:
        """Open a channel, and query the last id."""
        self._channel = await self._connection.channel()
        try:
            self._next = await self.last() + 1
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close the channel; publishes without a confirm fail."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def last(self) -> int:
        """Return the highest id that the broker has from this publisher; -1 when it has none."""
        async with Requests(self._connection) as requests:
            return int((await requests.ask("publisher.last", name=self.name))["last"])

    async def publish(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
        publishing_id: int | None = None,
    ) -> int:
        """Publish once; return the message's id when the broker has confirmed.

        The id is the next one unless `publishing_id` gives it, which may not be lower than that of
        an earlier message; the broker drops a message with an id that it has. After Nacked or
        Returned the broker does not have the message: publish it again, with or without its id.
        """
        ids = None if publishing_id is None else [publishing_id]
        return await self._publish([message], routing_key, exchange, mandatory, ids)

    async def publish_many(
        self,
        messages: Iterable[Content] | AsyncIterable[Content],
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish messages with up to 1000 in flight; return the last id, or -1 without any.

        A failure stops the sending after the messages in flight. The error has the failed message.
        """
        last = self._next - 1
        batch: list[Content] = []
        async for message in iterate_messages(messages):
            batch.append(message)
            if len(batch) == IN_FLIGHT_MAX:
                last = await self._publish(batch, routing_key, exchange, mandatory, None)
                batch = []
        if batch:
            last = await self._publish(batch, routing_key, exchange, mandatory, None)
        return last

    async def _publish(
        self,
        messages: list[Content],
        routing_key: str,
        exchange: str,
        mandatory: bool,
        ids: list[int] | None,
    ) -> int:
        """Publish messages and wait for their confirms; send those with lost confirms again.

        The lock is held until all of them have an outcome, so ids arrive in order.
        """
        async with self._lock:
            if ids is None:
                ids = list(range(self._next, self._next + len(messages)))
            self._next = max(self._next, ids[-1] + 1)
            numbered = [
                self._with_publishing_id(message, number)
                for message, number in zip(messages, ids, strict=True)
            ]
            failures: list[BaseException] = []
            for _ in range(ATTEMPTS_MAX):
                numbered = await self._send(numbered, routing_key, exchange, mandatory, failures)
                if not numbered:
                    break
                await self._connection.ready()
            else:
                raise ConfirmLost(numbered[0], f"{ATTEMPTS_MAX} connections broke, one by one")
            if failures:
                raise failures[0]
            return ids[-1]

    async def _send(
        self,
        messages: list[Message],
        routing_key: str,
        exchange: str,
        mandatory: bool,
        failures: list[BaseException],
    ) -> list[Message]:
        """Send messages; return those with an unknown outcome, and append errors to `failures`."""
        channel = self._channel
        if channel is None:
            raise UsageError(f"publisher {self.name!r} is closed")
        futures: list[asyncio.Future[None]] = []
        try:
            for message in messages:
                sent = channel.publish_soon(message, routing_key, exchange, mandatory=mandatory)
                futures.append(await sent)
        except ConnectionLost:
            if self._connection.is_closed:
                raise
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        unconfirmed: list[Message] = []
        for message, outcome in zip(messages, outcomes, strict=False):
            if isinstance(outcome, ConfirmLost | ConnectionLost):
                if self._connection.is_closed:
                    raise outcome
                unconfirmed.append(message)
            elif outcome is not None:
                failures.append(outcome)
        return unconfirmed + messages[len(futures) :]

    def _with_publishing_id(self, message: Content, number: int) -> Message:
        numbered = Message.of(message)
        headers = {**numbered.headers, "x-publisher-name": self.name, "x-publishing-id": number}
        return replace(numbered, headers=headers)
