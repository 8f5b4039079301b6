# SPDX-License-Identifier: Apache-2.0
"""Publishing by the thousand on a channel of its own: encoded elsewhere, confirmed in order.

Frames are kept until they are confirmed, and sent again after a reconnection: at least once. A
publish that was refused or returned is found again in these frames, so that the program learns
which one it was.
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

UNCONFIRMED_OCTETS_MAX: Final = 8 << 20  # Sent and not confirmed.
FAILURES_MAX: Final = 1000  # Failures that are reported one by one.

_HEAD: Final = Struct(">BHL")


@dataclass(frozen=True, slots=True)
class Failure:
    """One publish that the broker did not take; `number` counts publishes from 0."""

    number: int
    exchange: str
    routing_key: str
    message_id: str | None
    reason: str


@dataclass(slots=True)
class _Chunk:
    """Publishes that were sent together."""

    first: int
    count: int
    octets: bytes | bytearray
    publishes: list[tuple[bytes, bytes, bytes, bytes]] | None = None

    def each(self) -> Iterable[tuple[int, tuple[bytes, bytes, bytes, bytes]]]:
        """Give numbers and publishes; parses the frames, for when one of them failed."""
        if self.publishes is None:
            self.publishes = publishes_in(self.octets)
        return enumerate(self.publishes, self.first)


class BulkPublisher:
    """Sends frames of `client.bulk.encode` and counts their confirms.

    `async with` opens and closes its channel. Made for AMQP 0-9-1: other versions have no confirms,
    or other frames.
    """

    def __init__(self, connection: Connection, *, octets_max: int = UNCONFIRMED_OCTETS_MAX) -> None:
        self.failures: dict[int, Failure] = {}  # The failures by message number.
        self.failed = 0  # All of them; beyond `FAILURES_MAX` they are only counted.
        self._connection = connection
        self._octets_max = octets_max
        self._channel: Channel | None = None
        self._chunks: deque[_Chunk] = deque()
        self._octets = 0
        self._next = 0  # Number of the next publish.
        self._done = 0  # All before it have an outcome.
        self._base = 0  # The number of delivery tag 1.
        self._beyond: set[int] = set()  # Numbers above `_done` with an outcome.
        self._returned_to = 0  # Returns come in order: the next is not before this number.
        self._must_resend = False  # Whether all chunks must be sent again.
        self._changed = asyncio.Event()
        self._error: ClientError | None = None

    async def __aenter__(self) -> Self:
        if self._connection.version is not V0_9_1:
            raise UsageError("publishing in bulk needs AMQP 0-9-1")
        self._channel = await self._connection.channel(retry_lost=True)
        try:
            await self._channel.confirm_by(_Outcomes(self))
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
        """The maximum size of a frame in bytes."""
        return self._connection.frame_max

    async def send(self, octets: bytes | bytearray, count: int) -> None:
        """Send frames with `count` publishes; wait while too many bytes are unconfirmed."""
        while self._octets and self._octets + len(octets) > self._octets_max:
            await self._wait()
        if self._must_resend:
            await self._send_again()
        link = await self._writable()
        # No await from here on: counted frames are sent, or sent again.
        self._chunks.append(_Chunk(self._next, count, octets))
        self._next += count
        self._octets += len(octets)
        if not self._must_resend:
            self._write(link, octets)

    async def finish(self) -> None:
        """Wait until every publish has its outcome."""
        while self._done < self._next:
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
            pass  # The chunk is sent with the others, or the channel reports its end.

    async def _send_again(self) -> None:
        """Send all unconfirmed frames on a reopened channel: `octets_max` bound them."""
        link = await self._writable()
        if not self._must_resend:
            return  # Another task has.
        self._must_resend = False
        if self._chunks:
            self._base = self._done = self._returned_to = self._chunks[0].first
        self._beyond.clear()
        for chunk in self._chunks:
            self._write(link, chunk.octets)

    # --- What the broker says -----------------------------------------------------------------

    def settle(self, tag: int, multiple: bool, *, acked: bool) -> None:
        """Take a confirm."""
        if self._must_resend:
            return
        number = self._base + tag - 1
        if not acked:
            numbers = range(self._done, number + 1) if multiple else range(number, number + 1)
            for each in numbers:
                self._fail(each, "the broker refused the message (basic.nack)")
        if multiple:
            self._done = max(self._done, number + 1 if tag else self._next)
        else:
            self._beyond.add(number)
        while self._done in self._beyond:
            self._beyond.discard(self._done)
            self._done += 1
        if multiple and self._beyond:
            self._beyond = {each for each in self._beyond if each > self._done}
        while self._chunks and self._chunks[0].first + self._chunks[0].count <= self._done:
            self._octets -= len(self._chunks.popleft().octets)
        self._changed.set()

    def returned(self, method: BasicReturn, message: Message) -> None:
        """Take a returned message; its confirm follows."""
        exchange, key = method.exchange.encode(), method.routing_key.encode()
        reason = (
            f"{method.reply_code} {method.reply_text}: exchange {method.exchange!r}, "
            f"routing key {method.routing_key!r}"
        )
        self.failed += 1
        if self.failed > FAILURES_MAX:
            return
        for chunk in self._chunks:
            if chunk.first + chunk.count <= self._returned_to:
                continue
            for number, publish in chunk.each():
                if number < self._returned_to or publish[:2] != (exchange, key):
                    continue
                if publish[3] == message.body:
                    self._returned_to = number + 1
                    self.failures[number] = Failure(
                        number, method.exchange, method.routing_key, message.message_id, reason
                    )
                    return

    def lost(self) -> None:
        """The channel is open on another link: earlier frames will not be confirmed."""
        self._must_resend = True
        self._changed.set()

    def fail(self, error: ClientError) -> None:
        """Fail with an error: the channel is closed for good."""
        self._error = error
        self._must_resend = False
        self._changed.set()

    def _fail(self, number: int, reason: str) -> None:
        self.failed += 1
        if self.failed > FAILURES_MAX or number in self.failures:
            return
        for chunk in self._chunks:
            if chunk.first <= number < chunk.first + chunk.count:
                for at, publish in chunk.each():
                    if at == number:
                        exchange, key, header, _ = publish
                        self.failures[number] = Failure(
                            number,
                            exchange.decode(errors="replace"),
                            key.decode(errors="replace"),
                            decode_properties(header).message_id,
                            reason,
                        )
                        return


class _Outcomes(Confirms):
    """Gives a channel's confirms to a bulk publisher."""

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


def publishes_in(octets: bytes | bytearray) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Give exchange, routing key, header and body of each publish in encoded frames."""
    publishes: list[tuple[bytes, bytes, bytes, bytes]] = []
    exchange = key = header = b""
    pieces: list[bytes] = []
    missing = 0
    at = 0
    while at < len(octets):
        kind, _, size = _HEAD.unpack_from(octets, at)
        payload = bytes(octets[at + 7 : at + 7 + size])
        at += size + 8
        if kind == 1:
            end = 7 + payload[6]
            exchange, key = payload[7:end], payload[end + 1 : end + 1 + payload[end]]
            continue
        if kind == 2:
            header, pieces = payload, []
            missing = int.from_bytes(payload[4:12], "big")
        else:
            pieces.append(payload)
            missing -= size
        if not missing:
            publishes.append((exchange, key, header, b"".join(pieces)))
    return publishes
