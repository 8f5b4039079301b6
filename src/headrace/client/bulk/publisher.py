# SPDX-License-Identifier: Apache-2.0
"""Publishing of encoded frames, thousands of publishes at a time, on a channel of its own.

Unconfirmed frames are kept, and sent again after a reconnection, so each message is published at
least once. When the broker refuses or returns a publish, the frames are parsed to find its number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final, Self

from headrace.client.channel.confirms import Confirms
from headrace.client.errors import ConnectionLost, UsageError, fresh
from headrace.client.message import decode_properties
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    from headrace.client.channel.channel import Channel
    from headrace.client.channel.outgoing import Publication
    from headrace.client.connection.connection import Connection
    from headrace.client.errors import ClientError
    from headrace.client.link.link_0_x import Link
    from headrace.client.message import Message
    from headrace.protocol.codec_0_x import BasicReturn

UNCONFIRMED_BYTES_MAX: Final = 8 << 20  # The maximum bytes of frames that are not confirmed.
FAILURES_MAX: Final = 1000  # The maximum number of failures that are recorded, not only counted.

_FRAME_HEAD: Final = Struct(">BHL")


@dataclass(frozen=True, slots=True)
class Failure:
    """A publish that the broker refused or returned; `number` counts publishes from 0."""

    number: int
    exchange: str
    routing_key: str
    message_id: str | None
    reason: str


@dataclass(slots=True)
class _FrameBatch:
    """The frames of one `send`, kept until all of its publishes have an outcome."""

    first: int
    count: int
    octets: bytes | bytearray
    publishes: list[tuple[bytes, bytes, bytes, bytes]] | None = None

    def numbered_publishes(self) -> Iterable[tuple[int, tuple[bytes, bytes, bytes, bytes]]]:
        """Yield the number of each publish with its fields; the first call parses the frames."""
        if self.publishes is None:
            self.publishes = parse_publishes(self.octets)
        return enumerate(self.publishes, self.first)


class BulkPublisher:
    """Sends frames of `client.bulk.encode` and counts their confirms.

    `async with` opens and closes its channel. Made for AMQP 0-9-1: other versions have no confirms,
    or other frames.
    """

    def __init__(self, connection: Connection, *, octets_max: int = UNCONFIRMED_BYTES_MAX) -> None:
        self.failures: dict[int, Failure] = {}  # The failures by message number.
        self.failed = 0  # The number of all failures, also those that `failures` lacks.
        self._connection = connection
        self._unconfirmed_bytes_max = octets_max
        self._channel: Channel | None = None
        self._batches: deque[_FrameBatch] = deque()
        self._unconfirmed_bytes = 0
        self._next = 0  # The number of the next publish.
        self._settled_up_to = 0  # All publishes with a lower number have an outcome.
        self._first_tag_number = 0  # The number of the publish with delivery tag 1.
        self._settled_beyond: set[int] = set()  # Numbers above `_settled_up_to` with an outcome.
        self._next_returned = 0  # Returns arrive in order: the lowest number of the next one.
        self._must_resend = False  # True after a reconnection, until all batches are sent again.
        self._changed = asyncio.Event()
        self._error: ClientError | None = None

    async def __aenter__(self) -> Self:
        if self._connection.version is not V0_9_1:
            raise UsageError("publishing in bulk needs AMQP 0-9-1")
        self._channel = await self._connection.channel(retry_lost=True)
        try:
            await self._channel.confirm_by(_BulkConfirms(self))
        except BaseException:
            await self._channel.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._channel is not None
        await self._channel.close()

    @property
    def number(self) -> int:
        """The number of the channel for which frames must be encoded."""
        assert self._channel is not None
        return self._channel.number

    @property
    def frame_max(self) -> int:
        """The negotiated maximum size of a frame in bytes."""
        return self._connection.frame_max

    async def send(self, octets: bytes | bytearray, count: int) -> None:
        """Send frames with `count` publishes; wait while too many bytes are unconfirmed."""
        while (
            self._unconfirmed_bytes
            and self._unconfirmed_bytes + len(octets) > self._unconfirmed_bytes_max
        ):
            await self._wait()
        if self._must_resend:
            await self._send_again()
        link = await self._writable()
        # Without an await from here on, every counted batch is sent, now or after a reconnection.
        self._batches.append(_FrameBatch(self._next, count, octets))
        self._next += count
        self._unconfirmed_bytes += len(octets)
        if not self._must_resend:
            self._write(link, octets)

    async def finish(self) -> None:
        """Wait until every publish has its outcome."""
        while self._settled_up_to < self._next:
            await self._wait()

    async def _wait(self) -> None:
        if self._must_resend:
            await self._send_again()
            return
        if self._error is not None:
            raise fresh(self._error)
        self._changed.clear()
        await self._changed.wait()

    async def _writable(self) -> Link:
        assert self._channel is not None
        return await self._channel.writable()

    def _write(self, link: Link, octets: bytes | bytearray) -> None:
        try:
            link.send_frames(octets)
        except ConnectionLost:
            pass  # The batch is sent again after a reconnection, or the channel calls `fail`.

    async def _send_again(self) -> None:
        """Send all unconfirmed frames on the reopened channel, at most `octets_max` bytes."""
        link = await self._writable()
        if not self._must_resend:
            return  # Another task has sent them.
        self._must_resend = False
        if self._batches:
            first = self._batches[0].first
            self._first_tag_number = self._settled_up_to = self._next_returned = first
        self._settled_beyond.clear()
        for batch in self._batches:
            self._write(link, batch.octets)

    # --- For the channel's confirms -----------------------------------------------------------

    def settle(self, tag: int, multiple: bool, *, acked: bool) -> None:
        """Settle a delivery tag, with `multiple` all up to it, and free confirmed batches."""
        if self._must_resend:
            return
        number = self._first_tag_number + tag - 1
        if not acked:
            numbers = (
                range(self._settled_up_to, number + 1) if multiple else range(number, number + 1)
            )
            for publish_number in numbers:
                self._record_failure(publish_number, "the broker refused the message (basic.nack)")
        if multiple:
            self._settled_up_to = max(self._settled_up_to, number + 1 if tag else self._next)
        else:
            self._settled_beyond.add(number)
        while self._settled_up_to in self._settled_beyond:
            self._settled_beyond.discard(self._settled_up_to)
            self._settled_up_to += 1
        if multiple and self._settled_beyond:
            self._settled_beyond = {
                publish_number
                for publish_number in self._settled_beyond
                if publish_number > self._settled_up_to
            }
        while (
            self._batches and self._batches[0].first + self._batches[0].count <= self._settled_up_to
        ):
            self._unconfirmed_bytes -= len(self._batches.popleft().octets)
        self._changed.set()

    def returned(self, method: BasicReturn, message: Message) -> None:
        """Record a returned message as a failure; its confirm follows."""
        exchange, routing_key = method.exchange.encode(), method.routing_key.encode()
        reason = (
            f"{method.reply_code} {method.reply_text}: exchange {method.exchange!r}, "
            f"routing key {method.routing_key!r}"
        )
        self.failed += 1
        if self.failed > FAILURES_MAX:
            return
        for batch in self._batches:
            if batch.first + batch.count <= self._next_returned:
                continue
            for number, publish in batch.numbered_publishes():
                if number < self._next_returned or publish[:2] != (exchange, routing_key):
                    continue
                if publish[3] == message.body:
                    self._next_returned = number + 1
                    self.failures[number] = Failure(
                        number, method.exchange, method.routing_key, message.message_id, reason
                    )
                    return

    def lost(self) -> None:
        """Resend all frames: the channel is open on another link, where no confirm arrives."""
        self._must_resend = True
        self._changed.set()

    def fail(self, error: ClientError) -> None:
        """End with an error: the channel is closed for good."""
        self._error = error
        self._must_resend = False
        self._changed.set()

    def _record_failure(self, number: int, reason: str) -> None:
        self.failed += 1
        if self.failed > FAILURES_MAX or number in self.failures:
            return
        for batch in self._batches:
            if batch.first <= number < batch.first + batch.count:
                for publish_number, publish in batch.numbered_publishes():
                    if publish_number == number:
                        exchange, routing_key, header, _ = publish
                        self.failures[number] = Failure(
                            number,
                            exchange.decode(errors="replace"),
                            routing_key.decode(errors="replace"),
                            decode_properties(header).message_id,
                            reason,
                        )
                        return


class _BulkConfirms(Confirms):
    """Passes the confirms and returns of a channel to a bulk publisher."""

    def __init__(self, publisher: BulkPublisher) -> None:
        super().__init__(1)
        self._publisher = publisher

    def settle(self, tag: int, multiple: bool, *, acked: bool) -> None:
        self._publisher.settle(tag, multiple, acked=acked)

    def returned(self, method: BasicReturn, message: Message) -> bool:
        self._publisher.returned(method, message)
        return True

    def take_all(self) -> list[Publication]:
        self._publisher.lost()
        return []

    def fail_all(self, error: ClientError) -> None:
        self._publisher.fail(error)


def parse_publishes(octets: bytes | bytearray) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Return exchange, routing key, header payload and body of each publish in encoded frames."""
    publishes: list[tuple[bytes, bytes, bytes, bytes]] = []
    exchange = routing_key = header = b""
    chunks: list[bytes] = []
    missing_bytes = 0
    position = 0
    while position < len(octets):
        kind, _, size = _FRAME_HEAD.unpack_from(octets, position)
        payload = bytes(octets[position + 7 : position + 7 + size])
        position += size + 8
        if kind == 1:
            end = 7 + payload[6]
            exchange, routing_key = payload[7:end], payload[end + 1 : end + 1 + payload[end]]
            continue
        if kind == 2:
            header, chunks = payload, []
            missing_bytes = int.from_bytes(payload[4:12], "big")
        else:
            chunks.append(payload)
            missing_bytes -= size
        if not missing_bytes:
            publishes.append((exchange, routing_key, header, b"".join(chunks)))
    return publishes
